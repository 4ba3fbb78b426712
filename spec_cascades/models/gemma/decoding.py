"""The LM protocol over a Gemma."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from spec_cascades import cache as kv
from spec_cascades.cache import Cache
from spec_cascades.models.gemma.blocks import embed, logits_of, one_a_layer, run_layers, view_of
from spec_cascades.models.gemma.config import Config
from spec_cascades.models.gemma.params import STACKED, serving, stack
from spec_cascades.typing import Array, Float, Int, Params

LAYER_AND_SLOT = lax.ScatterDimensionNumbers((2, 3), (0, 3), (0, 3), (1,), (0,))
"""Updates [b, t, h, d] into [n, b, h, l, d] at indices [b, t, 2]; `vmap` over the second axis would copy."""


def write(old: Any, new: Array, length: Int[Array, " b"], at: Any) -> tuple[Any, Any]:
    """The cache [b, h, l, d] or caches [n, b, h, l, d] with t new entries, and the layer's own."""
    if at is None:
        whole = kv.write(old, new, length)
        return whole, whole
    slots = length[:, None] + jnp.arange(new.shape[2])
    where = jnp.stack([jnp.full_like(slots, at), slots], -1)
    put = lambda buffer, entries: lax.scatter(
        *(buffer, where, jnp.swapaxes(entries, 1, 2), LAYER_AND_SLOT), unique_indices=True, mode="drop"
    )
    whole = jax.tree.map(put, old, kv.like(old, new))
    return whole, jax.tree.map(lambda x: lax.dynamic_index_in_dim(x, at, 0, keepdims=False), whole)


@dataclass(frozen=True)
class Gemma:
    """The LM protocol over a Gemma.

    cache_dtype: of cached keys and values; scan: parameters come stacked (`serving` sees to it, or `stack`),
    so that the time to compile does not grow with the number of layers.
    """

    config: Config
    cache_dtype: Any = jnp.float32
    scan: bool = False

    @property
    def vocab(self) -> int:
        return self.config.embeddings

    def flops_per_token(self) -> int:
        """FLOPs of one token: two a weight of the layers' kernels and of the logits."""
        c = self.config
        layer = 2 * c.d_model * c.head_dim * (c.heads + c.kv_heads) + 3 * c.d_model * c.d_ff
        return 2 * (c.layers * layer + c.d_model * c.embeddings)

    def serving(self, params: Params) -> Params:
        """See `serving`; stacked where this model scans its layers."""
        flat = serving(params, self.config)
        return stack(flat, self.config) if self.scan else flat

    def prefill(
        self, params: Params, tokens: Int[Array, "b s"], lengths: Int[Array, " b"], capacity: int
    ) -> tuple[Int[Array, " b"], Cache]:
        """Reads right-padded prompts (at least one token) up to the last one, which stays unread."""
        c, b = self.config, tokens.shape[0]
        blank = lambda *n: (kv.blank((*n, b, c.kv_heads, capacity, c.head_dim), self.cache_dtype),) * 2
        empty = Cache(one_a_layer(c, STACKED in params, blank), jnp.zeros(b, jnp.int32))
        _, layers = self._read(params, tokens, empty)
        last = jnp.take_along_axis(tokens, lengths[:, None] - 1, axis=1)[:, 0]
        return last, Cache(layers, lengths.astype(jnp.int32) - 1)

    def extend(
        self, params: Params, tokens: Int[Array, "b t"], cache: Cache
    ) -> tuple[Float[Array, "b t v"], Cache]:
        """Reads t tokens at each row's own position; logits [b, t, v] of the token after each."""
        x, layers = self._read(params, tokens, cache)
        return logits_of(params, x, self.config), kv.advance(cache, layers, tokens.shape[1])

    def _read(self, params: Params, tokens: Int[Array, "b t"], cache: Cache) -> tuple[Array, Any]:
        c, stacked = self.config, STACKED in params
        if stacked != (self.scan and c.layers >= c.pattern):
            raise ValueError(f"parameters are {'' if stacked else 'not '}stacked, but scan is {self.scan}")
        l = jax.tree.leaves(cache.layers)[0].shape[-2]
        view = view_of(c, cache.length, tokens.shape[1], l)

        def store(pair: Any, at: Any, *new: Array) -> tuple[Any, Any]:
            both = [write(old, entries, cache.length, at) for old, entries in zip(pair, new, strict=True)]
            return tuple(zip(*both, strict=True))

        return run_layers(params, c, embed(params, tokens, c), cache.layers, view, store)
