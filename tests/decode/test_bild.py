"""BiLD against the published algorithm, written in plain Python on the toy pair's tables."""

import jax
import jax.numpy as jnp
import laws
import numpy as np
import pytest
from laws import Setting

from spec_cascades.decode.bild import FALLBACK, bild, check
from spec_cascades.decode.lengths import Confident
from spec_cascades.decode.loop import generate
from spec_cascades.decode.speculative import Speculative
from spec_cascades.models import markov
from spec_cascades.rules import RULES

V, B, N = 12, 24, 18
LM = markov.Markov(V)


def tables():
    target = markov.init(jax.random.key(5), V, 1.1)
    return {"target": target, "drafter": 0.5 * target + markov.init(jax.random.key(6), V, 1.1)}


def law(table, text):
    """The law of the next token: softmax of the scores of the last three."""
    a, b, c = [0, 0, 0, *text][-3:]
    x = np.asarray(table[0][c] + table[1][b] + table[2][a], np.float64)
    e = np.exp(x - x.max())
    return e / e.sum()


def published(pair, prompt, fallback, rollback):
    """N tokens of the algorithm, and how often it rolled back and fell back."""
    small, large = (lambda text, t=pair[name]: law(t, text) for name in ("drafter", "target"))
    text, checked, rolled, fell = list(prompt), len(prompt), 0, 0
    end = len(prompt) + N
    while True:
        while len(text) < end and small(text).max() >= fallback:
            text.append(int(small(text).argmax()))
        back = [i for i in range(checked, len(text)) if -np.log(large(text[:i])[text[i]]) > rollback]
        if back:
            rolled += 1
            text = text[: back[0]]
        elif len(text) >= end:
            return text[len(prompt) :], rolled, fell
        else:
            fell += 1
        text.append(int(large(text).argmax()))
        checked = len(text)


PROMPTS = np.random.default_rng(2).integers(0, V, (B, 3))
ROLLBACKS = [0.5, 1.5, 3.0, 6.0]


def texts(method, params):
    """[rollbacks, B, N] by a method whose alpha is the rollback threshold."""
    settings = [Setting(alpha, temperature=0.0) for alpha in ROLLBACKS]
    request = laws.request(settings, B, max_new=N)
    rows = jnp.asarray(np.tile(PROMPTS, (len(ROLLBACKS), 1)), jnp.int32)
    got = generate(method, params, rows, jnp.full(len(rows), 3), request, N)
    return np.asarray(got.tokens).reshape(len(ROLLBACKS), B, N)


@pytest.mark.parametrize(("gamma", "fallback"), [(1, 0.3), (4, 0.3), (4, FALLBACK)])
def test_the_text_is_that_of_the_published_algorithm(gamma, fallback):
    params = tables()
    pair = jax.tree.map(np.asarray, params)
    got = texts(bild(LM, LM, gamma, fallback), params)
    for rollback, rows in zip(ROLLBACKS, got, strict=True):
        due, rolled, fell = zip(*(published(pair, [*p], fallback, rollback) for p in PROMPTS), strict=True)
        np.testing.assert_array_equal(rows, due)
        assert sum(fell) > 0
        assert sum(rolled) > 0 or rollback > 3
    assert len({rows.tobytes() for rows in got}) == len(ROLLBACKS), "every threshold shows in the text"


@pytest.mark.slow
def test_the_rule_without_the_fallback_writes_another_text():
    """BiLD* with lengths cut where the drafter is unsure keeps its token there; BiLD takes the target's."""
    params = tables()
    other = texts(Speculative(LM, LM, RULES["bild"], 4, Confident(0.3)), params)
    assert (other != texts(bild(LM, LM, 4, 0.3), params)).any()


def test_equal_settings_are_one_method_and_compile_once():
    assert bild(LM, LM, 3) == bild(LM, LM, 3)
    assert hash(bild(LM, LM, 3)) == hash(bild(LM, LM, 3))
    assert bild(LM, LM, 3) != bild(LM, LM, 3, 0.5)
    assert bild(LM, LM, 3).lengths.threshold == FALLBACK
    with pytest.raises(ValueError, match=r"1\.2"):
        bild(LM, LM, 3, 1.2)


def test_a_sampled_row_is_refused_by_its_temperature():
    check([0.0, 0.0])
    with pytest.raises(ValueError, match=r"temperature 0\.7 of row 1: BiLD"):
        check([0.0, 0.7, 0.9])
