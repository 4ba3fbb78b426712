"""Incremental decoding: complete characters only, and in sum the text of all ids."""

import numpy as np
import pytest
import sentencepiece
from tiny_bpe import metadata

from spec_cascades.tokenizers import PromptPiece, SentencePiece, Stream, from_gguf

TEXTS = ["two grey birds", "né 🐦🐦 日本語 x", "  a\n\n b ", "👩‍👩‍👧 and ü"]


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """SentencePiece models with byte fallback: T5's special ids and Gemma's."""
    folder = tmp_path_factory.mktemp("pieces")
    text = ["the two grey birds look at a small cat and nobody else"] * 3

    def train(name, **special):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(text),
            model_prefix=str(folder / name),
            vocab_size=310,
            byte_fallback=True,
            hard_vocab_limit=False,
            minloglevel=2,
            **special,
        )
        return folder / f"{name}.model"

    gemma = dict(
        pad_id=0, eos_id=1, bos_id=2, unk_id=3, add_dummy_prefix=False, normalization_rule_name="identity"
    )
    turns = dict(user_defined_symbols=["<start_of_turn>", "<end_of_turn>"], remove_extra_whitespaces=False)
    return {
        "t5": train("t5", pad_id=0, eos_id=1, unk_id=2, bos_id=-1),
        "gemma": train("gemma", pad_piece="<pad>", eos_piece="<eos>", bos_piece="<bos>", **gemma, **turns),
    }


@pytest.fixture(params=["bpe", "t5", "gemma"])
def tok(request, pieces):
    if request.param == "bpe":
        return from_gguf(metadata())
    kind = SentencePiece if request.param == "t5" else PromptPiece
    return kind(pieces[request.param])


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("step", [1, 2, 5])
def test_parts_join_to_the_text_and_split_no_character(tok, text, step):
    ids, stream = [i for i in tok.encode(text) if i != tok.eos], Stream(tok)
    parts = [stream.feed(ids[i : i + step]) for i in range(0, len(ids), step)]
    assert not any("\N{REPLACEMENT CHARACTER}" in part for part in parts)
    assert "".join(parts) + stream.end() == tok.decode(ids)
    if step == 1:
        assert any(part == "" for part in parts) or text.isascii(), "nothing was ever held back"


def test_any_ids_join_to_their_text(tok):
    rng = np.random.default_rng(0)
    for _ in range(30):
        ids, stream = rng.integers(3, tok.size, 25).tolist(), Stream(tok)
        parts = [stream.feed([i]) for i in ids]
        assert "".join(parts) + stream.end() == tok.decode(ids)


def test_text_is_not_held_back_longer_than_a_character():
    tok = from_gguf(metadata())
    ids = tok.encode("birds 🦆 x")
    stream, shown = Stream(tok), ""
    for n, i in enumerate(ids, 1):
        shown += stream.feed([i])
        whole = tok.decode(ids[:n])
        assert len(whole.rstrip("\N{REPLACEMENT CHARACTER}")) == len(shown)


def test_nothing_follows_the_end():
    tok = from_gguf(metadata())
    bird = tok.encode("🦆")
    stream = Stream(tok)
    assert stream.feed(tok.encode("two")) == "two"
    assert stream.feed([*tok.encode(" birds"), tok.eos, *tok.encode("more")]) == " birds"
    assert stream.feed(tok.encode("more")) == stream.end() == ""
    cut = Stream(tok)
    assert cut.feed(bird[:1]) == ""
    assert cut.feed([tok.eos]) == tok.decode(bird[:1]), "a broken end is shown as it is"


def test_a_decoder_only_sentencepiece_begins_with_bos_once(pieces):
    tok = PromptPiece(pieces["gemma"], stops=(5,), template="{{ bos_token }}{{ messages[0].content }}<eos>")
    assert (tok.bos, tok.eos, tok.pad, tok.stops) == (2, 1, 0, (1, 5))
    ids = tok.encode("the birds")
    assert ids[0] == 2
    assert tok.eos not in ids
    assert tok.encode("<bos>the birds") == ids
    assert tok.decode(ids) == "the birds"
    chat = tok.encode(tok.chat([{"role": "user", "content": "<start_of_turn>the birds"}]))
    assert chat[:2] == [2, tok.pieces.index("<start_of_turn>")]
    assert chat[-1] == tok.eos, "a control piece in a template is that piece"
    assert tok.encode("") == [2]
    with pytest.raises(ValueError, match="no eos or no bos"):
        PromptPiece(pieces["t5"])
