"""Who wrote each token, from counts made by hand; no model."""

from typing import NamedTuple

import pytest
from tiny_bpe import metadata

from spec_cascades.tokenizers import from_gguf
from spec_cascades.trace.tokens import (
    BONUS,
    DRAFT,
    RESIDUAL,
    TARGET,
    Block,
    alone,
    authors,
    blocks,
    texts,
)


class Snapshot(NamedTuple):
    tokens: list[int]
    judged: list[int]
    accepted: list[int]


def snapshots(*given):
    """From (tokens so far, judged, accepted)."""
    return [Snapshot(list(range(n)), judged, accepted) for n, judged, accepted in given]


def written(*given):
    return [authors(block, BONUS, RESIDUAL) for block in blocks(snapshots(*given))]


def test_every_way_a_block_of_three_drafts_ends():
    assert written(
        (4, [1, 1, 1], [1, 1, 1]),  # all stand, and a bonus behind them
        (6, [2, 2, 1], [2, 1, 1]),  # the second is rejected
        (7, [3, 2, 1], [2, 1, 1]),  # the first is rejected
        (10, [4, 3, 2], [3, 2, 1]),  # the third is rejected
        (11, [4, 3, 2], [3, 2, 1]),  # nothing was drafted
    ) == [[DRAFT] * 3 + [BONUS], [DRAFT, RESIDUAL], [RESIDUAL], [DRAFT] * 2 + [RESIDUAL], [BONUS]]


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (
            (6, [2, 2, 1], [2, 2, 1]),
            [DRAFT, DRAFT],
        ),  # the second draft is the end symbol, or the limit is there
        ((5, [2, 1, 1], [2, 1, 1]), [DRAFT]),  # the first is, or a stop string is complete with it
        ((5, [2, 1, 1], [1, 1, 1]), [RESIDUAL]),  # the end symbol in place of the first draft
        ((8, [2, 2, 2], [2, 2, 2]), [DRAFT] * 3 + [BONUS]),  # the end symbol is the bonus
        ((7, [2, 2, 2], [2, 2, 2]), [DRAFT] * 3),  # the limit behind the last draft: no bonus
    ],
)
def test_what_an_end_cuts_off_has_no_author(last, expected):
    assert written((4, [1, 1, 1], [1, 1, 1]), last)[1] == expected


def test_models_alone_and_the_cascade_of_one_token_a_step():
    alone_blocks = blocks(snapshots((1, [], []), (2, [], [])))
    assert [authors(b, TARGET, RESIDUAL) for b in alone_blocks] == [[TARGET], [TARGET]]
    stepped = blocks(snapshots((1, [1], [1]), (2, [2], [1])))
    assert [authors(b, TARGET, TARGET) for b in stepped] == [[DRAFT], [TARGET]]
    assert stepped == [Block(0, 1, 1, 1), Block(1, 1, 1, 0)]


@pytest.mark.parametrize(
    "given",
    [
        [(7, [2, 2, 1], [2, 1, 1])],  # two blocks in one: seven tokens of three accepted drafts
        [(4, [1, 1, 1], [1, 1, 1]), (4, [1, 1, 1], [1, 1, 1])],  # no token
        [(3, [1, 1, 1], [1, 0, 0])],  # a draft behind a rejected one
        [(2, [1, 1, 1], [1, 1, 1])],  # more drafts than tokens
    ],
)
def test_snapshots_that_miss_a_block_are_refused(given):
    with pytest.raises(ValueError, match="is no block"):
        blocks(snapshots(*given))


def test_texts_join_and_split_no_character():
    tok = from_gguf(metadata())
    ids = [*tok.encode("né 語"), tok.eos]
    parts = texts(tok, ids)
    assert "".join(parts) == tok.decode(ids) == "né 語"
    assert len(parts) == len(ids) > len("né 語") + 1, "no character took two ids: nothing was tested"
    assert "" in parts[:-1]
    assert parts[-1] == ""
    assert texts(tok, []) == []
    cut = ids[: -len("語".encode())]
    assert "".join(texts(tok, cut)) == tok.decode(cut), "what the end holds back is shown, whole or not"


def test_a_token_by_itself_has_a_name_where_it_has_no_text():
    tok = from_gguf(metadata())
    half = tok.encode("語")[0]
    assert alone(tok, half) == tok.pieces[half]
    assert alone(tok, tok.eos) == tok.pieces[tok.eos]
    assert alone(tok, tok.encode("n")[0]) == "n"
    blanks = [alone(tok, i) for i in range(len(tok.pieces)) if (text := tok.decode([i])) and not text.strip()]
    assert blanks, "the vocabulary has no blank: nothing was tested"
    assert all(text.strip() and "Ġ" not in text and "Ċ" not in text for text in blanks)
