"""A SentencePiece vocabulary in T5's convention: pad 0, eos 1, unk 2, no begin symbol."""

from pathlib import Path

from spec_cascades.tasks.translation import read_pairs


def build(path: Path, tsv: str, pieces: int) -> None:
    """Trains a joint unigram vocabulary of `pieces` pieces on both columns of a TSV and writes `path`.

    Raises ValueError where the text has too few or too many pieces for that.
    """
    import sentencepiece

    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".partial")
    texts = [text for pair in read_pairs(tsv) for text in pair]
    with scratch.open("wb") as writer:
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(texts),
                model_writer=writer,
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
        except RuntimeError as error:
            why = str(error).rpartition("] ")[2]
            raise ValueError(f"data.pieces: {pieces} does not fit the text of {tsv}: {why}") from None
    scratch.replace(path)
