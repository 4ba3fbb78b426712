"""ROUGE against a plain computation of its definition."""

import random
import re
from collections import Counter

import pytest

from spec_cascades.metrics import rouge

pytest.importorskip("rouge_score", reason="ROUGE needs the extra [tasks]")

SENTENCES = ["Police arrest man", "the storm, which hit Wales!", "Rain fell 22 times", "a man", "over Wales."]


def words(text):
    return re.findall(r"[a-z0-9]+", text.lower())


def f_measure(same, ours, theirs):
    return 200 * same / (ours + theirs) if same else 0.0


def by_ngrams(answer, reference, n):
    grams = lambda text: Counter(zip(*(words(text)[i:] for i in range(n)), strict=False))
    a, r = grams(answer), grams(reference)
    return f_measure(sum((a & r).values()), sum(a.values()), sum(r.values()))


def subsequence(a, b):
    """Indices of b in one longest common subsequence, by the usual table, walked back from the end."""
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1][j + 1] = table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


@pytest.mark.parametrize("seed", range(40))
def test_n_grams(seed):
    rng = random.Random(seed)
    answer, reference = (" ".join(rng.choices(SENTENCES, k=rng.randrange(1, 4))) for _ in range(2))
    found = rouge.scores(answer, reference)
    assert found["rouge1"] == pytest.approx(by_ngrams(answer, reference, 1))
    assert found["rouge2"] == pytest.approx(by_ngrams(answer, reference, 2))


def test_lsum_of_single_sentences_is_the_longest_common_subsequence():
    answer, reference = "the man that police arrest", "police arrest the man"
    expected = f_measure(subsequence(words(answer), words(reference)), 5, 4)
    assert rouge.scores(answer, reference)["rougeLsum"] == pytest.approx(expected)


def test_lsum_takes_lines_and_spaced_points_as_sentences():
    reference = "rain fell .\nthe man ran ."
    lines, spaced, swapped = (
        "the man ran .\nrain fell .",
        "the man ran . rain fell .",
        "the man ran rain fell",
    )
    assert rouge.scores(lines, reference)["rougeLsum"] == pytest.approx(100)
    assert rouge.scores(spaced, reference)["rougeLsum"] == pytest.approx(100)
    assert rouge.scores(swapped, reference.replace("\n", " ").replace(" .", ""))["rougeLsum"] < 100


def test_ends():
    assert rouge.scores("Rain fell.", "rain fell") == {name: pytest.approx(100) for name in rouge.NAMES}
    assert rouge.scores("", "rain fell") == dict.fromkeys(rouge.NAMES, 0)
    assert "rouge-score 0." in rouge.signature()
