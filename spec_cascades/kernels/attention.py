"""Attention of a block of new tokens over a long cache, of which a row reads no more than its length.

Dense attention reads every slot of the cache and masks; here each row's blocks of slots beyond its length, or
before its window, are neither fetched nor computed (softmax over blocks: Milakov and Gimelshein, 2018; Dao et
al., 2022). Its place is a TPU: elsewhere `reference` is what runs.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

from spec_cascades import axes
from spec_cascades import cache as kv
from spec_cascades.models.layers import HIDDEN, attend
from spec_cascades.typing import Array, Float, Int

BLOCK = 512
"""Slots that are fetched at once."""


def reference(
    q: Float[Array, "b n t d"],
    pair: Any,
    length: Int[Array, " b"],
    layer: Any = None,
    window: int | None = None,
    softcap: float | None = None,
) -> Float[Array, "b t n*d"]:
    """softmax(cap(q k)) v over the slots that each query sees; the same as `decode_attention`, densely."""
    k, v = kv.of_layer(pair, layer)
    behind = kv.distances(length, q.shape[2], k.shape[2])
    seen = (behind >= 0) if window is None else (behind >= 0) & (behind < window)
    return attend(q, k, v, jnp.where(seen, 0.0, HIDDEN)[:, None], softcap)


@partial(jax.jit, static_argnames=("window", "softcap", "block", "interpret"))
def decode_attention(
    q: Float[Array, "b n t d"],
    pair: Any,
    length: Int[Array, " b"],
    layer: Any = None,
    window: int | None = None,
    softcap: float | None = None,
    block: int = BLOCK,
    interpret: bool = False,
) -> Float[Array, "b t n*d"]:
    """What t queries at length[b] and after read of a cache in which their own keys stand already, float32.

    pair: keys and values [b, h, l, d], n a multiple of h; or those of scanned layers [b, n, h, l, d], of
    which `layer` is read where it lies. window: how many slots a query sees, itself included; softcap: as in
    `models.layers.attend`. interpret: on any backend, for tests. A query at or beyond l + window, which sees
    nothing, gives zeros. Raises ValueError for a layer without a stack or a stack without a layer.
    """
    keys, values = pair
    if (layer is None) == (keys.ndim == 5):
        raise ValueError(f"{'no' if layer is None else 'a'} layer does not go with keys of {keys.ndim} axes")
    if layer is None:
        keys, values, layer = keys[:, None], values[:, None], 0
    (b, n, t, d), (h, l) = q.shape, keys.shape[2:4]
    rows, block = n // h * t, min(block, l)
    blocks = -(-l // block)
    span = partial(_span, t=t, block=block, blocks=blocks, window=window)

    def slots(i: Array, j: Array, step: Array, length: Any, layer: Any) -> tuple[Any, ...]:
        # A step outside the row's span names the block that is there already, which is then not fetched.
        first, last = span(length[i])
        return i, layer[0], j, jnp.clip(step, first, last), 0

    mine = pl.BlockSpec((1, 1, rows, d), lambda i, j, step, length, layer: (i, j, 0, 0))
    cached = pl.BlockSpec((1, 1, 1, block, d), slots)
    out = pl.pallas_call(
        partial(_kernel, t=t, l=l, block=block, span=span, window=window, softcap=softcap),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            grid=(b, h, blocks),
            in_specs=[mine, cached, cached],
            out_specs=mine,
            scratch_shapes=[pltpu.VMEM((rows, 1), jnp.float32)] * 2 + [pltpu.VMEM((rows, d), jnp.float32)],
        ),
        out_shape=jax.ShapeDtypeStruct((b, h, rows, d), jnp.float32),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
        interpret=interpret,
        name="decode_attention",
    )(length.astype(jnp.int32), jnp.asarray(layer, jnp.int32)[None], q.reshape(b, h, rows, d), keys, values)
    return jnp.swapaxes(out.reshape(b, n, t, d), 1, 2).reshape(b, t, n * d)


@dataclass(frozen=True)
class OnMesh:
    """`decode_attention` where rows and heads are divided over the mesh around: each device reads its own.

    role: of the model, whose heads `axes.names` divides; key heads fewer than devices are there several
    times, each beside query heads that read it. interpret: as there. Raises ValueError, too, where a
    device's query heads would read only some of its key heads.
    """

    role: str
    interpret: bool = False

    def __call__(
        self,
        q: Float[Array, "b n t d"],
        pair: Any,
        length: Int[Array, " b"],
        layer: Any = None,
        window: int | None = None,
        softcap: float | None = None,
    ) -> Float[Array, "b t n*d"]:
        n, h = q.shape[1], pair[0].shape[-3]
        rows, queries, keys = axes.rows(len(q)), axes.names(n, self.role), axes.names(h, self.role)
        if keys != queries and axes.parts(keys) != h:
            raise ValueError(f"{n} query and {h} key heads are not divided alike over {queries} and {keys}")
        cached = P(rows, *[None] * (pair[0].ndim - 4), keys or None)

        def own(q: Array, k: Array, v: Array, length: Array, layer: Array) -> Array:
            at = None if k.ndim == 4 else layer
            return decode_attention(q, (k, v), length, at, window, softcap, interpret=self.interpret)

        run = jax.shard_map(
            own,
            in_specs=(P(rows, queries or None), cached, cached, P(rows), P()),
            out_specs=P(rows, None, queries or None),
            check_vma=False,  # what a kernel writes has no such type
        )
        return run(q, *pair, length, jnp.asarray(0 if layer is None else layer, jnp.int32))


def _span(length: Any, t: int, block: int, blocks: int, window: int | None) -> tuple[Any, Any]:
    """The first and the last block of slots that a row's queries see."""
    # Nothing is negative: Python's operators would ask for signs, and for the chip that is compiled for.
    last = jnp.minimum(lax.div(length + t - 1, block), blocks - 1)
    first = 0 if window is None else lax.div(jnp.maximum(length - window + 1, 0), block)
    return jnp.minimum(first, last), last


def _kernel(
    length: Any,
    layer: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    top: Any,
    total: Any,
    mixed: Any,
    *,
    t: int,
    l: int,
    block: int,
    span: Any,
    window: int | None,
    softcap: float | None,
) -> None:
    """One block of slots for the queries of one row and key head; top, total, mixed: the softmax so far."""
    step, begin = pl.program_id(2), length[pl.program_id(0)]
    first, last = span(begin)

    @pl.when(step == 0)
    def _() -> None:
        top[...] = jnp.full(top.shape, HIDDEN, jnp.float32)
        total[...] = jnp.zeros(total.shape, jnp.float32)
        mixed[...] = jnp.zeros(mixed.shape, jnp.float32)

    @pl.when((step >= first) & (step <= last))
    def _() -> None:
        keys, values = k[0, 0, 0], v[0, 0, 0]
        x = _product(q[0, 0].astype(keys.dtype), keys, 1)
        if softcap is not None:
            x = softcap * jnp.tanh(x / softcap)
        at = step * block + lax.broadcasted_iota(jnp.int32, x.shape, 1)
        behind = begin + lax.rem(lax.broadcasted_iota(jnp.int32, x.shape, 0), t) - at
        seen = (behind >= 0) & (at < l)
        if window is not None:
            seen = seen & (behind < window)
        x = jnp.where(seen, x, HIDDEN)
        higher = jnp.maximum(top[...], jnp.max(x, axis=1, keepdims=True))
        weights, kept = jnp.where(seen, jnp.exp(x - higher), 0.0), jnp.exp(top[...] - higher)
        if l % block:
            # What lies beyond the cache's end is whatever the memory holds.
            inside = step * block + lax.broadcasted_iota(jnp.int32, values.shape, 0) < l
            values = jnp.where(inside, values, jnp.zeros_like(values))
        top[...] = higher
        total[...] = kept * total[...] + jnp.sum(weights, axis=1, keepdims=True)
        mixed[...] = kept * mixed[...] + _product(weights.astype(values.dtype), values, 0)

    @pl.when(step == pl.num_programs(2) - 1)
    def _() -> None:
        out[0, 0] = mixed[...] / jnp.maximum(total[...], jnp.finfo(jnp.float32).tiny)


def _product(a: Array, b: Array, axis: int) -> Array:
    """a's last axis against b's `axis`, accumulated in float32."""
    return lax.dot_general(a, b, (((1,), (axis,)), ((), ())), preferred_element_type=jnp.float32)
