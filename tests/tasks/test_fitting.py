"""What a prompt that is too long loses, and what it never loses. A word is a token here."""

import random

import pytest

from spec_cascades.checks import ConfigError
from spec_cascades.tasks.base import Parts
from spec_cascades.tasks.fitting import fit

encode = lambda text: text.split()


def words(text):
    return len(text.split())


def parts(shots=0, context=0, question=3):
    return Parts(
        "intro ",
        tuple(f"shot {i} {'s ' * 4}" for i in range(shots)),
        "head ",
        " ".join(f"c{i}" for i in range(context)),
        " tail" + " q" * question,
    )


def test_what_fits_is_left_alone():
    whole = parts(2, 5)
    texts, cut = fit([whole], encode, words(whole.text))
    assert texts == [whole.text]
    assert cut == (words(whole.text), 0, 0, 0, words(whole.text))


def test_shots_go_first_then_the_end_of_the_context_and_never_the_question():
    whole = parts(3, 10)
    longest = words(whole.text)
    for limit in range(6, longest):
        (text,), cut = fit([whole], encode, limit)
        assert words(text) <= limit
        assert text.startswith("intro ")
        assert text.endswith(whole.tail)
        assert cut == (limit, 1, longest - words(text), cut.shots, longest)
        if cut.shots < 3:
            assert whole.context in text
            assert "shot 2" in text
            assert words(text) > limit - 6
        else:
            kept = min(limit - 6, 10)  # a shot has six words: one less than its room may be left
            assert text == f"intro head {' '.join(f'c{i}' for i in range(kept))}{whole.tail}"


def test_a_question_that_does_not_fit_is_an_error_that_names_it():
    with pytest.raises(ConfigError, match=r"example 1: its question alone is 23 tokens, more than the 20"):
        fit([parts(), parts(question=20, context=9)], encode, 20)


@pytest.mark.parametrize("seed", range(20))
def test_the_longest_context_that_fits_is_kept_whatever_its_spaces(seed):
    rng = random.Random(seed)
    context = "".join(rng.choice(["w", "word", " ", "  ", "\n", ". "]) for _ in range(40))
    for limit in range(1, 25):
        (text,), _ = fit([Parts("", (), "", context, "?")], encode, limit)
        assert text == context + "?" if words(context + "?") <= limit else words(text) <= limit
        assert text.endswith("?")
        assert words(text) >= min(limit, words(context + "?")) - 1


def test_counts_add_over_prompts():
    _, cut = fit([parts(context=4), parts(context=10), parts(context=12)], encode, 12)
    assert cut == (12, 2, 4 + 6, 0, 18)
