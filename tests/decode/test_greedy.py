"""Temperature 0: what each rule accepts, and that no block size shows in the text."""

import jax
import jax.numpy as jnp
import laws
import numpy as np
import pytest
import tiny
from laws import Setting

from spec_cascades.decode.autoregressive import Autoregressive
from spec_cascades.decode.loop import generate
from spec_cascades.decode.speculative import Speculative
from spec_cascades.probs import Pair, raw
from spec_cascades.rules import RULES, Deferral
from spec_cascades.verify import Noise, verify

N, V = 600, 6


def one_step(name, alpha, seed=0):
    """A draft a = argmax q put before the verifier at temperature 0: (pair, a, b, emitted, accepted)."""
    rng = np.random.default_rng(seed)
    p = rng.normal(size=(N, 1, V))
    q = 0.6 * p + rng.normal(size=(N, 1, V)) * 0.6
    p, q = (jnp.asarray(np.repeat(x, 2, axis=1), jnp.float32) for x in (p, q))
    a, b = jnp.argmax(q, -1), jnp.argmax(p, -1)
    pair = Pair(jnp.eye(V)[a], jnp.eye(V)[b], raw(q), raw(p))
    noise = Noise(*jax.random.uniform(jax.random.key(seed), (3, N, 2)))
    rule = RULES[name]
    got = verify(noise, a, jnp.ones(N, jnp.int32), pair, rule, jnp.full(N, alpha, jnp.float32))
    first = jax.tree.map(lambda x: x[:, 0], pair)
    return first, np.asarray(a[:, 0]), np.asarray(b[:, 0]), np.asarray(got.tokens), np.asarray(got.accepted)


@pytest.mark.parametrize("scale", [0.5, 1.0, 1.5])
@pytest.mark.parametrize("name", sorted(n for n, r in RULES.items() if isinstance(r, Deferral)))
def test_a_draft_stands_iff_it_is_kept_or_the_target_agrees(name, scale):
    rule = RULES[name]
    first, a, b, tokens, accepted = one_step(name, rule.default * scale)
    r = np.asarray(rule.mask(first, jnp.full((N, 1), rule.default * scale, jnp.float32)))
    deferred = r[:, 0] if r.shape[-1] == 1 else r[np.arange(N), a]
    np.testing.assert_array_equal(accepted, ~deferred | (a == b))
    np.testing.assert_array_equal(tokens[:, 0], np.where(~deferred | (a == b), a, b))
    if name not in ("lossless", "drafter_only") and scale == 1:
        assert 0 < deferred.mean() < 1


def test_greedy_lossy_does_not_depend_on_alpha():
    at = [one_step("lossy", alpha)[3:] for alpha in (0.0, 0.3, 0.9)]
    for tokens, accepted in at[1:]:
        np.testing.assert_array_equal(tokens[:, 0], at[0][0][:, 0])
        np.testing.assert_array_equal(accepted, at[0][1])


@pytest.mark.parametrize("alpha", [0.0, 0.2, 0.6])
def test_greedy_v3_is_leniency(alpha):
    first, a, _, _, accepted = one_step("v3", alpha)
    p = np.asarray(first.p_raw)
    lenient = p[np.arange(N), a] >= np.float32(1 - alpha) * p.max(-1)
    np.testing.assert_array_equal(accepted, lenient)


@pytest.mark.parametrize("seed", range(3))
def test_ties_go_to_the_lowest_id_on_both_sides(seed):
    """Equal logits everywhere: target alone, drafter alone and every block agree on id 0."""
    flat = jax.tree.map(jnp.zeros_like, laws.tables())
    prompts, lengths = jnp.asarray([[1, 3, 2]]), jnp.asarray([3])
    request = laws.request([Setting(temperature=0.0)], 1, seeds=[seed])
    for method in (Autoregressive(laws.LM), Speculative(laws.LM, laws.LM, RULES["lossless"], 2)):
        got = generate(method, flat, prompts, lengths, request, 6)
        np.testing.assert_array_equal(got.tokens, [[0] * 6])
    assert int(got.ledger.accepted.sum()) == int(got.ledger.judged.sum()) > 0


def greedy(family, method, n=24):
    model = tiny.FAMILIES[family]
    alpha = method.rule.default if isinstance(method, Speculative) else 0.0
    request = laws.request([Setting(alpha, temperature=0.0)], len(model.lengths))
    return generate(method, model.params, model.prompts, model.lengths, request, n)


SLOW = pytest.mark.slow


@pytest.mark.parametrize("gamma", [1, pytest.param(2, marks=SLOW), 4, pytest.param(5, marks=SLOW)])
@pytest.mark.parametrize("family", sorted(tiny.FAMILIES))
def test_lossless_greedy_is_the_target_token_for_token(family, gamma):
    model = tiny.FAMILIES[family]
    alone = greedy(family, Autoregressive(model.target))
    got = greedy(family, Speculative(model.drafter, model.target, RULES["lossless"], gamma))
    np.testing.assert_array_equal(got.tokens, alone.tokens)
    accepted, judged = np.asarray(got.ledger.accepted).sum(), np.asarray(got.ledger.judged).sum()
    assert 0 < accepted < judged, "a pair that always or never agrees proves nothing"


@pytest.mark.parametrize("name", ["v3", pytest.param("chow", marks=SLOW), pytest.param("lossy", marks=SLOW)])
@pytest.mark.parametrize("family", tiny.SLOW_T5)
def test_greedy_text_does_not_depend_on_gamma(family, name):
    model = tiny.FAMILIES[family]
    texts = [greedy(family, Speculative(model.drafter, model.target, RULES[name], g)).tokens for g in (1, 4)]
    for text in texts[1:]:
        np.testing.assert_array_equal(text, texts[0])
