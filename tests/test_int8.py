"""int8 arrays: how they are rounded, and that every product treats them as values * scale."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_cascades import cache as kv
from spec_cascades.int8 import Int8, rounded, widened
from spec_cascades.models.layers import FEW, HIDDEN, attend, linear, look_up, scores


def normal(seed, *shape):
    return jax.random.normal(jax.random.key(seed), shape, jnp.float32)


def test_each_column_has_the_scale_of_its_largest_entry():
    kernel = jnp.asarray([[127.0, 0.0, -0.5], [-63.6, 0.0, 1.0]])
    got = rounded(kernel, -2, jnp.float32)
    np.testing.assert_array_equal(got.values, [[127, 0, -64], [-64, 0, 127]])
    np.testing.assert_allclose(got.scale, [[1.0, 0.0, 1 / 127]], rtol=1e-7)
    assert (got.values.dtype, got.scale.dtype, got.dtype) == (jnp.int8, jnp.float32, jnp.float32)


@pytest.mark.parametrize("axis", [-1, -2])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_no_entry_is_off_by_more_than_half_a_scale(axis, dtype):
    x = (normal(0, 2, 50, 60) * jnp.exp(3 * normal(1, 2, 1, 60))).astype(dtype)
    got = rounded(x, axis, dtype)
    assert got.shape == x.shape
    assert got.scale.shape == ((2, 50, 1) if axis == -1 else (2, 1, 60))
    wide = np.asarray(x, np.float32)
    off = np.abs(np.asarray(widened(got)) - wide)
    assert (off <= np.asarray(got.scale) * 0.5001).all()
    assert np.abs(got.values).max() == 127
    assert got.values.min() >= -127


def test_what_is_symmetric_stays_so():
    x = normal(0, 20, 30)
    np.testing.assert_array_equal(rounded(-x, -1, jnp.float32).values, -rounded(x, -1, jnp.float32).values)


@pytest.mark.parametrize("rows", [1, 5, FEW + 1])
def test_products_are_those_of_values_times_scale(rows):
    x = normal(0, rows, 33)
    kernel, table = rounded(normal(1, 33, 17), -2, jnp.float32), rounded(normal(2, 17, 33), -1, jnp.float32)
    exact = lambda a, b: np.asarray(a, np.float64) @ np.asarray(b, np.float64)
    np.testing.assert_allclose(linear(x, kernel), exact(x, widened(kernel)), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(scores(x, table), exact(x, widened(table).T), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [1, FEW + 1])
def test_a_bfloat16_model_rounds_at_most_the_rows(rows):
    """A CPU multiplies few rows in float32 and more in bfloat16; the values lose nothing in either."""
    x, kernel = normal(0, 1, rows, 33), rounded(normal(1, 33, 17), -2, jnp.bfloat16)
    read = x if rows <= FEW else x.astype(jnp.bfloat16)
    got = linear(x, kernel)
    assert (got.shape, got.dtype) == ((1, rows, 17), jnp.float32)
    expected = np.asarray(read, np.float64) @ np.asarray(widened(kernel), np.float64)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_looking_up_gives_the_rows():
    table, ids = rounded(normal(0, 11, 6), -1, jnp.bfloat16), jnp.asarray([[3, 3, 0], [10, 1, 3]])
    np.testing.assert_array_equal(look_up(table, ids), np.asarray(widened(table))[np.asarray(ids)])


@pytest.mark.parametrize("softcap", [None, 2.0])
def test_attention_over_int8_slots_is_that_over_the_widened_ones(softcap):
    q, bias = normal(0, 2, 4, 3, 5), jnp.where(jnp.arange(7) < 5, 0.0, HIDDEN)[None, None, None]
    grow = jnp.exp(2 * normal(3, 2, 2, 7, 1))
    k, v = (rounded(normal(seed, 2, 2, 7, 5) * grow, -1, jnp.float32) for seed in (1, 2))
    expected = attend(q, widened(k), widened(v), bias, softcap)
    np.testing.assert_allclose(attend(q, k, v, bias, softcap), expected, rtol=1e-5, atol=1e-5)


def test_a_cache_keeps_entries_with_their_own_scales_and_drops_what_passes_the_end():
    buffer = kv.blank((2, 1, 5, 3), jnp.int8)
    new = normal(0, 2, 1, 3, 3) * jnp.asarray([1.0, 100.0, 0.01])[:, None]
    got = kv.write(buffer, new, jnp.asarray([1, 4]))
    assert isinstance(got, Int8)
    assert (got.shape, got.scale.shape) == ((2, 1, 5, 3), (2, 1, 5, 1))
    wanted = np.zeros((2, 1, 5, 3), np.float32)
    wanted[0, :, 1:4], wanted[1, :, 4:] = new[0], new[1, :, :1]
    assert (np.abs(widened(got) - wanted) <= np.abs(wanted).max(-1, keepdims=True) / 253).all()
    np.testing.assert_array_equal(got.values[0, 0, [0, 4]], 0)
    again = kv.write(got, new[:, :, :1] * 2, jnp.asarray([1, 4]))
    np.testing.assert_array_equal(again.values, got.values)
    assert (again.scale != got.scale).sum() == 2
