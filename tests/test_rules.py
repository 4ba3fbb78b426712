"""Every rule's pi against the paper's formula written out, and the alphas at which it is p or q."""

import jax
import jax.numpy as jnp
import laws
import numpy as np
import pytest
from scipy.optimize import brentq

from spec_cascades.probs import Pair, raw
from spec_cascades.rules import RULES, Deferral, Lossy, Rule, get

N, V = 400, 7


def random_pair(seed, one_hot=""):
    """N pairs over V ids, q and p colder than the raw ones; those named in `one_hot` have one id each."""
    rng = np.random.default_rng(seed)
    p = 2 * rng.normal(size=(N, V))
    q = 0.7 * p + rng.normal(size=(N, V))
    p_raw, q_raw = (raw(jnp.asarray(x, jnp.float32)) for x in (p, q))
    cold = lambda x, name: (
        jnp.eye(V)[jnp.argmax(x, -1)] if name in one_hot else raw(jnp.asarray(x / 0.6, jnp.float32))
    )
    return Pair(cold(q, "q"), cold(p, "p"), q_raw, p_raw)


def entropy(x):
    return -(x * np.log(x)).sum()


def tv(p, q):
    return np.maximum(0, p - q).sum()


# One row's r from (q, p, q_raw, p_raw, alpha): the papers' formulas in plain numpy, float64.
REFERENCE = {
    "lossless": lambda q, p, qr, pr, a: True,
    "drafter_only": lambda q, p, qr, pr, a: False,
    "chow": lambda q, p, qr, pr, a: qr.max() < 1 - a,
    "chow_log": lambda q, p, qr, pr, a: entropy(qr) > a,
    "diff": lambda q, p, qr, pr, a: qr.max() < pr.max() - a,
    "diff_log": lambda q, p, qr, pr, a: entropy(qr) > entropy(pr) + a,
    "opt": lambda q, p, qr, pr, a: qr.max() < pr.max() - a * tv(p, q),
    "opt_log": lambda q, p, qr, pr, a: entropy(qr) > entropy(pr) + a * tv(p, q),
    "bild": lambda q, p, qr, pr, a: -np.log(pr[np.argmax(qr)]) > a,
    "v1": lambda q, p, qr, pr, a: qr < pr.max() - a,
    "v2": lambda q, p, qr, pr, a: pr < pr.max() - a,
    "v3": lambda q, p, qr, pr, a: pr < (1 - a) * pr.max(),
    "topk": lambda q, p, qr, pr, a: ~np.isin(np.arange(len(pr)), np.argsort(-pr)[: int(a)]),
    "typical": lambda q, p, qr, pr, a: pr < min(eps := max(1 - a, 0), eps**0.5 * np.exp(-entropy(pr))),
}


def kept(q, p, alpha):
    return np.minimum(q, p / (1 - alpha)) if alpha < 1 else np.where(p > 0, q, 0)


def heuristic(q, p, alpha):
    excess = np.maximum(0, p - q)
    return kept(q, p, alpha) + (1 - kept(q, p, alpha).sum()) * excess / excess.sum()


def solved(q, p, alpha):
    """beta found in beta, by another method than the one under test."""
    law = lambda beta: kept(q, p, alpha) + np.maximum(0, p / beta - q)
    if kept(q, p, alpha).sum() > 1 - 1e-6:
        return kept(q, p, alpha)
    low = (1 - 1e-6) * max(1 - alpha, 1e-3)
    return law(brentq(lambda beta: law(beta).sum() - 1, low, 1e6, xtol=1e-14))


# One row's pi from (q, p, alpha), where no mask gives it.
LAWS = {
    "lossy": heuristic,
    "lossy_solved": solved,
    "ensemble": lambda q, p, a: (1 - a) * p + a * q,
    "tv_bound": lambda q, p, a: p + min(1, a / tv(p, q)) * (q - p),
}


def pi_of(name, q, p, qr, pr, alpha):
    """One row's pi written out."""
    if name in LAWS:
        return LAWS[name](q, p, alpha)
    r = np.broadcast_to(REFERENCE[name](q, p, qr, pr, alpha), q.shape).astype(float)
    return q * (1 - r) + p * (r * q).sum()


def apply(rule, pair, alpha):
    return np.asarray(laws.pi_of(rule, pair, alpha))


@pytest.mark.parametrize("scale", [0.4, 1.0, 1.7])
@pytest.mark.parametrize("name", sorted({*REFERENCE, *LAWS}))
def test_pi_is_the_formula(name, scale):
    rule, pair = RULES[name], random_pair(3)
    alpha = np.float32(rule.default * scale)
    rows = zip(*(np.asarray(x, np.float64) for x in pair), strict=True)
    np.testing.assert_allclose(
        apply(rule, pair, alpha), [pi_of(name, *row, alpha) for row in rows], atol=1e-5
    )


@pytest.mark.parametrize("one_hot", ["", "q", "p", "qp"])
@pytest.mark.parametrize("name", sorted(RULES))
def test_pi_at_the_tokens_serves_the_verifier(name, one_hot):
    """at() equals pi where pi < q, and is at least q elsewhere: all that `u q < pi` can see."""
    rule, pair = RULES[name], random_pair(4, one_hot)
    alphas = jnp.asarray(np.random.default_rng(0).choice([0.5, 1.0, 1.5], (N, 1)) * rule.default, jnp.float32)
    pi = np.asarray(rule.pi(pair, alphas))
    tokens = jnp.broadcast_to(jnp.arange(V), (N, V))
    wide = jax.tree.map(lambda x: jnp.broadcast_to(x[:, None], (N, V, V)), pair)
    at, q = np.asarray(rule.at(wide, tokens, alphas[..., None])), np.asarray(pair.q)
    np.testing.assert_allclose(np.minimum(at, q), np.minimum(pi, q), atol=1e-6)
    np.testing.assert_allclose(pi.sum(-1), 1, atol=1e-5)
    assert (pi >= 0).all()


@pytest.mark.parametrize("one_hot", ["", "q", "p", "qp"])
@pytest.mark.parametrize("name", sorted(RULES))
def test_stated_ends_are_the_target_and_the_drafter(name, one_hot):
    rule, pair = RULES[name], random_pair(5, one_hot)
    ends = [(rule.lossless, pair.p), (rule.draft_only, pair.q)]
    assert not all(np.isnan(alpha) for alpha, _ in ends)
    for alpha, law in ends:
        # Lossy cannot keep a draft that the target excludes: its end holds where q's support lies in p's.
        cut = isinstance(rule, Lossy) and alpha == 1
        rows = ~np.any((pair.q > 0) & (pair.p == 0), -1) if cut else slice(None)
        if not np.isnan(alpha):
            np.testing.assert_allclose(apply(rule, pair, alpha)[rows], law[rows], atol=1e-6)


@pytest.mark.parametrize("name", sorted(RULES))
def test_the_default_lies_between_the_ends(name):
    rule, pair = RULES[name], random_pair(6)
    if name not in ("lossless", "drafter_only"):
        pi = apply(rule, pair, rule.default)
        assert np.abs(pi - pair.p).max() > 0.05
        assert np.abs(pi - pair.q).max() > 0.05


@pytest.mark.parametrize("name", sorted(n for n, r in RULES.items() if isinstance(r, Deferral)))
def test_confidences_are_read_off_the_raw_pair(name):
    """Where only q and p change and not the raw pair, the mask moves for OPT alone, which reads TV(p, q)."""
    rule, pair = RULES[name], random_pair(7)
    other = pair._replace(q=pair.q[::-1], p=pair.p[::-1])
    masks = [rule.mask(x, jnp.full((N, 1), rule.default)) for x in (pair, other)]
    assert bool(jnp.all(masks[0] == masks[1])) == (not name.startswith("opt"))


def test_ties_stay_with_the_drafter_in_topk():
    p = jnp.asarray([[0.3, 0.3, 0.3, 0.1]])
    pair = Pair(jnp.full((1, 4), 0.25), p, jnp.full((1, 4), 0.25), p)
    mask = RULES["topk"].mask(pair, jnp.asarray([[2.0]]))
    np.testing.assert_array_equal(mask, [[False, False, False, True]])


def test_an_unknown_rule_is_named_with_the_choices():
    with pytest.raises(ValueError, match=r"'v4' is not one of .*lossy.*v3"):
        get("v4")


def test_every_rule_says_what_it_is():
    for name, rule in RULES.items():
        assert isinstance(rule, Rule)
        assert rule.name == name
        assert rule.about


REJECTION = {
    "lossy": lambda q, p, a: np.maximum(0, q - kept(q, p, a)).sum(),
    "lossy_solved": lambda q, p, a: np.maximum(0, q - kept(q, p, a)).sum(),
    "ensemble": lambda q, p, a: (1 - a) * tv(p, q),
    "tv_bound": lambda q, p, a: max(0, tv(p, q) - a),
}


@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.35, 0.8, 1.0])
@pytest.mark.parametrize("name", sorted(REJECTION))
def test_laws_without_a_mask_reject_as_their_formulas_say(name, alpha):
    """P(reject) = sum max(0, q - pi)."""
    pair = random_pair(8)
    q, p = (np.asarray(x, np.float64) for x in (pair.q, pair.p))
    rejected = np.maximum(0, q - apply(RULES[name], pair, alpha)).sum(-1)
    expected = [REJECTION[name](*row, alpha) for row in zip(q, p, strict=True)]
    np.testing.assert_allclose(rejected, expected, atol=1e-6)


@pytest.mark.parametrize("alpha", [0.02, 0.1, 0.3])
def test_no_law_within_alpha_of_the_target_rejects_less_than_tv_bound(alpha):
    """Rivals: laws moved from p by at most alpha towards q, a sharper q, max(p, q), and anything."""
    pair = random_pair(9)
    q, p = (np.asarray(x, np.float64) for x in (pair.q, pair.p))
    pi = apply(RULES["tv_bound"], pair, alpha)
    far = lambda a, b: np.maximum(0, a - b).sum(-1)
    least = np.maximum(0, q - pi).sum(-1)
    assert (far(p, pi) <= alpha + 1e-6).all()
    assert ((far(p, q) > alpha) == (least > 1e-6)).all()
    rng = np.random.default_rng(0)
    sharper = q**2 / (q**2).sum(-1, keepdims=True)
    for goal in [q, sharper, np.maximum(p, q), *rng.dirichlet(np.full(V, 0.5), (50, N))]:
        goal = goal / goal.sum(-1, keepdims=True)
        step = np.minimum(1, alpha / far(p, goal))[:, None]
        assert (far(q, p + step * (goal - p)) >= least - 1e-6).all()


HARD = {
    "equal": ([0.1, 0.2, 0.3, 0.4], [0.1, 0.2, 0.3, 0.4]),
    "disjoint": ([0.6, 0.4, 0.0, 0.0], [0.0, 0.0, 0.9, 0.1]),
    "p has zeros": ([0.4, 0.3, 0.2, 0.1], [0.0, 0.0, 0.3, 0.7]),
    "q has zeros": ([0.0, 0.0, 0.3, 0.7], [0.4, 0.3, 0.2, 0.1]),
    "q one-hot": ([0.0, 1.0, 0.0, 0.0], [0.1, 0.2, 0.3, 0.4]),
    "p one-hot": ([0.1, 0.2, 0.3, 0.4], [0.0, 1.0, 0.0, 0.0]),
    "one-hot, apart": ([1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]),
    "one-hot, equal": ([0.0, 1.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]),
    "a hair apart": ([0.25, 0.25, 0.2500001, 0.2499999], [0.25, 0.25, 0.2499999, 0.2500001]),
}


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.999, 1.0])
@pytest.mark.parametrize("case", HARD)
def test_beta_is_solved_in_hard_cases(case, alpha):
    q, p = (jnp.asarray([x], jnp.float32) for x in HARD[case])
    pi = apply(RULES["lossy_solved"], Pair(q, p, q, p), alpha)[0]
    assert pi.astype(np.float64).sum() == pytest.approx(1, abs=1e-6)
    assert (pi >= 0).all()
    np.testing.assert_allclose(pi, solved(*(np.asarray(x, np.float64)[0] for x in (q, p)), alpha), atol=1e-6)


@pytest.mark.parametrize("alpha", [0.05, 0.5, 0.95])
def test_beta_is_solved_over_a_wide_vocabulary(alpha):
    rng = np.random.default_rng(0)
    q, p = (raw(jnp.asarray(3 * rng.normal(size=(4, 30_000)), jnp.float32)) for _ in range(2))
    pi = apply(RULES["lossy_solved"], Pair(q, p, q, p), alpha).astype(np.float64)
    np.testing.assert_allclose(pi.sum(-1), 1, atol=1e-6)
    rows = zip(np.asarray(q, np.float64), np.asarray(p, np.float64), strict=True)
    np.testing.assert_allclose(pi, [solved(*row, alpha) for row in rows], atol=1e-6)


@pytest.mark.parametrize("alpha", [0.0, 0.2, 0.5, 0.9])
def test_v3_at_temperature_0_is_leviathans_lenience(alpha):
    """Laws of one id, the raw pair soft: the draft a stays iff p(a) >= (1 - alpha) max p, else argmax p."""
    pair = random_pair(10, "qp")
    p, a, rows = np.asarray(pair.p_raw), np.argmax(pair.q, -1), np.arange(N)
    lenient = p[rows, a] >= np.float32(1 - alpha) * p.max(-1)
    if alpha > 0:
        assert 0 < (lenient & (a != np.argmax(p, -1))).mean() < lenient.mean() < 1
    expected = np.eye(V)[np.where(lenient, a, np.argmax(p, -1))]
    np.testing.assert_array_equal(apply(RULES["v3"], pair, alpha), expected)
    at = RULES["v3"].at(pair, jnp.asarray(a), jnp.full((N, 1), alpha, jnp.float32))
    np.testing.assert_array_equal(at, lenient.astype(float))


@pytest.mark.parametrize("alpha", [0.0, 0.2, 0.9, 1.0])
@pytest.mark.parametrize("name", ["lossy", "lossy_solved"])
def test_lossy_at_temperature_0_ignores_alpha(name, alpha):
    pair = random_pair(10, "qp")
    np.testing.assert_array_equal(apply(RULES[name], pair, alpha), pair.p)
    agree = np.asarray(jnp.sum(pair.q * pair.p, -1))
    at = RULES[name].at(pair, jnp.argmax(pair.q, -1), jnp.full((N, 1), alpha, jnp.float32))
    np.testing.assert_array_equal(at, agree)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.9, 1.0])
def test_typical_keeps_the_targets_likeliest_and_all_that_v3_keeps_at_its_threshold(alpha):
    """sqrt(eps) exp(-H) <= sqrt(eps) max p, so V3 at 1 - sqrt(eps) keeps no more."""
    pair, at = random_pair(11), lambda a: jnp.full((N, 1), a, jnp.float32)
    deferred = np.asarray(RULES["typical"].mask(pair, at(alpha)))
    assert not deferred[np.arange(N), np.argmax(pair.p_raw, -1)].any()
    v3 = np.asarray(RULES["v3"].mask(pair, at(1 - np.sqrt(1 - alpha) + 1e-6)))
    assert (deferred <= v3).all()
