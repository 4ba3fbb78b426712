"""Filters against a slow reference in numpy, and the one draw."""

import jax
import jax.numpy as jnp
import laws
import numpy as np
import pytest
from laws import Setting

from spec_cascades.probs import distribution, draw, entropy, raw, total_variation

GRID = [
    Setting(),
    Setting(temperature=0.6),
    Setting(temperature=1.7, top_k=4),
    Setting(top_k=1),
    Setting(top_p=0.8),
    Setting(temperature=2.0, top_p=0.9),
    Setting(top_k=5, top_p=0.7, min_p=0.3),
    Setting(min_p=0.2),
    Setting(top_k=50, top_p=1.0),
    Setting(temperature=0.0, top_k=3, top_p=0.5),
    Setting(top_p=1e-6),
]


def reference(logits, s):
    """distribution() for one row, a token at a time: temperature, top-k, top-p, min-p, each renormalised."""
    logits = np.asarray(logits, np.float64)
    if s.temperature == 0:
        return np.eye(len(logits))[np.argmax(logits)]
    p = np.exp(logits / s.temperature - np.max(logits / s.temperature))
    p /= p.sum()
    ranked = sorted(range(len(p)), key=lambda i: (-p[i], i))
    if s.top_k:
        p[ranked[s.top_k :]] = 0
        p /= p.sum()
    mass = 0.0
    for i in ranked:
        if s.top_p < 1 and mass >= s.top_p:
            p[i] = 0
        mass += p[i]
    p /= p.sum()
    p[p < s.min_p * p.max()] = 0
    return p / p.sum()


def test_filters_agree_with_the_reference_row_by_row():
    logits = 2 * np.random.default_rng(0).normal(size=(len(GRID), 12)).astype(np.float32)
    got = distribution(jnp.asarray(logits), laws.request(GRID, 1).sampling)
    expected = [reference(row, s) for row, s in zip(logits, GRID, strict=True)]
    np.testing.assert_allclose(got, expected, atol=2e-6)


@pytest.mark.parametrize("setting", GRID, ids=lambda s: "-".join(f"{x:g}" for x in s[1:]))
def test_a_row_keeps_every_bit_whatever_the_other_rows_ask_for(setting):
    logits = jnp.asarray(np.random.default_rng(1).normal(size=(len(GRID), 3, 12)), jnp.float32)
    mixed = distribution(logits, laws.request(GRID, 1).sampling)
    i = GRID.index(setting)
    alike = distribution(logits, laws.request([setting] * len(GRID), 1).sampling)
    np.testing.assert_array_equal(mixed[i], alike[i])
    # In a batch of another size a compiler may add the same numbers in another order.
    alone = distribution(logits[i : i + 1], laws.request([setting], 1).sampling)
    np.testing.assert_allclose(mixed[i], alone[0], rtol=1e-6)
    np.testing.assert_array_equal(mixed[i] > 0, alone[0] > 0)


def test_the_order_of_filters_matters_and_is_temperature_first():
    logits = jnp.log(jnp.asarray([[0.5, 0.3, 0.15, 0.05]]))
    cold = distribution(logits, laws.request([Setting(temperature=0.5, top_p=0.7)], 1).sampling)
    # Squared and renormalised: .685, .247, .062, .007; the first two reach .7 (at T = 1 .5 + .3 would too).
    assert np.count_nonzero(cold) == 2
    cold = distribution(logits, laws.request([Setting(temperature=0.5, top_p=0.68)], 1).sampling)
    assert np.count_nonzero(cold) == 1


def test_top_k_keeps_exactly_k_of_equals_the_lowest_ids_first():
    got = distribution(jnp.zeros((1, 7)), laws.request([Setting(top_k=3)], 1).sampling)
    np.testing.assert_allclose(got[0], [1 / 3] * 3 + [0] * 4, rtol=1e-6)


def test_top_p_is_the_smallest_set_that_reaches_the_mass():
    logits = jnp.log(jnp.asarray([[0.125, 0.5, 0.25, 0.125]] * 3))
    got = distribution(logits, laws.request([Setting(top_p=x) for x in (0.5, 0.51, 0.76)], 1).sampling)
    assert [sorted(np.flatnonzero(row)) for row in got] == [[1], [1, 2], [0, 1, 2]]


def test_top_p_counts_the_mass_of_what_top_k_left():
    """Of .4 and .3, renormalised to .57 and .43, the first alone reaches .5."""
    logits = jnp.log(jnp.asarray([[0.4, 0.3, 0.2, 0.1]]))
    got = distribution(logits, laws.request([Setting(top_k=2, top_p=0.5)], 1).sampling)
    np.testing.assert_array_equal(got, [[1, 0, 0, 0]])


def test_min_p_keeps_what_reaches_the_share_of_the_largest():
    logits = jnp.log(jnp.asarray([[0.4, 0.1, 0.3, 0.2]] * 2))
    got = distribution(logits, laws.request([Setting(min_p=x) for x in (0.45, 0.55)], 1).sampling)
    assert [sorted(np.flatnonzero(row)) for row in got] == [[0, 2, 3], [0, 2]]


def test_temperature_zero_takes_the_lowest_id_of_ties():
    logits = jnp.asarray([[1.0, 3.0, 3.0, -jnp.inf]])
    got = distribution(logits, laws.request([Setting(temperature=0.0)], 1).sampling)
    np.testing.assert_array_equal(got[0], [0, 1, 0, 0])


@pytest.mark.parametrize("setting", GRID, ids=lambda s: "-".join(f"{x:g}" for x in s[1:]))
def test_minus_infinity_gets_no_mass_and_makes_no_nan(setting):
    logits = jnp.asarray([[-jnp.inf, 0.3, -jnp.inf, 0.1]])
    got = np.asarray(distribution(logits, laws.request([setting], 1).sampling))[0]
    assert np.isfinite(got).all()
    assert got[0] == got[2] == 0
    assert got.sum() == pytest.approx(1)


def test_bfloat16_logits_are_read_in_float32():
    logits = jnp.asarray(np.random.default_rng(2).normal(size=(1, 300)), jnp.bfloat16)
    got = distribution(logits, laws.request([Setting()], 1).sampling)
    assert got.dtype == raw(logits).dtype == jnp.float32
    np.testing.assert_allclose(got, raw(logits.astype(jnp.float32)), rtol=1e-6)


def test_distances_and_entropy():
    p, q = jnp.asarray([[0.5, 0.5, 0.0]]), jnp.asarray([[0.25, 0.25, 0.5]])
    assert total_variation(p, q)[0, 0] == pytest.approx(0.5)
    assert total_variation(q, p)[0, 0] == pytest.approx(0.5)
    assert entropy(p)[0, 0] == pytest.approx(np.log(2))
    assert entropy(jnp.asarray([[0.0, 1.0]]))[0, 0] == 0


@pytest.mark.parametrize("v", [1, 2, 3, 5, 16, 17, 60, 1000])
def test_draws_follow_unnormalised_weights(v):
    rng = np.random.default_rng(v)
    weights = rng.exponential(size=v).astype(np.float32) * (rng.random(v) < 0.7)
    weights[rng.integers(v)] = 3.0
    n = 100_000
    u = jax.random.uniform(jax.random.key(v), (n,))
    got = np.asarray(jax.jit(draw)(jnp.broadcast_to(7 * jnp.asarray(weights), (n, v)), u))
    assert laws.follows(np.bincount(got, minlength=v), weights / weights.sum()) > laws.FLOOR


@pytest.mark.parametrize("v", [1, 2, 6, 10, 99, 1000])
def test_no_uniform_reaches_a_weight_of_zero(v):
    rng = np.random.default_rng(v)
    weights = rng.exponential(size=(400, v)).astype(np.float32) * (rng.random((400, v)) < 0.4)
    weights[np.arange(400), rng.integers(v, size=400)] += 0.1
    weights *= 10.0 ** rng.integers(-20, 20, size=(400, 1))
    for u in (0.0, np.float32(1e-30), np.nextafter(np.float32(1), np.float32(0))):
        token = np.asarray(draw(jnp.asarray(weights), jnp.full(400, u, jnp.float32)))
        assert (weights[np.arange(400), token] > 0).all()
    first = np.asarray(draw(jnp.asarray(weights), jnp.zeros(400)))
    np.testing.assert_array_equal(first, np.argmax(weights > 0, axis=1))
    final = np.asarray(draw(jnp.asarray(weights), jnp.full(400, np.nextafter(np.float32(1), np.float32(0)))))
    # Just below 1 is the tail: all that lies behind the token is lost in float32's rounding, and no more.
    behind = (weights.astype(np.float64) * (np.arange(v) > final[:, None])).sum(1) / weights.astype(
        np.float64
    ).sum(1)
    assert behind.max() < 2e-6


def test_the_tail_of_a_large_vocabulary_is_not_lost():
    v, n = 256_000, 2_000
    weights = jnp.ones(v)
    u = (jnp.arange(n) + 0.5) / n
    got = np.asarray(jax.jit(jax.vmap(draw, (None, 0)))(weights, u))
    np.testing.assert_allclose(got / v, u, atol=1e-5)
