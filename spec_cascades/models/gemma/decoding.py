"""The LM protocol over a Gemma."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from spec_cascades import cache as kv
from spec_cascades.cache import Cache
from spec_cascades.models import chunks, rings
from spec_cascades.models.gemma.blocks import embed, logits_of, one_a_layer, run_layers, view_of
from spec_cascades.models.gemma.config import Config
from spec_cascades.models.gemma.params import STACKED, serving, stack
from spec_cascades.typing import Array, Float, Int, Params


@dataclass(frozen=True)
class Gemma:
    """The LM protocol over a Gemma.

    cache_dtype: of cached keys and values; scan: parameters come stacked (`serving` sees to it, or `stack`),
    so that the time to compile does not grow with the number of layers; attention: what reads whole caches,
    as `kernels.attention.decode_attention` does, None for all slots at once, as rings are always read;
    chunk: longer prompts are read in pieces of at most so many tokens.
    """

    config: Config
    cache_dtype: Any = jnp.float32
    scan: bool = False
    attention: Callable[..., Any] | None = None
    chunk: int = chunks.CHUNK

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
        self,
        params: Params,
        tokens: Int[Array, "b s"],
        lengths: Int[Array, " b"],
        capacity: int,
        width: int | None = None,
    ) -> tuple[Int[Array, " b"], Cache]:
        """Reads right-padded prompts (at least one token) up to the last one, which stays unread.

        width: local layers keep rings for blocks of at most so many tokens (`models/rings.py`).
        """
        unread = (lengths - 1).astype(jnp.int32)
        blank = lambda slots: self._blank(params, tokens.shape[0], slots, capacity, width)
        read = lambda layers, some, start: self._read_prompts(params, some, layers, start, unread)
        layers = chunks.read(read, blank, tokens, capacity, self.chunk)
        return jnp.take_along_axis(tokens, unread[:, None], axis=1)[:, 0], Cache(layers, unread)

    def extend(
        self, params: Params, tokens: Int[Array, "b t"], cache: Cache
    ) -> tuple[Float[Array, "b t v"], Cache]:
        """Reads t tokens at each row's own position; logits [b, t, v] of the token after each."""
        t, c = tokens.shape[1], self.config
        near, far = (rings.positions(cache.length + t, pair) for pair in self._kinds(params, cache.layers))
        view = view_of(c, cache.length[:, None] + jnp.arange(t), near, far)

        def store(pair: Any, at: Any, *new: Array) -> tuple[Any, Any]:
            whole, own = rings.store(pair, new, cache.length, at)
            if self.attention is None or isinstance(pair, rings.Ring):
                return whole, own
            given = whole, cache.length, at
            return whole, lambda q, window: self.attention(q, *given, window, c.attention_softcap)

        x, layers = run_layers(params, c, embed(params, tokens, c), cache.layers, view, store)
        return logits_of(params, x, c), kv.advance(cache, layers, t)

    def _read_prompts(
        self, params: Params, tokens: Int[Array, "b c"], layers: Any, start: Any, end: Int[Array, " b"]
    ) -> Any:
        """The caches with the tokens at `start` of every row, of which those before end[b] count."""
        (b, t), c = tokens.shape, self.config
        at = jnp.broadcast_to(jnp.arange(t) + (0 if start is None else start), (b, t))
        keys = lambda pair: at[:1] if start is None else rings.positions_of_prompts(start, t, pair)
        view = view_of(c, at, *map(keys, self._kinds(params, layers)))
        store = lambda pair, i, *new: rings.store_prompts(pair, new, start, end, i)
        return run_layers(params, c, embed(params, tokens, c), layers, view, store)[1]

    def _blank(self, params: Params, b: int, slots: int, capacity: int, width: int | None) -> Any:
        """Caches of nothing; those of global layers with so many slots."""
        c, ring = self.config, rings.size(self.config.window, width, capacity)

        def pair(i: int, *n: int) -> Any:
            kept = ring if c.local(i) else None
            zeros = kv.blank((b, *n, c.kv_heads, kept or slots, c.head_dim), self.cache_dtype)
            return rings.Ring(zeros, zeros) if kept else (zeros, zeros)

        return one_a_layer(c, self._stacked(params), pair)

    def _kinds(self, params: Params, layers: Any) -> tuple[Any, Any]:
        """The cache of some local layer and of some global one; of the other kind where there is none."""
        pairs = (*layers[0], *layers[1]) if self._stacked(params) else layers
        found = {self.config.local(i): pair for i, pair in enumerate(pairs)}
        return found.get(True, pairs[0]), found.get(False, pairs[0])

    def _stacked(self, params: Params) -> bool:
        """Whether the parameters are; ValueError unless they are as this model says."""
        stacked, c = STACKED in params, self.config
        if stacked != (self.scan and c.layers >= c.pattern):
            raise ValueError(f"parameters are {'' if stacked else 'not '}stacked, but scan is {self.scan}")
        return stacked
