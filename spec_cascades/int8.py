"""Arrays held as int8 values and float32 scales: weights, and cached keys and values."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from spec_cascades.typing import Array, Float

MOST = 127
"""The largest value: -128 is left out, so that the range is symmetric."""


@partial(jax.tree_util.register_dataclass, data_fields=["values", "scale"], meta_fields=["dtype"])
@dataclass(frozen=True)
class Int8:
    """x ~ values * scale, where a scale is shared along one axis (of size 1 in `scale`).

    values: int8, of x's shape; scale: float32; dtype: what products with the values are computed in. int8 is
    exact in bfloat16, so that widening loses nothing.
    """

    values: Array
    scale: Array
    dtype: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def ndim(self) -> int:
        return self.values.ndim

    @property
    def size(self) -> int:
        return self.values.size

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + self.scale.nbytes


def rounded(x: Float[Array, "..."], axis: int, dtype: Any) -> Int8:
    """x with one scale for all that lies along `axis`: scale = max |x| / 127, values = round(x / scale).

    The error of an entry is at most half a scale, 1/254 of the largest along the axis. dtype: of products.
    """
    wide = x.astype(jnp.float32)
    scale = jnp.max(jnp.abs(wide), axis=axis, keepdims=True) / MOST
    values = jnp.round(wide / jnp.where(scale > 0, scale, 1.0))
    return Int8(jnp.clip(values, -MOST, MOST).astype(jnp.int8), scale, jnp.dtype(dtype))


def widened(x: Int8) -> Float[Array, "..."]:
    """values * scale, float32: what the products treat x as."""
    return x.values.astype(jnp.float32) * x.scale
