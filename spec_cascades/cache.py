"""A key/value cache whose rows have lengths of their own: append, rewind, mask.

Rows are left-aligned and a token's position is its index. What lies at or beyond `length[b]` is stale:
causality hides it and the next append overwrites it. So a rejected draft, right padding and a finished
row are all the same operation, `rewind`, which lowers one integer.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from spec_cascades.typing import Array, Bool, Int, Num


class Cache(NamedTuple):
    """Per-layer keys and values, the number of tokens read per row, and what an encoder left.

    layers: one (k, v) a layer, each [b, h, l, d], or one of n scanned layers, each [b, n, h, l, d]; a `Ring`
    (`models/rings.py`) where a layer sees a window. length: int32 [b]. memory: a family's own pytree (a T5
    encoder's keys, values and mask) or None. A model without attention may keep any pytree of [b, ..., l, d]
    arrays in `layers`: rows lie first in all of them.

    Heads lie before slots, so that attention is a plain batch of matrix products: with [b, l, h, d] a CPU
    transposes every layer's cache on every call (2.0 against 1.6 ms for five tokens of the embedded target).
    """

    layers: Any
    length: Int[Array, " b"]
    memory: Any = None


def empty(n: int, b: int, l: int, h: int, d: int, dtype: Any, memory: Any = None) -> Cache:
    """A cache of n layers for b rows of l tokens, nothing read."""
    shape = (b, h, l, d)
    layers = tuple((jnp.zeros(shape, dtype), jnp.zeros(shape, dtype)) for _ in range(n))
    return Cache(layers, jnp.zeros(b, jnp.int32), memory)


def write(
    buffer: Num[Array, "b h l d"], new: Num[Array, "b h t d"], length: Int[Array, " b"]
) -> Num[Array, "b h l d"]:
    """Puts row b's t new entries at length[b]..length[b]+t-1; what would pass the end is dropped."""
    return scatter(buffer, new, length[:, None] + jnp.arange(new.shape[2]))


def scatter(
    buffer: Num[Array, "b h l d"], new: Num[Array, "b h t d"], slots: Int[Array, "b t"]
) -> Num[Array, "b h l d"]:
    """Puts row b's t new entries in slots[b], no two in the same; l or more is no slot and is dropped.

    A scatter per row: `dynamic_update_slice` would clamp the start and destroy good entries, and
    `.at[rows, slots]` gathers the updates of all rows.
    """
    if slots.size == 1:
        # XLA makes two dynamic updates of a scatter of one entry, and copies of the cache to feed them.
        beyond = jnp.maximum(slots + 1, buffer.shape[2])
        slots = jnp.concatenate([slots, beyond], axis=1)
        new = jnp.pad(new, ((0, 0), (0, 0), (0, 1), (0, 0)))
    put = lambda row, values, at: row.at[:, at].set(values, mode="drop", unique_indices=True)
    return jax.vmap(put)(buffer, new.astype(buffer.dtype), slots)


LAYER_AND_SLOT = lax.ScatterDimensionNumbers((2, 3), (1, 3), (1, 3), (0,), (0,))
"""Updates [b, t, h, d] into [b, n, h, l, d] at indices [b, t, 2], rows being a batch."""


def scatter_layer(
    buffer: Num[Array, "b n h l d"], new: Num[Array, "b h t d"], slots: Int[Array, "b t"], layer: Any
) -> Num[Array, "b n h l d"]:
    """`scatter` into one of n scanned layers' keys or values."""
    where = jnp.stack([jnp.full_like(slots, layer), slots], -1)
    new = jnp.swapaxes(new, 1, 2).astype(buffer.dtype)
    return lax.scatter(buffer, where, new, LAYER_AND_SLOT, unique_indices=True, mode="drop")


def store(pair: Any, new: Any, slots: Int[Array, "b t"], layer: Any = None) -> tuple[Any, Any]:
    """A layer's keys and values, or those of all scanned ones, with new entries in `slots`; the layer's own.

    layer: which of the scanned ones; None for a layer's own pair.
    """
    put = scatter if layer is None else partial(scatter_layer, layer=layer)
    whole = _like(pair, [put(old, entries, slots) for old, entries in zip(pair, new, strict=True)])
    return whole, of_layer(whole, layer)


def of_layer(pair: Any, layer: Any) -> Any:
    """One layer's keys and values of n scanned ones, or the pair where it is one layer's (None)."""
    if layer is None:
        return pair
    return jax.tree.map(lambda x: lax.dynamic_index_in_dim(x, layer, 1, keepdims=False), pair)


def store_prompts(pair: Any, new: Any, start: Int[Array, ""] | None, layer: Any = None) -> tuple[Any, Any]:
    """`store` of prompts' tokens, which stand at `start` in every row; padding is stored, too.

    start None: the tokens are the whole prompts, and the layer's own are the new entries alone.
    """
    new = tuple(entries.astype(old.dtype) for old, entries in zip(pair, new, strict=True))
    at = (0, 0, 0 if start is None else start, 0)
    spread, at = (lambda x: x, at) if layer is None else (lambda x: x[:, None], (0, layer, *at[1:]))
    put = lambda old, entries: lax.dynamic_update_slice(old, spread(entries), at)
    whole = _like(pair, [put(old, entries) for old, entries in zip(pair, new, strict=True)])
    return whole, new if start is None else of_layer(whole, layer)


def _like(pair: Any, two: list[Any]) -> Any:
    """The two as the pair is: a plain tuple or one with names (a ring)."""
    return pair._make(two) if hasattr(pair, "_make") else tuple(two)


def advance(cache: Cache, layers: Any, t: int) -> Cache:
    """The cache after a call that read t tokens in every row."""
    return cache._replace(layers=layers, length=cache.length + t)


def rewind(cache: Cache, length: Int[Array, " b"]) -> Cache:
    """The cache as if row b had read only its first length[b] tokens; length[b] <= cache.length[b]."""
    return cache._replace(length=length.astype(jnp.int32))


def distances(length: Int[Array, " b"], t: int, l: int) -> Int[Array, "b t l"]:
    """How far slot j lies behind query i: length[b] + i - j; negative slots are not to be seen."""
    queries = length[:, None] + jnp.arange(t)
    return queries[:, :, None] - jnp.arange(l)


def visible(length: Int[Array, " b"], t: int, l: int) -> Bool[Array, "b t l"]:
    """Causal mask of t queries that were appended at length[b] against l slots."""
    return distances(length, t, l) >= 0
