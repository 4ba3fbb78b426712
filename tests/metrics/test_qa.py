"""Our EM and F1 against the published scripts' rules, written anew here; and the cases people get wrong."""

import json
import random
import re
import string
from collections import Counter

import pytest

from spec_cascades.metrics import qa

WORDS = [
    "The",
    "a",
    "An",
    "Denver",
    "Broncos",
    "U.S.",
    "1,000",
    "o'clock",
    "10th",
    "—",
    "«é»",
    "état",
    "ibid.",
]


# The rules of evaluate-v2.0.py: lower, delete ASCII punctuation, articles to spaces, spaces to one.
def squad_words(text):
    kept = "".join(c for c in text.lower() if c not in set(string.punctuation))
    return re.sub(r"\b(a|an|the)\b", " ", kept).split()


# Those of triviaqa_evaluation.py: underscores and punctuation to spaces, some quotes too.
def trivia_words(text):
    spaced = "".join(
        " " if c in set(string.punctuation) | set("‘’´`") else c for c in text.replace("_", " ").lower()
    )
    return re.sub(r"\b(a|an|the)\b", " ", spaced).split()


def f1(answer, reference, empty):
    if not answer or not reference:
        return float(answer == reference) if empty else 0.0
    same = sum((Counter(answer) & Counter(reference)).values())
    if not same:
        return 0.0
    precision, recall = same / len(answer), same / len(reference)
    return 2 * precision * recall / (precision + recall)


def official_squad(answer, references):
    golds = [g for g in references if squad_words(g)] or [""]
    em = max(squad_words(answer) == squad_words(g) for g in golds)
    return 100.0 * em, 100 * max(f1(squad_words(answer), squad_words(g), True) for g in golds)


def official_trivia(answer, references):
    em = max(trivia_words(answer) == trivia_words(g) for g in references)
    return 100.0 * em, 100 * max(f1(trivia_words(answer), trivia_words(g), False) for g in references)


def perturbed(text, rng):
    """The text with case, articles, punctuation, words or nothing changed."""
    words = text.split()
    change = rng.randrange(7)
    if change == 0:
        words.insert(rng.randrange(len(words) + 1), rng.choice(WORDS))
    elif change == 1 and words:
        words.pop(rng.randrange(len(words)))
    elif change == 2:
        words = [w.upper() for w in words]
    elif change == 3:
        rng.shuffle(words)
    elif change == 4:
        words = [w + rng.choice(".,;'’") for w in words]
    elif change == 5:
        return "_".join(words)
    return " ".join(words)


def references(rng, least):
    return [" ".join(rng.choices(WORDS, k=rng.randrange(4))) for _ in range(rng.randrange(least, 4))]


def test_squad_agrees_with_the_published_rules_on_perturbed_answers():
    rng, seen = random.Random(0), set()
    for _ in range(4000):
        golds = references(rng, 0)
        answer = perturbed(rng.choice([*golds, ""]), rng)
        ours = qa.squad(answer, golds)
        assert ours == pytest.approx(official_squad(answer, golds)), (answer, golds)
        seen.add((ours.em, ours.f1 in (0, 100)))
    assert seen == {(0, True), (0, False), (100, True)}


def test_trivia_agrees_with_the_published_rules_on_perturbed_answers():
    rng, seen = random.Random(1), set()
    for _ in range(4000):
        golds = [g for g in references(rng, 1) if trivia_words(g)] or ["Denver"]
        answer = perturbed(rng.choice(golds), rng)
        ours = qa.trivia(answer, golds)
        assert ours == pytest.approx(official_trivia(answer, golds)), (answer, golds)
        seen.add((ours.em, ours.f1 in (0, 100)))
    assert seen == {(0, True), (0, False), (100, True)}


def test_no_answer():
    assert qa.squad("", []) == qa.squad("the.", []) == qa.squad("", ["the"]) == (100, 100)
    assert qa.squad("Denver", []) == (0, 0)
    assert qa.squad("", ["Denver"]) == (0, 0)


def test_punctuation_is_deleted_by_one_and_a_space_to_the_other():
    assert qa.squad("Jean Claude", ["Jean-Claude"]).em == 0
    assert qa.trivia("Jean Claude", ["Jean-Claude"]).em == 100
    assert qa.squad("JeanClaude", ["Jean-Claude"]).em == 100


def test_f1_counts_a_repeated_word_as_often_as_both_have_it():
    assert qa.squad("new new york", ["new york"]).f1 == pytest.approx(80)
    assert qa.squad("York, New", ["new york"]) == (0, 100)


def test_a_question_without_aliases_is_refused():
    with pytest.raises(ValueError, match="alias"):
        qa.trivia("x", [])
    with pytest.raises(ValueError, match="reference"):
        qa.open_domain("x", [])


def test_open_questions_know_no_missing_answer():
    assert qa.open_domain("A+", ["A+", "AB+"]).em == qa.open_domain("", ["---"]).em == 100
    assert qa.squad("A+", ["A+", "AB+"]).em == 0
    assert qa.open_domain("the AB", ["A+", "AB+"]) == qa.squad("the AB", ["AB+"]) == (100, 100)


def test_references_of_the_real_files_score_100(data):
    nq = [json.loads(line)["answer"] for line in (data / "nq_open_dev.jsonl").read_text().splitlines()]
    web = [row["answers"] for row in json.loads((data / "webquestions_test.json").read_text())]
    assert len(nq) == 3610
    assert len(web) == 2032
    for golds in nq + web:
        assert all(qa.open_domain(gold, golds) == (100, 100) for gold in golds)
        assert all(qa.squad(gold, golds).f1 == 100 for gold in golds if qa.normalised(gold))
        assert qa.trivia(golds[0], golds).em == 100
