"""What every attention family shares: a linear map, an RMS norm, attention over given keys."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from spec_cascades.typing import Array, Float, Int, PRNGKeyArray

HIDDEN = -1e30
"""The bias of a slot not to be seen: finite, so that a query that sees nothing is a mean and no NaN."""


class Dropout(NamedTuple):
    """Rate and key of training's dropout; decoding passes None instead."""

    rate: float
    key: PRNGKeyArray

    def __call__(self, x: Array, where: int) -> Array:
        keep = jax.random.bernoulli(jax.random.fold_in(self.key, where), 1 - self.rate, x.shape)
        return jnp.where(keep, x / (1 - self.rate), 0.0)


def drop_out(dropout: Dropout | None, x: Array, where: int) -> Array:
    """x, or x with dropout in training; `where` tells a model's places apart."""
    return x if dropout is None else dropout(x, where)


def linear(x: Float[Array, "... i"], kernel: Float[Array, "i o"]) -> Float[Array, "... o"]:
    """x @ kernel, read in the kernel's dtype and accumulated in float32.

    On a CPU a bf16 product of a single row misses the fast path (three times the cost of two rows on
    the machine of docs/log.md), so one row travels as two. Other backends never see the second row.
    """
    rows = x.reshape(-1, x.shape[-1])
    lone = rows.shape[0] == 1 and kernel.dtype == jnp.bfloat16 and jax.default_backend() == "cpu"
    y = _product(jnp.concatenate([rows, rows]) if lone else rows, kernel)
    return y[: rows.shape[0]].reshape(*x.shape[:-1], kernel.shape[-1])


@jax.custom_vjp
def _product(x: Float[Array, "m i"], kernel: Float[Array, "i o"]) -> Float[Array, "m o"]:
    return lax.dot(x.astype(kernel.dtype), kernel, preferred_element_type=jnp.float32)


def _product_fwd(x: Array, kernel: Array) -> tuple[Array, tuple[Array, Array]]:
    return _product(x, kernel), (x, kernel)


def _product_bwd(saved: tuple[Array, Array], g: Array) -> tuple[Array, Array]:
    x, kernel = saved
    dx = lax.dot_general(
        g.astype(kernel.dtype), kernel, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
    )
    dk = lax.dot_general(
        x.astype(kernel.dtype),
        g.astype(kernel.dtype),
        (((0,), (0,)), ((), ())),
        preferred_element_type=jnp.float32,
    )
    return dx.astype(x.dtype), dk.astype(kernel.dtype)


_product.defvjp(_product_fwd, _product_bwd)


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
    k: Float[Array, "b h l d"],
    v: Float[Array, "b h l d"],
    bias: Float[Array, "#b #h #t l"],
    softcap: float | None = None,
) -> Float[Array, "b t n*d"]:
    """softmax(q k + bias) v, the softmax in float32; `HIDDEN` in the bias hides a slot.

    n may be a multiple of h: n / h neighbouring query heads share a key head. softcap: scores x become
    softcap * tanh(x / softcap) before the bias (Gemma 2).
    """
    b, n, t, d = q.shape
    h, l = k.shape[1:3]
    # The heads of a group are further rows of one product, so that keys are read once.
    rows = q.reshape(b, h, n // h * t, d)
    scores = jnp.einsum("bhtd,bhld->bhtl", rows.astype(k.dtype), k, preferred_element_type=jnp.float32)
    if softcap is not None:
        scores = softcap * jnp.tanh(scores / softcap)
    scores = scores.reshape(b, h, n // h, t, l) + bias[:, :, None]
    weights = jax.nn.softmax(scores, axis=-1).reshape(b, h, n // h * t, l)
    mixed = jnp.einsum("bhtl,bhld->bhtd", weights.astype(v.dtype), v, preferred_element_type=jnp.float32)
    return jnp.swapaxes(mixed.reshape(b, n, t, d), 1, 2).reshape(b, t, -1)
