"""Extraction of the final number, by hand and on every reference of the test set."""

import json
import random
import re
from decimal import Decimal

import pytest

from spec_cascades.metrics import gsm8k


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("#### 18", "18"),
        ("She has 3 + 4 = 7 eggs.\n#### 7", "7"),
        ("#### 1,234,567", "1234567"),
        ("#### $1,234.50", "1234.50"),
        ("#### -3", "-3"),
        ("#### -$3", "-3"),
        ("#### $-3", "-3"),
        ("It is −4 degrees", "-4"),
        ("#### 18 dollars for 2 eggs", "18"),
        ("####18\n\nQ: There are 5 birds", "18"),
        ("#### 7\n#### 8", "7"),
        ("The answer is 18.", "18"),
        ("So 5% of them, 12 people, leave", "12"),
        ("16 - 3 - 4 = 9", "9"),
        ("from 10-20", "20"),
        ("16 - 3", "3"),
        ("He pays $.50", "0.50"),
        ("She ran 3.25km", "3.25"),
        ("= 1,2", "2"),
        ("12,3456", "3456"),
        ("#### so it is 12 #### ?", "12"),
        ("We get 5. #### done", "5"),
    ],
)
def test_the_number_of_a_text(text, value):
    assert gsm8k.number(text) == Decimal(value)


@pytest.mark.parametrize("text", ["", "none", "####", "a,b.", "- $"])
def test_a_text_without_a_number(text):
    assert gsm8k.number(text) is None
    assert gsm8k.correct(text, "#### 0") == 0


def test_equal_numbers_in_any_writing():
    for writing in ("#### 1000", "#### 1,000", "$1,000.00", "it is 1000.0 now", "#### 1,000 dollars"):
        assert gsm8k.correct(writing, "#### 1,000") == 100
    for writing in ("#### 1001", "#### -1,000", "1000.01", "1,000 or 2"):
        assert gsm8k.correct(writing, "#### 1,000") == 0
    with pytest.raises(ValueError, match="without a number"):
        gsm8k.correct("1", "a b")


# The published grader: what follows "#### ", commas dropped, compared as text.
def official(text):
    found = re.search(r"#### (-?[0-9.,]+)", text)
    return found.group(1).strip().replace(",", "") if found else None


def answers(data):
    return [json.loads(line)["answer"] for line in (data / "gsm8k_test.jsonl").read_text().splitlines()]


def test_every_reference_of_the_test_set(data):
    texts = answers(data)
    assert len(texts) == 1319
    for text in texts:
        assert gsm8k.number(text) == Decimal(official(text))
        # Without the mark the last number of the text is the answer's too, in some other writing.
        assert gsm8k.number(text.replace("#### ", "The answer is ") + ".") == Decimal(official(text))


def test_agreement_with_the_published_grader_on_perturbed_answers(data):
    rng, verdicts = random.Random(0), []
    for text in answers(data):
        body, _, value = text.rpartition("#### ")
        plain = value.replace(",", "")
        changed = rng.choice(
            [value, plain, str(int(plain) + rng.choice([-1, 1, 10])), "-" + plain.lstrip("-"), plain + "7"]
        )
        answer = f"{body}#### {changed}{rng.choice(['', chr(10), ' dollars', chr(10) * 2 + 'Q: 3 more?'])}"
        assert gsm8k.correct(answer, text) == 100 * (official(answer) == official(text)), answer
        verdicts.append(official(answer) == official(text))
    assert 400 < sum(verdicts) < 900
