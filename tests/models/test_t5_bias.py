"""Relative positions against the bucket rule of the T5 paper written out, a pair of positions at a time."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from spec_cascades import cache as kv
from spec_cascades.models import t5


def bucket(behind, buckets, far, both_ways):
    """Half the buckets for exact distances, the rest in logarithms to `far`; an encoder's split by side."""
    offset = 0
    if both_ways:
        buckets //= 2
        offset = buckets if behind < 0 else 0
        behind = abs(behind)
    behind, exact = max(behind, 0), buckets // 2
    if behind < exact:
        return offset + behind
    share = math.log(behind / exact) / math.log(far / exact)
    return offset + min(exact + int(share * (buckets - exact) + 1e-6), buckets - 1)


@pytest.mark.parametrize(("buckets", "far"), [(32, 128), (8, 20)])
@pytest.mark.parametrize("both_ways", [False, True])
def test_buckets(buckets, far, both_ways):
    config = t5.Config(buckets=buckets, max_distance=far)
    behind = np.arange(-300, 301)
    got = t5._bucket(jnp.asarray(behind), config, both_ways)
    np.testing.assert_array_equal(got, [bucket(int(x), buckets, far, both_ways) for x in behind])


def test_the_decoders_bias_is_by_distance_from_each_rows_own_position():
    config = t5.Config(buckets=8, max_distance=20, heads=2)
    table = np.random.default_rng(0).normal(size=(2, 8)).astype(np.float32)
    params = {"decoder": {"relpos_bias": {"rel_embedding": jnp.asarray(table)}}}
    length, t, l = np.asarray([0, 3, 17]), 4, 24
    bias = np.asarray(t5._causal_bias(params, config, kv.distances(jnp.asarray(length), t, l)))
    for row, start in enumerate(length):
        for i in range(t):
            for slot in range(l):
                behind = start + i - slot
                if behind < 0:
                    assert (bias[row, :, i, slot] < -1e20).all()
                else:
                    np.testing.assert_array_equal(
                        bias[row, :, i, slot], table[:, bucket(behind, 8, 20, False)]
                    )
