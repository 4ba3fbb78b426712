"""What every attention family shares: a linear map, an RMS norm, attention over given keys."""

import jax
import jax.numpy as jnp
from jax import lax

from spec_cascades.typing import Array, Float

HIDDEN = -1e30
"""The bias of a slot not to be seen: finite, so that a query that sees nothing is a mean and no NaN."""


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


def attend(
    q: Float[Array, "b h t d"],
    k: Float[Array, "b h l d"],
    v: Float[Array, "b h l d"],
    bias: Float[Array, "#b #h #t l"],
) -> Float[Array, "b t h*d"]:
    """softmax(q k + bias) v, the softmax in float32; `HIDDEN` in the bias hides a slot."""
    scores = jnp.einsum("bhtd,bhld->bhtl", q.astype(k.dtype), k, preferred_element_type=jnp.float32)
    weights = jax.nn.softmax(scores + bias, axis=-1)
    mixed = jnp.einsum("bhtl,bhld->bhtd", weights.astype(v.dtype), v, preferred_element_type=jnp.float32)
    return jnp.swapaxes(mixed, 1, 2).reshape(q.shape[0], q.shape[2], -1)
