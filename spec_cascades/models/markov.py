"""A toy language model whose laws can be enumerated: the next token depends on the last three.

Its context lives in the cache and nowhere else, so a wrong rewind, a lost token or a shifted row changes the
distribution that a test measures.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from spec_cascades import cache as kv
from spec_cascades.cache import Cache
from spec_cascades.typing import Array, Float, Int, Params, PRNGKeyArray


def init(key: PRNGKeyArray, vocab: int, scale: float = 1.0) -> Params:
    """Three [v, v] tables of normal scores, for the token just read and the two before it."""
    return scale * jax.random.normal(key, (3, vocab, vocab))


@dataclass(frozen=True)
class Markov:
    """The LM protocol: logits(next) = T0[x_i] + T1[x_{i-1}] + T2[x_{i-2}], x before the first being 0."""

    vocab: int

    def prefill(
        self,
        params: Params,
        tokens: Int[Array, "b s"],
        lengths: Int[Array, " b"],
        capacity: int,
        width: int | None = None,
    ) -> tuple[Int[Array, " b"], Cache]:
        """Reads right-padded prompts (at least one token) up to the last one, which stays unread."""
        b = tokens.shape[0]
        blank = Cache((jnp.zeros((b, 1, capacity, 1), jnp.int32),), jnp.zeros(b, jnp.int32))
        last = jnp.take_along_axis(tokens, lengths[:, None] - 1, axis=1)[:, 0]
        _, full = self.extend(params, tokens, blank)
        return last, kv.rewind(full, lengths - 1)

    def extend(
        self, params: Params, tokens: Int[Array, "b t"], cache: Cache
    ) -> tuple[Float[Array, "b t v"], Cache]:
        """Reads t tokens at each row's own position; logits [b, t, v] of the token after each."""
        (buffer,) = cache.layers
        buffer = kv.write(buffer, tokens[:, None, :, None], cache.length)
        read = buffer[:, 0, :, 0]
        at = cache.length[:, None] + jnp.arange(tokens.shape[1])
        back = lambda n: jnp.where(at >= n, jnp.take_along_axis(read, jnp.maximum(at - n, 0), axis=1), 0)
        logits = params[0][back(0)] + params[1][back(1)] + params[2][back(2)]
        return logits, kv.advance(cache, (buffer,), tokens.shape[1])
