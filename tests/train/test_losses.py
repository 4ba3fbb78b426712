"""NLL and divergences against numpy in float64, masked ids included."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_cascades.train import losses
from spec_cascades.train.losses import DIVERGENCES

MASKED = 3


@pytest.fixture
def logits():
    """Two models' scores over 12 ids, the last three of them masked in both."""
    rng = np.random.default_rng(0)
    p, q = (rng.normal(scale=3.0, size=(2, 5, 12)).astype(np.float32) for _ in range(2))
    p[..., -MASKED:] = q[..., -MASKED:] = -np.inf
    return p, q


def softmax(x):
    e = np.exp(x[..., :-MASKED].astype(np.float64))
    return e / e.sum(-1, keepdims=True)


EXPECTED = {
    "kl": lambda p, q: (p * np.log(p / q)).sum(-1),
    "reverse_kl": lambda p, q: (q * np.log(q / p)).sum(-1),
    "tv": lambda p, q: np.maximum(p - q, 0).sum(-1),
}


@pytest.mark.parametrize("kind", DIVERGENCES)
def test_divergences(kind, logits):
    got = losses.divergence(kind, *logits)
    np.testing.assert_allclose(got, EXPECTED[kind](*map(softmax, logits)), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("kind", DIVERGENCES)
def test_a_model_is_at_no_distance_from_itself(kind, logits):
    np.testing.assert_allclose(losses.divergence(kind, logits[0], logits[0]), 0.0, atol=1e-6)


@pytest.mark.parametrize("kind", DIVERGENCES)
def test_gradients_with_masked_ids(kind, logits):
    """Finite, zero on the masked ids, and the slope of the function elsewhere."""
    p, q = logits
    total = lambda scores: jnp.sum(losses.divergence(kind, p, scores))
    slope = np.asarray(jax.grad(total)(q))
    assert np.isfinite(slope).all()
    assert (slope[..., -MASKED:] == 0).all()
    step = np.zeros_like(q, np.float64)
    step[1, 2, 4] = 1e-5
    expected = EXPECTED[kind]
    up, down = (expected(softmax(p), softmax(q + s)).sum() for s in (step, -step))
    np.testing.assert_allclose(slope[1, 2, 4], (up - down) / 2e-5, rtol=1e-3, atol=1e-6)


def test_overlap_is_one_minus_tv(logits):
    p, q = map(softmax, logits)
    np.testing.assert_allclose(losses.overlap(*logits), np.minimum(p, q).sum(-1), rtol=1e-5)
    np.testing.assert_allclose(losses.overlap(*logits), 1 - losses.divergence("tv", *logits), atol=1e-6)


def test_nll(logits):
    targets = np.random.default_rng(1).integers(0, 12 - MASKED, (2, 5))
    expected = -np.log(np.take_along_axis(softmax(logits[1]), targets[..., None], -1))[..., 0]
    np.testing.assert_allclose(losses.nll(logits[1], targets), expected, rtol=2e-5)


def test_an_unknown_divergence_is_named(logits):
    with pytest.raises(ValueError, match=r"'js' is not one of kl, reverse_kl, tv"):
        losses.divergence("js", *logits)
