"""The layers every family shares, against numpy and against plain autodiff."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_cascades.models.layers import HIDDEN, attend, linear, look_up, rms_norm, scores


def normal(seed, *shape):
    return jax.random.normal(jax.random.key(seed), shape, jnp.float32)


@pytest.mark.parametrize("lead", [(1,), (1, 1)])
def test_a_lone_bfloat16_row_is_computed_as_one_of_two(lead):
    x, kernel = normal(0, 33), normal(1, 33, 17).astype(jnp.bfloat16)
    lone = linear(x.reshape(*lead, 33), kernel)
    assert lone.shape == (*lead, 17)
    assert lone.dtype == jnp.float32
    pair = linear(jnp.stack([x, normal(2, 33)]), kernel)
    np.testing.assert_array_equal(lone.reshape(17), pair[0])
    low = np.asarray(x.astype(jnp.bfloat16), np.float64) @ np.asarray(kernel, np.float64)
    np.testing.assert_allclose(lone.reshape(17), low, rtol=1e-5, atol=1e-5)


def test_linear_accumulates_in_float32():
    """A sum of 4096 ones is exact; in bfloat16 it would stop at 256."""
    ones = jnp.ones((3, 4096), jnp.bfloat16)
    np.testing.assert_array_equal(linear(ones, ones.T), np.full((3, 3), 4096.0))


@pytest.mark.parametrize("rows", [1, 5])
def test_the_gradient_of_linear_is_autodiffs(rows):
    x, kernel = normal(0, rows, 9), normal(1, 9, 6)
    ours = jax.grad(lambda x, k: jnp.sum(jnp.sin(linear(x, k))), (0, 1))(x, kernel)
    plain = jax.grad(lambda x, k: jnp.sum(jnp.sin(x @ k)), (0, 1))(x, kernel)
    for a, b in zip(ours, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rows", [1, 5])
def test_gradients_keep_the_dtypes_of_what_they_belong_to(rows):
    x, kernel = normal(0, rows, 9), normal(1, 9, 6).astype(jnp.bfloat16)
    dx, dk = jax.grad(lambda x, k: jnp.sum(jnp.sin(linear(x, k))), (0, 1))(x, kernel)
    assert (dx.dtype, dk.dtype) == (jnp.float32, jnp.bfloat16)
    wide = kernel.astype(jnp.float32)
    exact = jax.grad(lambda x, k: jnp.sum(jnp.sin(x @ k)), (0, 1))(x, wide)
    np.testing.assert_allclose(dx, exact[0], atol=0.1)
    np.testing.assert_allclose(np.asarray(dk, np.float32), exact[1], atol=0.1)


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_scores_are_linear_by_the_transposed_table(rows, dtype):
    x, table = normal(0, rows, 33), normal(1, 17, 33).astype(dtype)
    np.testing.assert_allclose(scores(x, table), linear(x, table.T), rtol=1e-6, atol=1e-6)
    slopes = [
        jax.grad(lambda x, w, f=f: jnp.sum(jnp.sin(f(x, w))), (0, 1))(x, table)
        for f in (scores, lambda x, w: linear(x, w.T))
    ]
    for a, b in zip(*slopes, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(np.asarray(a, np.float32), np.asarray(b, np.float32), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_look_up_is_indexing_with_its_gradient(dtype):
    table, ids = normal(0, 11, 6).astype(dtype), jnp.array([[3, 3, 0], [10, 1, 3]])
    got = look_up(table, ids)
    assert got.dtype == jnp.float32
    np.testing.assert_array_equal(got, np.asarray(table.astype(jnp.float32))[np.asarray(ids)])
    ours = jax.grad(lambda w: jnp.sum(jnp.sin(look_up(w, ids))))(table)
    plain = jax.grad(lambda w: jnp.sum(jnp.sin(w[ids].astype(jnp.float32))))(table)
    np.testing.assert_array_equal(np.asarray(ours, np.float32), np.asarray(plain, np.float32))


@pytest.fixture
def qkv():
    return normal(0, 2, 4, 3, 5), normal(1, 2, 4, 7, 5), normal(2, 2, 4, 7, 5)


def test_attend_against_numpy(qkv):
    bias = normal(3, 1, 4, 3, 7)
    q, k, v, b = (np.asarray(x, np.float64) for x in (*qkv, bias))
    weights = np.exp(np.einsum("bhtd,bhld->bhtl", q, k) + b)
    weights /= weights.sum(-1, keepdims=True)
    expected = np.einsum("bhtl,bhld->bthd", weights, v).reshape(2, 3, 20)
    np.testing.assert_allclose(attend(*qkv, bias), expected, rtol=1e-5, atol=1e-5)


def test_hidden_slots_have_no_influence(qkv):
    q, k, v = qkv
    bias = jnp.where(jnp.arange(7) < 4, 0.0, HIDDEN)[None, None, None]
    np.testing.assert_array_equal(
        attend(q, k, v, bias), attend(q, k.at[:, :, 4:].set(9.0), v.at[:, :, 4:].set(1e6), bias)
    )


def test_a_query_that_sees_nothing_is_a_mean_and_no_nan(qkv):
    q, k, v = qkv
    bias = jnp.full((1, 1, 3, 7), HIDDEN)
    mean = jnp.mean(v, axis=2).reshape(2, 1, 20)
    np.testing.assert_allclose(attend(q, k, v, bias), np.broadcast_to(mean, (2, 3, 20)), atol=1e-5)
    slopes = jax.grad(lambda *a: jnp.sum(attend(*a, bias) ** 2), (0, 1, 2))(q, k, v)
    assert all(np.isfinite(slope).all() for slope in slopes)


def test_rms_norm_against_numpy():
    x, scale = np.asarray(normal(0, 2, 3, 8)) * 5 + 1, np.asarray(normal(1, 8))
    wide = x.astype(np.float64)
    expected = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-6) * scale
    np.testing.assert_allclose(rms_norm(jnp.asarray(x), jnp.asarray(scale), 1e-6), expected, rtol=1e-5)


def test_rms_norm_of_zeros_and_of_bfloat16():
    assert (rms_norm(jnp.zeros((1, 8)), jnp.ones(8), 1e-6) == 0).all()
    low = normal(0, 3, 8).astype(jnp.bfloat16)
    got = rms_norm(low, jnp.ones(8, jnp.bfloat16), 1e-6)
    assert got.dtype == jnp.float32
    np.testing.assert_array_equal(got, rms_norm(low.astype(jnp.float32), jnp.ones(8), 1e-6))
