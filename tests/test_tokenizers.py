"""SentencePiece: text to ids and back, sentinels, and the refusal of a foreign vocabulary."""

import pytest
import sentencepiece

from spec_cascades.tokenizers import SentencePiece, check_compatible

TEXT = "a small model drafts and a large one defers to nobody while the cat looks at two grey birds"
SPECIAL = dict(pad_id=0, eos_id=1, unk_id=2, bos_id=-1)


def train(folder, name, text=TEXT, **special):
    """A SentencePiece model of some 40 pieces."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text, text[::-1]]),
        model_prefix=str(folder / name),
        vocab_size=40,
        hard_vocab_limit=False,
        minloglevel=2,
        **(SPECIAL | special),
    )
    return folder / f"{name}.model"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("spiece")


@pytest.fixture(scope="module")
def path(folder):
    return train(folder, "plain")


@pytest.fixture(scope="module")
def tok(path):
    return SentencePiece(path)


def test_round_trip_ends_with_eos(tok):
    ids = tok.encode("the cat drafts")
    assert ids.count(tok.eos) == 1
    assert ids[-1] == tok.eos == 1
    assert tok.decode(ids) == "the cat drafts"


def test_empty_text_is_eos_alone(tok):
    assert tok.encode("") == [tok.eos]
    assert tok.decode([tok.eos]) == tok.decode([]) == ""


def test_decoding_stops_at_eos_and_drops_what_is_no_text(tok):
    ids = tok.encode("the cat")[:-1]
    noisy = [tok.pad, *ids[:2], tok.size, -1, 10**6, tok.pad, *ids[2:], tok.eos, *ids]
    assert tok.decode(noisy) == "the cat"


def test_sentinels_count_down_from_the_last_id(tok, path):
    pieces = SentencePiece(path, extra_ids=0).size
    assert tok.size == pieces + 100
    assert tok.decode([tok.size - 1]) == "<extra_id_0>"
    assert tok.decode([pieces]) == "<extra_id_99>"
    ids = tok.encode("the cat")[:-1]
    assert tok.decode([tok.size - 1, *ids, tok.size - 2]) == "<extra_id_0> the cat <extra_id_1>"


def test_the_fingerprint_is_of_pieces_and_special_ids(tok, path, folder):
    assert SentencePiece(path).fingerprint == tok.fingerprint
    assert SentencePiece(path, extra_ids=0).fingerprint != tok.fingerprint
    other = train(folder, "other", TEXT.replace("cat", "dog"))
    assert SentencePiece(other).fingerprint != tok.fingerprint


def test_equal_vocabularies_are_compatible(tok, path):
    check_compatible(tok, SentencePiece(path))


def test_the_first_differing_piece_is_named(tok, folder):
    other = SentencePiece(train(folder, "upper", TEXT.upper()))
    first = next(i for i in range(tok.size) if tok.pieces[i] != other.pieces[i])
    with pytest.raises(ValueError, match=f"id {first} is ") as caught:
        check_compatible(tok, other)
    assert repr(tok.pieces[first]) in str(caught.value)
    assert repr(other.pieces[first]) in str(caught.value)


def test_a_longer_vocabulary_is_another_one(tok, path):
    with pytest.raises(ValueError, match="'<extra_id_99>' to the drafter and None"):
        check_compatible(tok, SentencePiece(path, extra_ids=0))


def test_equal_pieces_with_other_special_ids_are_refused(tok, path):
    other = SentencePiece(path)
    other.fingerprint = "another eos"
    with pytest.raises(ValueError, match="special ids"):
        check_compatible(tok, other)


def test_bad_files_are_named(tmp_path, folder, path):
    with pytest.raises(ValueError, match="no SentencePiece model at"):
        SentencePiece(tmp_path / "absent.model")
    (tmp_path / "broken.model").write_bytes(b"not a model")
    with pytest.raises(ValueError, match="is not a SentencePiece model"):
        SentencePiece(tmp_path / "broken.model")
    with pytest.raises(ValueError, match="no eos or no pad"):
        SentencePiece(train(folder, "padless", pad_id=-1))
    with pytest.raises(ValueError, match="extra_ids -1"):
        SentencePiece(path, extra_ids=-1)
