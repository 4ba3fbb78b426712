"""Every rule's pi against the paper's formula written out, and the alphas at which it is p or q."""

import jax
import jax.numpy as jnp
import laws
import numpy as np
import pytest

from spec_cascades.probs import Pair, raw
from spec_cascades.rules import RULES, Deferral, get

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
}


def pi_of(name, q, p, qr, pr, alpha):
    """One row's pi written out."""
    if name == "lossy":
        kept = np.minimum(q, p / (1 - alpha))
        excess = np.maximum(0, p - q)
        return kept + (1 - kept.sum()) * excess / excess.sum()
    r = np.broadcast_to(REFERENCE[name](q, p, qr, pr, alpha), q.shape).astype(float)
    return q * (1 - r) + p * (r * q).sum()


def apply(rule, pair, alpha):
    return np.asarray(laws.pi_of(rule, pair, alpha))


@pytest.mark.parametrize("scale", [0.4, 1.0, 1.7])
@pytest.mark.parametrize("name", sorted({*REFERENCE, "lossy"}))
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
        rows = ~np.any((pair.q > 0) & (pair.p == 0), -1) if name == "lossy" and alpha == 1 else slice(None)
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
        assert rule.name == name
        assert rule.about
