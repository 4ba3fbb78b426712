"""Append, drop at the end, rewind: on bare buffers and through every family's `extend`."""

import functools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from spec_cascades import cache as kv

FAMILIES = pytest.mark.parametrize("family", sorted(tiny.FAMILIES))


def row(*entries):
    """[1, 1, l, 1]: one head of one number a slot."""
    return jnp.asarray(entries, jnp.float32)[None, None, :, None]


def test_rows_are_written_at_their_own_lengths():
    new = jnp.concatenate([row(1, 2), row(3, 4), row(5, 6)])
    buffer = kv.write(jnp.zeros((3, 1, 6, 1)), new, jnp.asarray([0, 3, 4]))
    expected = [[1, 2, 0, 0, 0, 0], [0, 0, 0, 3, 4, 0], [0, 0, 0, 0, 5, 6]]
    np.testing.assert_array_equal(buffer[:, 0, :, 0], expected)


@pytest.mark.parametrize("length", [4, 5, 6, 7, 100])
def test_what_passes_the_end_is_dropped_and_nothing_is_clamped(length):
    new = kv.write(row(1, 2, 3, 4, 5), row(8, 9), jnp.asarray([length]))
    expected = [1, 2, 3, 4, 8] if length == 4 else [1, 2, 3, 4, 5]
    np.testing.assert_array_equal(new[0, 0, :, 0], expected)


@pytest.mark.parametrize("length", [0, 3, 4, 5, 100])
def test_a_lone_entry_is_written_or_dropped(length):
    new = kv.write(row(1, 2, 3, 4, 5), row(8), jnp.asarray([length]))
    expected = [8 if i == length else i + 1 for i in range(5)]
    np.testing.assert_array_equal(new[0, 0, :, 0], expected)


def test_values_take_the_dtype_of_the_buffer():
    got = kv.write(jnp.zeros((1, 1, 2, 1), jnp.bfloat16), row(1), jnp.zeros(1, jnp.int32))
    assert got.dtype == jnp.bfloat16


def test_a_query_sees_itself_and_what_lies_before_it():
    seen = kv.visible(jnp.asarray([0, 2]), 2, 4)
    np.testing.assert_array_equal(seen[0], [[1, 0, 0, 0], [1, 1, 0, 0]])
    np.testing.assert_array_equal(seen[1], [[1, 1, 1, 0], [1, 1, 1, 1]])


@functools.cache
def compiled(family):
    """A family's jitted prefill and extend, shared by all tests of this file."""
    model = tiny.FAMILIES[family]
    prefill = jax.jit(partial(model.target.prefill, model.params["target"]), static_argnums=2)
    return prefill, jax.jit(partial(model.target.extend, model.params["target"]))


def prefilled(family, capacity=24, prompts=None):
    """(extend, last, cache) of a family's target after the prompts."""
    prefill, extend = compiled(family)
    model = tiny.FAMILIES[family]
    return extend, *prefill(model.prompts if prompts is None else prompts, model.lengths, capacity)


def text(n, b=4, seed=0):
    return jax.random.randint(jax.random.key(seed), (b, n), 2, 5)


@FAMILIES
@pytest.mark.parametrize("cuts", [[1] * 9, [4, 5], [1, 4, 4]])
def test_chunks_equal_one_shot(family, cuts):
    extend, _, cache = prefilled(family)
    tokens = text(9)
    expected, whole = extend(tokens, cache)
    got, start = [], 0
    for n in cuts:
        logits, cache = extend(tokens[:, start : start + n], cache)
        got.append(logits)
        start += n
    np.testing.assert_allclose(jnp.concatenate(got, 1), expected, atol=2e-5)
    np.testing.assert_array_equal(cache.length, whole.length)


@FAMILIES
def test_rewind_then_extend_equals_fresh(family):
    """Each row goes back by a number of its own; stale entries behind it are not seen and are overwritten."""
    extend, _, cache = prefilled(family)
    kept, back = 6, jnp.asarray([0, 2, 5, 6])
    first, final = text(kept, seed=1), text(4, seed=2)
    _, read = extend(first, cache)
    rewound = kv.rewind(read, read.length - back)
    for t in (4, 1):
        got, _ = extend(final[:, :t], rewound)
        for i, stay in enumerate(kept - back):
            _, short = extend(first[:, : int(stay)], cache) if stay else (None, cache)
            expected, _ = extend(final[:, :t], short)
            np.testing.assert_allclose(got[i], expected[i], atol=2e-5)


@FAMILIES
def test_the_last_slot_is_read_and_spare_slots_change_nothing(family):
    tight, roomy = prefilled(family, 16), prefilled(family, 40)
    n = 16 - int(tight[2].length.max())
    got = [extend(text(n), cache)[0] for extend, _, cache in (tight, roomy)]
    np.testing.assert_allclose(got[0], got[1], atol=2e-5)


@FAMILIES
def test_padding_of_a_prompt_does_not_show(family):
    model = tiny.FAMILIES[family]
    expected = prefilled(family)
    wild = jnp.where(jnp.arange(7) < model.lengths[:, None], model.prompts, 3)
    more = jnp.pad(model.prompts, [(0, 0), (0, 5)])
    tokens = text(5)
    for prompts in (wild, more):
        extend, last, cache = prefilled(family, prompts=prompts)
        np.testing.assert_array_equal(last, expected[1])
        np.testing.assert_allclose(extend(tokens, cache)[0], expected[0](tokens, expected[2])[0], atol=2e-5)
