"""What every attention family shares: linear maps, tables, an RMS norm, attention over given keys."""

from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from spec_cascades import axes
from spec_cascades.int8 import Int8
from spec_cascades.typing import Array, Float, Int, Num, PRNGKeyArray

backend: ContextVar[str | None] = ContextVar("backend", default=None)
"""The platform that is compiled for where it is not the one at hand (`lowering.aot`)."""


def on_cpu() -> bool:
    """Whether what is traced will run on a CPU."""
    return (backend.get() or jax.default_backend()) == "cpu"


HIDDEN = -1e30
"""The bias of a slot not to be seen: finite, so that a query that sees nothing is a mean and no NaN."""

FEW = 8
"""Rows up to which a CPU multiplies int8 values one by one; a matrix product is faster for more."""
LARGEST = float(jnp.finfo(jnp.float32).max)


class Dropout(NamedTuple):
    """Rate and key of training's dropout; decoding passes None instead."""

    rate: float
    key: PRNGKeyArray

    def __call__(self, x: Array, where: int | Int[Array, ""]) -> Array:
        keep = jax.random.bernoulli(jax.random.fold_in(self.key, where), 1 - self.rate, x.shape)
        return jnp.where(keep, x / (1 - self.rate), 0.0)


def drop_out(dropout: Dropout | None, x: Array, where: int | Int[Array, ""]) -> Array:
    """x, or x with dropout in training; `where` tells a model's places apart."""
    return x if dropout is None else dropout(x, where)


def linear(x: Float[Array, "... i"], kernel: Float[Array, "i o"] | Int8) -> Float[Array, "... o"]:
    """x @ kernel, read in the kernel's dtype and accumulated in float32; an int8 kernel has a scale a column.

    On a CPU a bf16 or int8 product of a single row misses the fast path (three times the cost of two rows on
    the machine of docs/log.md), so one row travels as two. Other backends never see the second row.
    """
    return _rowwise(x, kernel, 0)


def summed(x: Float[Array, "... i"], kernel: Float[Array, "i o"] | Int8) -> Float[Array, "... o"]:
    """`linear` of a kernel whose inputs a mesh divides: what devices add up travels in bf16 if the kernel is.

    Each device's own part is accumulated in float32 and rounded once. Without a mesh, and on a CPU, which
    would widen such sums again, this is `linear`.
    """
    if not axes.divided() or on_cpu() or isinstance(kernel, Int8) or kernel.dtype != jnp.bfloat16:
        return linear(x, kernel)
    y = jnp.dot(x.astype(jnp.bfloat16), kernel, preferred_element_type=jnp.bfloat16)
    # Without the barrier XLA widens half of the sums before they travel.
    return lax.optimization_barrier(y).astype(jnp.float32)


def scores(x: Float[Array, "... m"], table: Float[Array, "v m"] | Int8) -> Float[Array, "... v"]:
    """x @ table.T as `linear` computes it; an int8 table has a scale a row.

    XLA for CPU would widen all of a bf16 `table.T` and store it.
    """
    return _rowwise(x, table, 1)


def _rowwise(
    x: Float[Array, "... i"], weights: Float[Array, "_ _"] | Int8, axis: int
) -> Float[Array, "... o"]:
    rows = x.reshape(-1, x.shape[-1])
    slow = isinstance(weights, Int8) or weights.dtype == jnp.bfloat16
    lone = rows.shape[0] == 1 and slow and on_cpu()
    product = _int8_product if isinstance(weights, Int8) else _product
    y = product(jnp.concatenate([rows, rows]) if lone else rows, weights, axis)
    return y[: rows.shape[0]].reshape(*x.shape[:-1], weights.shape[1 - axis])


def _int8_product(x: Float[Array, "r i"], weights: Int8, axis: int) -> Float[Array, "r o"]:
    """Rows of x times the values, then each output's scale."""
    if len(x) <= FEW and on_cpu():
        # Multiplied and added up as they are read: for a product a CPU would widen them and store that.
        x, values = lax.optimization_barrier((x, weights.values))
        own = x[:, :, None] if axis == 0 else x[:, None]
        y = jnp.sum(own * values.astype(jnp.float32), axis=1 + axis)
    else:
        y = _contract(x, _widen(weights.values, x, weights.dtype), 1, axis, weights.dtype)
    return y * weights.scale.reshape(1, -1)


def _widen(values: Num[Array, "..."], x: Float[Array, "..."], dtype: Any) -> Float[Array, "..."]:
    """int8 values in `dtype`, where x, which they meet, exists."""
    # The barrier keeps XLA from widening values before a loop they do not change in.
    x, values = lax.optimization_barrier((x, values))
    wide = values.astype(dtype)
    # XLA for CPU drops barriers before it orders instructions: all layers' values would be wide at once.
    return wide + (x.ravel()[0] > LARGEST).astype(dtype) if on_cpu() else wide


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _product(x: Float[Array, "r i"], weights: Float[Array, "_ _"], axis: int) -> Float[Array, "r o"]:
    """Rows of x times weights, whose `axis` is x's."""
    return _contract(x, weights, 1, axis, weights.dtype)


def _contract(a: Array, b: Array, of_a: int, of_b: int, dtype: Any) -> Array:
    dims = (((of_a,), (of_b,)), ((), ()))
    return lax.dot_general(a.astype(dtype), b.astype(dtype), dims, preferred_element_type=jnp.float32)


def _product_fwd(x: Array, weights: Array, axis: int) -> tuple[Array, tuple[Array, Array]]:
    return _product(x, weights, axis), (x, weights)


def _product_bwd(axis: int, saved: tuple[Array, Array], g: Array) -> tuple[Array, Array]:
    x, weights = saved
    dx = _contract(g, weights, 1, 1 - axis, weights.dtype)
    dw = _contract(*((x, g) if axis == 0 else (g, x)), 0, 0, weights.dtype)
    return dx.astype(x.dtype), dw.astype(weights.dtype)


_product.defvjp(_product_fwd, _product_bwd)


def look_up(table: Float[Array, "v m"] | Int8, ids: Int[Array, "b t"]) -> Float[Array, "b t m"]:
    """The table's rows of the ids, float32."""
    # The barrier ties the table to the step: XLA for CPU would else widen all of a bf16 table before a loop.
    table, ids = lax.optimization_barrier((table, ids))
    if isinstance(table, Int8):
        return axes.by_rows(table.values[ids].astype(jnp.float32) * table.scale[ids])
    return axes.by_rows(table[ids].astype(jnp.float32))


def rms_norm(x: Float[Array, "... m"], scale: Float[Array, " m"], epsilon: float) -> Float[Array, "... m"]:
    """x / sqrt(mean x^2 + epsilon) * scale, in float32 (T5 and LLaMA subtract no mean and add no bias)."""
    x = x.astype(jnp.float32)
    return x * lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + epsilon) * scale.astype(jnp.float32)


def rotate(
    x: Float[Array, "b n t d"], positions: Int[Array, "b t"], frequencies: Float[Array, " r"]
) -> Float[Array, "b n t d"]:
    """Rotary positions (Su et al., 2021), float32: pair (x_i, x_{i + d/2}) turned by position * frequency_i.

    frequencies: d/2 of them, radians a token; the halves are the pairs (Hugging Face's and Gemma's layout).
    """
    angle = positions[:, None, :, None].astype(jnp.float32) * frequencies
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    a, b = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def attend(
    q: Float[Array, "b n t d"],
    k: Float[Array, "b h l d"] | Int8,
    v: Float[Array, "b h l d"] | Int8,
    bias: Float[Array, "#b #h #t l"],
    softcap: float | None = None,
) -> Float[Array, "b t n*d"]:
    """softmax(q k + bias) v, the softmax in float32; `HIDDEN` in the bias hides a slot.

    n may be a multiple of h: n / h neighbouring query heads share a key head. softcap: scores x become
    softcap * tanh(x / softcap) before the bias (Gemma 2). Of int8 keys and values the scale of each slot
    multiplies its scores and its weights, so that neither is widened as a whole.
    """
    b, n, t, d = q.shape
    h, l = k.shape[1:3]
    # The heads of a group are further rows of one product, so that keys are read once.
    rows = q.reshape(b, h, n // h * t, d)
    scores = _with_slots("bhtd,bhld->bhtl", rows, k)
    if isinstance(k, Int8):
        scores = scores * jnp.swapaxes(k.scale, 2, 3)
    if softcap is not None:
        scores = softcap * jnp.tanh(scores / softcap)
    scores = scores.reshape(b, h, n // h, t, l) + bias[:, :, None]
    weights = jax.nn.softmax(scores, axis=-1).reshape(b, h, n // h * t, l)
    if isinstance(v, Int8):
        weights = weights * jnp.swapaxes(v.scale, 2, 3)
    mixed = _with_slots("bhtl,bhld->bhtd", weights, v)
    return jnp.swapaxes(mixed.reshape(b, n, t, d), 1, 2).reshape(b, t, -1)


def _with_slots(sums: str, x: Float[Array, "b h t _"], slots: Float[Array, "b h l d"] | Int8) -> Array:
    """An einsum in the slots' dtype, accumulated in float32; scales are the caller's."""
    dtype = slots.dtype
    wide = _widen(slots.values, x, dtype) if isinstance(slots, Int8) else slots
    return jnp.einsum(sums, x.astype(dtype), wide, preferred_element_type=jnp.float32)
