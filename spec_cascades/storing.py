"""How a loaded model lies in memory: weights as they were read or as int8, the cache in its own dtype."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec, Sharding

from spec_cascades.checkpoints.leaves import Leaf
from spec_cascades.checkpoints.placing import Hold, array
from spec_cascades.int8 import Int8, rounded
from spec_cascades.typing import Array, Params

SHARED_AXIS = {
    "embedding": -1,
    "input_embedding": -1,
    "kernel": -2,
    "w": -2,
    "gating_einsum": -2,
    "linear": -2,
    "gate": -2,
    "up": -2,
}
"""Leaves of a served tree that are held as int8, and the axis that shares a scale: a table's rows and a
kernel's columns have one each. Norms, biases and whatever else a tree holds stay as they are."""


class Storage(NamedTuple):
    """weights: "dtype" or "int8"; cache: dtype of cached keys and values."""

    weights: str = "dtype"
    cache: str = "float32"


def as_int8(params: Params) -> Params:
    """The parameters with every kernel and table as `Int8`; `params` is emptied, tensor by tensor.

    Products are computed in the dtype that a tensor had. There are at most the tree and one tensor more at
    any time.
    """
    made = {}
    for name in list(params):
        leaf = params.pop(name)
        if isinstance(leaf, Mapping):
            made[name] = as_int8(leaf)
        elif _quantised(name, leaf):
            made[name] = jax.block_until_ready(_rounded(leaf, SHARED_AXIS[name], leaf.dtype))
        else:
            made[name] = leaf
    return made


def _quantised(name: str, leaf: Any) -> bool:
    return name in SHARED_AXIS and leaf.ndim >= 2


def read_as_int8(path: str, leaf: Leaf, dtype: str, sharding: Sharding | None) -> Any:
    """A leaf read in `dtype` and held as `as_int8` holds it; of stacked layers one after another.

    A scale is shared along its axis over all devices that divide it.
    """
    name = path.rpartition("/")[2]
    if not _quantised(name, leaf):
        return array(path, leaf, dtype, sharding)
    axis, where = SHARED_AXIS[name], _sharding(sharding, SHARED_AXIS[name], leaf.ndim, dtype)
    if not leaf.layers or (sharding is not None and sharding.shard_shape(leaf.shape)[0] < leaf.shape[0]):
        return jax.block_until_ready(_rounded(array(path, leaf, dtype, sharding), axis, dtype, where))
    held = None
    for i in range(len(leaf.layers)):
        one = _rounded(array(path, leaf.layer(i), dtype, sharding), axis, dtype, where)
        held = jax.block_until_ready(_put(held or _empty(one, len(leaf.layers), where), one, i))
    return held


HOLD: Mapping[str, Hold] = {"dtype": array, "int8": read_as_int8}
"""models.weights -> how a leaf is held as soon as it is read."""


def _sharding(values: Sharding | None, axis: int, ndim: int, dtype: str) -> Int8 | None:
    """Where values and scales lie: a scale as the values that it belongs to, whole along its axis."""
    if values is None:
        return None
    spec = [*values.spec, *[None] * (ndim - len(values.spec))]
    spec[axis] = None
    return Int8(values, NamedSharding(values.mesh, PartitionSpec(*spec)), jnp.dtype(dtype))


def _laid(x: Int8, where: Int8 | None) -> Int8:
    return x if where is None else lax.with_sharding_constraint(x, where)


@partial(jax.jit, static_argnums=(1, 2, 3))
def _rounded(x: Array, axis: int, dtype: Any, where: Int8 | None = None) -> Int8:
    return _laid(rounded(x, axis, dtype), where)


@partial(jax.jit, static_argnums=(1, 2))
def _empty(one: Int8, n: int, where: Int8 | None) -> Int8:
    return _laid(jax.tree.map(lambda x: jnp.zeros((n, *x.shape[1:]), x.dtype), one), where)


@partial(jax.jit, donate_argnums=0)
def _put(held: Int8, one: Int8, i: int) -> Int8:
    """Writes layer i in place."""
    return jax.tree.map(lambda x, part: lax.dynamic_update_slice_in_dim(x, part, i, 0), held, one)


def cached_as(lm: Any, dtype: str) -> Any:
    """The model with its cached keys and values in `dtype`, those that it wraps included.

    A model without such a cache (the toy) is returned as it is.
    """
    if hasattr(lm, "lm"):
        return replace(lm, lm=cached_as(lm.lm, dtype))
    return replace(lm, cache_dtype=jnp.dtype(dtype)) if hasattr(lm, "cache_dtype") else lm


def bytes_a_weight(params: Params) -> float:
    """Bytes that a weight of the largest tensor takes, scales included."""
    leaves = jax.tree.leaves(params, is_leaf=lambda x: isinstance(x, Int8))
    largest = max(leaves, key=lambda x: x.size)
    return largest.nbytes / largest.size
