"""One block put before the verifier: its law, its rejections, and corners where a division would be 0/0."""

from functools import partial

import jax
import jax.numpy as jnp
import laws
import numpy as np
import pytest
from scipy import stats

from spec_cascades.probs import Pair, raw
from spec_cascades.rules import RULES, Deferral
from spec_cascades.verify import Noise, verify

V, N = 6, 60_000
SEEDS = (4, 11)


@partial(jax.jit, static_argnames="rule")
def JUDGE(noise, drafts, pair, rule, alpha):
    """All but the last draft proposed."""
    return verify(noise, drafts, jnp.full(len(drafts), drafts.shape[1] - 1), pair, rule, alpha)


def one_pair(seed, sharp=1.0):
    """q and p over V ids, colder than the raw pair."""
    rng = np.random.default_rng(seed)
    p = sharp * rng.normal(size=V)
    q = 0.7 * p + 0.7 * rng.normal(size=V)
    law = lambda x: raw(jnp.asarray(x, jnp.float32))
    return Pair(law(q / 0.8), law(p / 0.8), law(q), law(p))


def judge(rule, pair, alpha, n=N, seed=0):
    """n blocks of one draft from q at the same pair: (tokens [n, 2], accepted [n], drafts [n])."""
    keys = jax.random.split(jax.random.key(seed), 2)
    drafts = jax.random.choice(keys[0], len(pair.q), (n,), p=pair.q)
    drafts = jnp.stack([drafts, jnp.zeros_like(drafts)], 1).astype(jnp.int32)
    wide = jax.tree.map(lambda x: jnp.broadcast_to(x, (n, 2, len(x))), pair)
    noise = Noise(*jax.random.uniform(keys[1], (3, n, 2)))
    got = JUDGE(noise, drafts, wide, rule=rule, alpha=jnp.full(n, alpha, jnp.float32))
    return np.asarray(got.tokens), np.asarray(got.accepted), np.asarray(drafts[:, 0])


def lossy(q, p, alpha):
    return np.maximum(0, q - p / (1 - alpha)).sum()


WITHOUT_A_MASK = {
    "lossy": lossy,
    "lossy_solved": lossy,
    "ensemble": lambda q, p, alpha: (1 - alpha) * np.maximum(0, p - q).sum(),
    "tv_bound": lambda q, p, alpha: max(0, np.maximum(0, p - q).sum() - alpha),
}


def rejection(rule, pair, alpha):
    """P(reject): Lemma 3 of the paper (r TV), its token form, and the laws' that have no mask."""
    q, p = np.asarray(pair.q, np.float64), np.asarray(pair.p, np.float64)
    if not isinstance(rule, Deferral):
        return WITHOUT_A_MASK[rule.name](q, p, alpha)
    r = np.asarray(rule.mask(Pair(*(x[None] for x in pair)), jnp.full((1, 1), alpha, jnp.float32)))[0]
    if len(r) == 1:
        return r[0] * np.maximum(0, p - q).sum()
    return np.maximum(0, q - (r * q).sum() * p)[r].sum()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", sorted(RULES))
def test_rejections_and_the_first_token_follow_the_formulas(name, seed):
    rule, pair = RULES[name], one_pair(seed)
    tokens, accepted, _ = judge(rule, pair, rule.default)
    expected = rejection(rule, pair, rule.default)
    if expected < 1e-7:
        assert (accepted == 1).all()
    else:
        assert stats.binomtest(int(N - accepted.sum()), N, expected).pvalue > laws.FLOOR
    pi = np.asarray(laws.pi_of(rule, Pair(*(x[None] for x in pair)), rule.default))[0]
    assert laws.follows(np.bincount(tokens[:, 0], minlength=V), pi / pi.sum()) > laws.FLOOR
    if accepted.any():
        bonus = tokens[accepted == 1, 1]
        assert laws.follows(np.bincount(bonus, minlength=V), pi / pi.sum()) > laws.FLOOR


def test_the_lemma_is_measured_where_drafts_are_rejected():
    """At their defaults, over the two pairs, most rules reject a share that a wrong formula would miss."""
    shares = {n: max(rejection(r, one_pair(s), r.default) for s in SEEDS) for n, r in RULES.items()}
    assert sum(share > 0.05 for share in shares.values()) >= 11, shares


@pytest.mark.parametrize("name", sorted(RULES))
def test_equal_models_never_reject_under_masks_of_one_bit(name):
    """p = q: pi = q exactly, the residual is empty, and a uniform of just under 1 still finds a token."""
    rule, pair = RULES[name], one_pair(1)
    pair = pair._replace(p=pair.q, p_raw=pair.q_raw)
    tokens, accepted, drafts = judge(rule, pair, rule.default)
    assert ((0 <= tokens) & (tokens < V)).all()
    pi = np.asarray(laws.pi_of(rule, Pair(*(x[None] for x in pair)), rule.default))[0]
    assert np.isfinite(pi).all()
    if name not in ("v1", "v2", "v3", "topk", "typical"):
        assert (accepted == 1).all()
        np.testing.assert_array_equal(tokens[:, 0], drafts)


def test_an_empty_residual_falls_back_to_pi():
    """Rounding may reject a draft though pi = q (1 * q < q is false): the token then comes from pi."""
    pair = Pair(*(jnp.broadcast_to(jnp.asarray([0.0, 0.5, 0.5, 0.0]), (500, 2, 4)),) * 4)
    noise = Noise(jnp.zeros((500, 2)), jnp.ones((500, 2)), jax.random.uniform(jax.random.key(0), (500, 2)))
    drafts = jnp.ones((500, 2), jnp.int32)
    got = JUDGE(noise, drafts, pair, rule=RULES["lossless"], alpha=jnp.zeros(500))
    np.testing.assert_array_equal(got.accepted, 0)
    counts = np.bincount(np.asarray(got.tokens)[:, 0], minlength=4)
    assert counts[0] == counts[3] == 0
    assert stats.binomtest(int(counts[1]), 500, 0.5).pvalue > laws.FLOOR


@pytest.mark.parametrize("name", sorted(RULES))
def test_disjoint_supports(name):
    """q on {0, 1}, p on {2, 3}: no NaN, the law is pi, and what is accepted was drafted."""
    rule = RULES[name]
    q, p = jnp.asarray([0.7, 0.3, 0.0, 0.0]), jnp.asarray([0.0, 0.0, 0.9, 0.1])
    pair = Pair(q, p, 0.97 * q + 0.0075, 0.97 * p + 0.0075)
    tokens, accepted, drafts = judge(rule, pair, rule.default, n=20_000)
    pi = np.asarray(laws.pi_of(rule, Pair(*(x[None] for x in pair)), rule.default))[0]
    assert laws.follows(np.bincount(tokens[:, 0], minlength=4), pi / pi.sum()) > laws.FLOOR
    np.testing.assert_array_equal(tokens[accepted == 1, 0], drafts[accepted == 1])
    if name in ("lossless", "lossy", "lossy_solved"):
        assert (accepted == 0).all()


def test_a_token_that_the_target_excludes_is_never_emitted():
    """A logit of -inf in the target, under lossless and lossy at its far end."""
    p = jnp.asarray([-jnp.inf, 1.0, 0.0, 0.5])
    pair = Pair(raw(jnp.asarray([3.0, 0.0, 0.0, -jnp.inf])), raw(p), raw(jnp.zeros(4)), raw(p))
    for name, alpha in (("lossless", 0.0), ("lossy", 0.5), ("lossy", 1.0), ("lossy_solved", 0.5)):
        tokens, _, _ = judge(RULES[name], pair, alpha, n=5_000)
        assert (tokens[:, 0] != 0).all(), name


def test_a_uniform_of_zero_does_not_accept_what_pi_excludes():
    eye = jnp.eye(3)
    pair = Pair(*(jnp.broadcast_to(eye[i], (1, 2, 3)) for i in (0, 1, 0, 1)))
    got = JUDGE(
        Noise(*jnp.zeros((3, 1, 2))),
        jnp.zeros((1, 2), jnp.int32),
        pair,
        rule=RULES["lossless"],
        alpha=jnp.zeros(1),
    )
    assert got.accepted.tolist() == [0]
    assert got.tokens[0, 0] == 1


def test_acceptance_is_a_prefix_and_a_row_is_on_its_own():
    """Drafts 1 and 3 of three stand, 2 does not: one is accepted, whatever the rows beside it."""
    eye = jnp.eye(4)
    p = jnp.stack([eye[jnp.asarray(x)] for x in ([0, 1, 2, 3], [0, 0, 2, 3], [1, 1, 2, 3])])
    drafts = jnp.asarray([[0, 1, 2, 0]] * 3)
    pair = Pair(jnp.broadcast_to(eye[jnp.asarray([0, 1, 2, 0])], (3, 4, 4)), p, p, p)
    noise = Noise(*jnp.full((3, 3, 4), 0.5))
    got = JUDGE(noise, drafts, pair, rule=RULES["lossless"], alpha=jnp.zeros(3))
    np.testing.assert_array_equal(got.accepted, [3, 1, 0])
    assert got.tokens[0].tolist() == [0, 1, 2, 3]
    assert got.tokens[1, :2].tolist() == [0, 0]
    assert got.tokens[2, :1].tolist() == [1]


def test_each_position_and_each_decision_has_a_uniform_of_its_own():
    """Moving one number of the noise moves only the decision it stands for."""
    q = jnp.full((1, 3, 4), 0.25)
    p = jnp.broadcast_to(jnp.asarray([0.1, 0.2, 0.3, 0.4]), (1, 3, 4))
    pair, drafts = Pair(q, p, q, p), jnp.asarray([[0, 0, 0]])
    run = lambda accept, residual: JUDGE(
        Noise(jnp.full((1, 3), 0.5), jnp.asarray([accept]), jnp.asarray([residual])),
        drafts,
        pair,
        rule=RULES["lossless"],
        alpha=jnp.zeros(1),
    )
    # Draft 0 has pi/q = 0.4; the residual lies on ids 2 (0.05) and 3 (0.15).
    assert run([0.39, 0.39, 0.99], [0.0, 0.0, 0.05]).accepted.tolist() == [2]
    assert run([0.39, 0.41, 0.99], [0.99, 0.0, 0.0]).tokens[0, :2].tolist() == [0, 2]
    assert run([0.39, 0.41, 0.99], [0.0, 0.99, 0.0]).tokens[0, :2].tolist() == [0, 3]
    assert run([0.41, 0.0, 0.0], [0.26, 0.0, 0.0]).tokens[0, :1].tolist() == [3]
    assert run([0.0, 0.0, 0.0], [0.9, 0.9, 0.05]).tokens[0].tolist() == [0, 0, 0]
    assert run([0.0, 0.0, 0.0], [0.0, 0.0, 0.65]).tokens[0].tolist() == [0, 0, 3]
