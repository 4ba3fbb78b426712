"""Texts to rows: nothing is lost or misplaced, and bad files are named."""

import json

import numpy as np
import pytest

from spec_cascades.config import ConfigError
from spec_cascades.distill import corpus
from spec_cascades.distill.corpus import Example
from spec_cascades.distill.settings import Source


def test_rows_hold_every_example_once_and_weigh_its_answer():
    items = [Example([10 + i, 1, 2], [3, 4, 5 + i][: 1 + i % 3]) for i in range(7)]
    rows = corpus.pack(items, 11, 0)
    found = []
    for tokens, segments, weights in zip(*rows, strict=True):
        for number in range(1, segments.max() + 1):
            at = np.flatnonzero(segments == number)
            assert (np.diff(at) == 1).all()
            prompt, answer = items[tokens[at[0]] - 10]
            assert tokens[at].tolist() == prompt + answer
            expected = [0] * (len(prompt) - 1) + [1] * len(answer) + [0]
            assert weights[at].tolist() == expected
            found.append(tokens[at[0]])
        assert not weights[segments == 0].any()
        assert not tokens[segments == 0].any()
    assert sorted(found) == [item.prompt[0] for item in items]


def test_a_long_example_is_cut_to_one_row():
    rows = corpus.pack([Example([1, 2, 3], list(range(4, 30)))], 8, 0)
    assert rows.tokens.tolist() == [[1, 2, 3, 4, 5, 6, 7, 8]]
    assert rows.weights.tolist() == [[0, 0, 1, 1, 1, 1, 1, 0]]
    both = [Example(list(range(1, 20)), [30]), Example([1], [2])]
    assert corpus.pack(both, 8, 0).tokens.tolist() == [[1, 2, 0, 0, 0, 0, 0, 0]]


def test_a_source_is_read_in_turns(texts):
    every = corpus.read(Source(str(texts / "asked.jsonl"), "turns"))
    assert len(every) == 6
    assert all(text.answer is None and " more" not in text.prompt for text in every)
    some = [corpus.read(Source(str(texts / "asked.jsonl"), "turns", every=3, offset=i)) for i in range(3)]
    assert [text for pair in zip(*some, strict=True) for text in pair] == every
    limited = corpus.read(Source(str(texts / "answered.jsonl"), "question", "answer", limit=4))
    assert len(limited) == 4
    assert all(text.answer for text in limited)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"path": "nowhere.jsonl"}, ["nowhere.jsonl"]),
        ({"prompt": "turn"}, ["asked.jsonl:1", "'turn'", "turns"]),
        ({"every": 99, "offset": 98}, ["no line left", "every 99"]),
    ],
)
def test_bad_sources_are_named(texts, change, words):
    given = {"path": str(texts / "asked.jsonl"), "prompt": "turns"} | change
    with pytest.raises(ConfigError) as error:
        corpus.read(Source(**given))
    for word in words:
        assert word in str(error.value)


def test_the_first_rows_are_kept():
    items = [Example([1, 2], [3, 4, 5 + i]) for i in range(9)]
    whole, some = corpus.pack(items, 10, 3), corpus.pack(items, 10, 3, most=2)
    assert len(whole.tokens) == 5
    for a, b in zip(whole, some, strict=True):
        assert a[:2].tolist() == b.tolist()


def test_a_prompt_may_weigh_too():
    rows = corpus.pack([Example([5, 6, 7], [8, 9])], 8, 0, prompt_weight=0.25)
    assert rows.weights.tolist() == [[0.25, 0.25, 1, 1, 0, 0, 0, 0]]


@pytest.mark.parametrize("character", ["\u2028", "\x85", "\x0b"])
def test_only_a_newline_ends_a_line(tmp_path, character):
    path = tmp_path / "odd.jsonl"
    rows = [{"q": f"one{character}two"}, {"q": "three"}]
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n", "utf-8")
    assert [text.prompt for text in corpus.read(Source(str(path), "q"))] == [f"one{character}two", "three"]


def test_nothing_to_pack_is_an_error():
    for items in ([], [Example(list(range(8)), [30])]):
        with pytest.raises(ValueError, match="no example with a prompt of fewer than 8"):
            corpus.pack(items, 8, 0)
