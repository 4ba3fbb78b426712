"""A SentencePiece vocabulary in T5's convention: pad 0, eos 1, unk 2, no begin symbol."""

from pathlib import Path

from spec_cascades.tasks.translation import read_pairs


def build(path: Path, tsv: str, pieces: int) -> None:
    """Trains a joint unigram vocabulary of `pieces` pieces on both columns of a TSV and writes `path`."""
    import sentencepiece

    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".partial")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(text for pair in read_pairs(tsv) for text in pair),
        model_writer=(writer := scratch.open("wb")),
        vocab_size=pieces,
        model_type="unigram",
        character_coverage=1.0,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        num_threads=1,
        minloglevel=2,
    )
    writer.close()
    scratch.replace(path)
