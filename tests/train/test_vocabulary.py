"""The vocabulary that a run builds for itself."""

import pytest
import sentencepiece
from copying import PIECES, sentences, write_tsv

from spec_cascades.tokenizers import SentencePiece
from spec_cascades.train import vocabulary


@pytest.fixture
def tsv(tmp_path):
    return str(write_tsv(tmp_path / "train.tsv", 90, 0))


def test_it_has_t5s_special_ids_and_round_trips(tsv, tmp_path):
    path = tmp_path / "deep" / "spiece.model"
    vocabulary.build(path, tsv, PIECES)
    raw = sentencepiece.SentencePieceProcessor(model_file=str(path))
    assert (raw.pad_id(), raw.eos_id(), raw.unk_id(), raw.bos_id()) == (0, 1, 2, -1)
    assert raw.vocab_size() == PIECES
    tokenizer = SentencePiece(path, extra_ids=0)
    for text in sentences(20, 5):
        ids = tokenizer.encode(text)
        assert not {0, 2} & set(ids)
        assert tokenizer.decode(ids) == text
    assert [p.name for p in path.parent.iterdir()] == ["spiece.model"]


def test_it_reads_both_columns(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{s}\t{s.upper()}\n" for s in sentences(60, 0)))
    vocabulary.build(tmp_path / "spiece.model", str(path), PIECES)
    tokenizer = SentencePiece(tmp_path / "spiece.model", extra_ids=0)
    assert 2 not in tokenizer.encode("ba de BA DE")


@pytest.mark.parametrize("pieces", [5, 4000])
def test_a_size_the_text_does_not_fit_is_named(tsv, tmp_path, pieces):
    with pytest.raises(ValueError, match=rf"data\.pieces: {pieces} does not fit"):
        vocabulary.build(tmp_path / "spiece.model", tsv, pieces)
    assert not (tmp_path / "spiece.model").exists()
