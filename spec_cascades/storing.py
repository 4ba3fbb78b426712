"""How a loaded model lies in memory: weights as they were read or as int8, the cache in its own dtype."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from spec_cascades.checkpoints import Loaded
from spec_cascades.int8 import Int8, rounded
from spec_cascades.typing import Params

SHARED_AXIS = {
    "embedding": -1,
    "input_embedding": -1,
    "kernel": -2,
    "w": -2,
    "gating_einsum": -2,
    "linear": -2,
}
"""Leaves of a served tree that are held as int8, and the axis that shares a scale: a table's rows and a
kernel's columns have one each. Norms, biases and whatever else a tree holds stay as they are."""


class Storage(NamedTuple):
    """weights: "dtype" or "int8"; cache: dtype of cached keys and values."""

    weights: str = "dtype"
    cache: str = "float32"


def arranged(loaded: Loaded, storage: Storage, serve: Callable[[Params], Params] | None = None) -> Loaded:
    """The model as `storage` wants it, its parameters as decoding does.

    Takes the parameters over: where they become int8 their dictionaries are emptied on the way. serve: how
    they are made as decoding wants them, None for the model's own `serving`.
    """
    params = (serve or loaded.lm.serving)(loaded.params)
    # Nothing else may hold the tree as it was read, or no tensor could go before all are done.
    loaded = loaded._replace(lm=cached_as(loaded.lm, storage.cache), params=None)
    return loaded._replace(params=as_int8(params) if storage.weights == "int8" else params)


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
        elif name in SHARED_AXIS and leaf.ndim >= 2:
            made[name] = jax.block_until_ready(_rounded(leaf, SHARED_AXIS[name], leaf.dtype))
        else:
            made[name] = leaf
    return made


_rounded = partial(jax.jit, static_argnums=(1, 2))(rounded)


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
