"""A key/value cache whose rows have lengths of their own: append, rewind, mask.

Rows are left-aligned and a token's position is its index. What lies at or beyond `length[b]` is stale:
causality hides it and the next append overwrites it. So a rejected draft, right padding and a finished
row are all the same operation, `rewind`, which lowers one integer.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from spec_cascades.int8 import Int8, rounded
from spec_cascades.typing import Array, Bool, Int, Num

COMPUTED = jnp.float32
"""What attention over int8 keys and values is computed in."""


class Cache(NamedTuple):
    """Per-layer keys and values, the number of tokens read per row, and what an encoder left.

    layers: one (k, v) a layer, each [b, h, l, d], arrays or `Int8` with a scale a row, head and slot;
    length: int32 [b]; memory: a family's own pytree
    (a T5 encoder's keys, values and mask) or None. A model without attention may keep any pytree of
    [b, h, l, d] arrays in `layers`.

    Heads lie before slots, so that attention is a plain batch of matrix products: with [b, l, h, d] a CPU
    transposes every layer's cache on every call (2.0 against 1.6 ms for five tokens of the embedded target).
    """

    layers: Any
    length: Int[Array, " b"]
    memory: Any = None


def empty(n: int, b: int, l: int, h: int, d: int, dtype: Any, memory: Any = None) -> Cache:
    """A cache of n layers for b rows of l tokens, nothing read."""
    layers = tuple((blank((b, h, l, d), dtype), blank((b, h, l, d), dtype)) for _ in range(n))
    return Cache(layers, jnp.zeros(b, jnp.int32), memory)


def blank(shape: tuple[int, ...], dtype: Any) -> Num[Array, "..."] | Int8:
    """Zeros as a cache of `dtype` keeps them."""
    if not _is_int8(dtype):
        return jnp.zeros(shape, dtype)
    return Int8(jnp.zeros(shape, jnp.int8), jnp.zeros((*shape[:-1], 1), jnp.float32), COMPUTED)


def stored(x: Num[Array, "... d"], dtype: Any) -> Num[Array, "... d"] | Int8:
    """Keys or values as a cache of `dtype` keeps them; int8 has one scale for the d numbers of an entry."""
    return rounded(x, -1, COMPUTED) if _is_int8(dtype) else x.astype(dtype)


def like(buffer: Num[Array, "..."] | Int8, new: Num[Array, "b h t d"]) -> Num[Array, "b h t d"] | Int8:
    """New entries as `buffer` keeps its own."""
    return stored(new, jnp.int8 if isinstance(buffer, Int8) else buffer.dtype)


def padded(kept: Num[Array, "b h t d"] | Int8, l: int) -> Num[Array, "b h l d"] | Int8:
    """Entries with empty slots behind them, l in all."""
    pad = lambda y: jnp.pad(y, ((0, 0), (0, 0), (0, l - y.shape[2]), (0, 0)))
    return jax.tree.map(pad, kept)


def _is_int8(dtype: Any) -> bool:
    return jnp.dtype(dtype) == jnp.int8


def write(
    buffer: Num[Array, "b h l d"] | Int8, new: Num[Array, "b h t d"], length: Int[Array, " b"]
) -> Num[Array, "b h l d"] | Int8:
    """Puts row b's t new entries at length[b]..length[b]+t-1; what would pass the end is dropped."""
    return jax.tree.map(partial(_put, length=length), buffer, like(buffer, new))


def _put(
    buffer: Num[Array, "b h l d"], new: Num[Array, "b h t d"], length: Int[Array, " b"]
) -> Num[Array, "b h l d"]:
    """`write` of one array.

    A scatter per row: `dynamic_update_slice` would clamp the start and destroy good entries, and
    `.at[rows, positions]` gathers the updates of all rows.
    """
    positions = length[:, None] + jnp.arange(new.shape[2])
    if positions.size == 1:
        # XLA makes two dynamic updates of a scatter of one entry, and copies of the cache to feed them.
        beyond = jnp.maximum(positions + 1, buffer.shape[2])
        positions = jnp.concatenate([positions, beyond], axis=1)
        new = jnp.pad(new, ((0, 0), (0, 0), (0, 1), (0, 0)))
    put = lambda row, values, at: row.at[:, at].set(values, mode="drop", unique_indices=True)
    return jax.vmap(put)(buffer, new, positions)


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
