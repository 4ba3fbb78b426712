"""Divergences on a label's few tokens against the whole distributions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_cascades.distill import losses
from spec_cascades.distill.losses import Label
from spec_cascades.train import losses as whole

V = 11


@pytest.fixture
def logits():
    p, q = (2 * jax.random.normal(jax.random.key(i), (2, 5, V)) for i in (0, 1))
    return p, q


def label_of(p, k, place=None):
    log_p, ids = jax.lax.top_k(jax.nn.log_softmax(p), k)
    return Label(ids if place is None else place[ids], log_p)


WEIGHTS = jnp.asarray([[1, 1, 0, 1, 1], [0, 0, 1, 0, 0]], jnp.float32)


@pytest.mark.parametrize("kind", whole.DIVERGENCES)
def test_a_label_of_all_tokens_gives_the_divergence_itself(kind, logits):
    p, q = logits
    got = losses.sums(kind, q, label_of(p, V), WEIGHTS)
    exact = np.sum(np.asarray(whole.divergence(kind, p, q)) * np.asarray(WEIGHTS))
    np.testing.assert_allclose(got.loss, exact, rtol=1e-4)
    np.testing.assert_allclose(got.overlap, np.sum(whole.overlap(p, q) * WEIGHTS), rtol=1e-5)
    assert got.count == 5


@pytest.mark.parametrize("kind", whole.DIVERGENCES)
def test_merging_the_rest_lowers_a_divergence_and_raises_acceptance(kind, logits):
    p, q = logits
    few, all_of = (losses.sums(kind, q, label_of(p, k), WEIGHTS) for k in (3, V))
    assert 0 < few.loss < all_of.loss
    assert few.overlap > all_of.overlap


@pytest.mark.parametrize("kind", whole.DIVERGENCES)
def test_equal_distributions_have_no_distance(kind, logits):
    p, _ = logits
    got = losses.sums(kind, p, label_of(p, 4), WEIGHTS)
    np.testing.assert_allclose(got.loss, 0, atol=1e-4)
    np.testing.assert_allclose([got.overlap, got.greedy], 5, rtol=1e-4)


def test_greedy_acceptance_counts_equal_argmaxes(logits):
    p, q = logits
    same = np.asarray(jnp.argmax(p, -1) == jnp.argmax(q, -1))
    got = losses.sums("kl", q, label_of(p, 2), WEIGHTS)
    assert got.greedy == np.sum(same * np.asarray(WEIGHTS))
    assert 0 < same.sum() < same.size


def test_ids_without_a_logit_are_never_accepted(logits):
    p, q = logits
    ids = jnp.asarray([0, 2, 3, 7, 8])
    place = jnp.full(V, 5).at[ids].set(jnp.arange(5))
    got = losses.sums("tv", q[..., ids], label_of(p, V, place), WEIGHTS)
    full = jnp.full_like(q, -jnp.inf).at[..., ids].set(q[..., ids])
    np.testing.assert_allclose(got.overlap, np.sum(whole.overlap(p, full) * WEIGHTS), rtol=1e-5)
    held = np.isin(np.asarray(jnp.argmax(p, -1)), np.asarray(ids))
    same = held & np.asarray(jnp.argmax(p, -1) == jnp.argmax(full, -1))
    assert got.greedy == np.sum(same * np.asarray(WEIGHTS))


@pytest.mark.parametrize("kind", whole.DIVERGENCES)
def test_gradients_are_finite_where_an_id_has_no_logit(kind, logits):
    p, q = logits
    label = label_of(100 * p, 4, jnp.full(V, 3).at[:3].set(jnp.arange(3)))
    grad = jax.grad(lambda q: losses.sums(kind, q, label, WEIGHTS).loss)(100 * q[..., :3])
    assert np.isfinite(grad).all()


def test_another_loss_is_named():
    with pytest.raises(ValueError, match="'l2' is not one of kl, reverse_kl, tv"):
        losses.sums("l2", jnp.zeros((1, 1, 3)), label_of(jnp.zeros((1, 1, 3)), 2), jnp.ones((1, 1)))
