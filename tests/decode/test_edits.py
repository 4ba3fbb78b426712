"""A row's changes to the scores: both models see them, the history grows with the draft, the law is exact."""

import itertools

import jax.numpy as jnp
import laws
import numpy as np
import pytest
from laws import PROMPT, VOCAB, Setting

from spec_cascades import probs
from spec_cascades.decode.autoregressive import Autoregressive
from spec_cascades.decode.loop import generate
from spec_cascades.decode.speculative import Speculative
from spec_cascades.probs import Edits, Pair, raw
from spec_cascades.rules import RULES

ROWS = 20_000
BIAS = (0.0, 0.7, -0.4, -np.inf, 0.2)
PENALTY = 1.8


def edits(rows, penalty=PENALTY, bias=BIAS, seen=(1,)):
    held = np.isin(np.arange(VOCAB), seen)
    return Edits(
        jnp.tile(jnp.asarray(bias, jnp.float32), (rows, 1)),
        jnp.full(rows, penalty, jnp.float32),
        jnp.tile(jnp.asarray(held), (rows, 1)),
    )


def by_hand(logits, seen):
    """The published penalty, token by token, then the bias."""
    out = np.array(logits, np.float64)
    for v in seen:
        out[v] = out[v] / PENALTY if out[v] > 0 else out[v] * PENALTY
    return out + BIAS


def joint(rule, setting, seen):
    """Law of the first three tokens, all paths enumerated with their own history."""
    tables = {name: np.asarray(t, np.float64) for name, t in laws.tables().items()}
    sampling = laws.request([setting], 1).sampling
    law = np.zeros((VOCAB,) * 3)

    def pi(text, seen):
        a, b, c = text[-3:]
        p, q = (
            jnp.asarray(by_hand(t[0][c] + t[1][b] + t[2][a], seen)[None], jnp.float32)
            for t in (tables["target"], tables["drafter"])
        )
        pair = Pair(laws.FILTER(q, sampling), laws.FILTER(p, sampling), raw(q), raw(p))
        return np.asarray(laws.pi_of(rule, pair, setting.alpha), np.float64)[0]

    def along(text, seen, mass):
        if len(text) == len(PROMPT) + 3:
            law[text[-3:]] += mass
            return
        for v, share in enumerate(pi(text, seen)):
            if share > 0:
                along((*text, v), seen | {v}, mass * share)

    along(PROMPT, frozenset(seen), 1.0)
    return law


@pytest.mark.parametrize("name", ["lossless", "v3", "opt"])
def test_the_law_is_pi_of_the_edited_models(name):
    setting = Setting(RULES[name].default, temperature=0.8)
    request = laws.request([setting], ROWS, max_new=3)._replace(edits=edits(ROWS))
    prompts = jnp.broadcast_to(jnp.asarray(PROMPT, jnp.int32), (ROWS, 3))
    method = Speculative(laws.LM, laws.LM, RULES[name], 2)
    got = np.asarray(generate(method, laws.tables(), prompts, jnp.full(ROWS, 3), request, 3).tokens)
    expected = joint(RULES[name], setting, (1,))
    assert laws.follows(laws.triples(got, 3), expected) > laws.FLOOR
    forgetful = joint(RULES[name], setting, (1, 2, 4))
    assert (
        laws.follows(laws.triples(got, 3), forgetful) < laws.FLOOR
        or np.abs(forgetful - expected).max() < 1e-3
    )


def test_rows_with_and_without_edits_share_a_batch():
    plain = Edits(jnp.zeros((2, VOCAB)), jnp.ones(2), jnp.zeros((2, VOCAB), bool))
    both = Edits(*(jnp.concatenate(pair) for pair in zip(edits(2), plain, strict=True)))
    setting, prompts = Setting(0.4, temperature=0.9), jnp.broadcast_to(jnp.asarray(PROMPT), (4, 3))
    method = Speculative(laws.LM, laws.LM, RULES["v3"], 3)
    run = lambda request, n: np.asarray(
        generate(method, laws.tables(), prompts[:n], jnp.full(n, 3), request, 12).tokens
    )
    ask = lambda seeds, given: laws.request([setting], len(seeds), seeds=seeds)._replace(edits=given)
    together = run(ask([5, 6, 5, 6], both), 4)
    np.testing.assert_array_equal(together[:2], run(ask([5, 6], edits(2)), 2))
    np.testing.assert_array_equal(together[2:], run(ask([5, 6], None), 2))
    assert not (together[:2] == 3).any(), "a forbidden id"


@pytest.mark.parametrize("gamma", [1, 2, 4])
def test_greedy_speculation_agrees_with_the_target_under_a_penalty(gamma):
    b, n = 25, 12
    prompts = jnp.asarray([[1, *pair] for pair in itertools.product(range(VOCAB), repeat=2)], jnp.int32)
    request = laws.request([Setting(temperature=0.0)], b, max_new=n)._replace(edits=edits(b))
    texts = [
        np.asarray(generate(method, laws.tables(), prompts, jnp.full(b, 3), request, n).tokens)
        for method in (Autoregressive(laws.LM), Speculative(laws.LM, laws.LM, RULES["lossless"], gamma))
    ]
    np.testing.assert_array_equal(*texts)


def test_what_has_been_seen():
    seen = jnp.asarray([[True, False, False, False], [False, False, False, True]])
    tokens = jnp.asarray([[1, 2], [0, 3]])
    along = np.asarray(probs.used_along(seen, tokens))
    assert along[0].tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]]
    assert along[1].tolist() == [[0, 0, 0, 1], [1, 0, 0, 1], [1, 0, 0, 1]]
    used = np.asarray(probs.used(seen, tokens, jnp.asarray([1, 0])))
    assert used.tolist() == [[1, 1, 0, 0], [0, 0, 0, 1]]
