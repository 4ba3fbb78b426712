"""A model that also copies: what followed the last tokens where they occurred before gets a share of q."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from spec_cascades import cache as kv
from spec_cascades.cache import Cache
from spec_cascades.finding import behind, followed
from spec_cascades.typing import Array, Float, Int, Params

TRUST = (0.0, 0.55, 0.6, 0.85)
"""How often the token behind the newest earlier occurrence of 1, 2, 3, 4 tokens is the target's own choice,
roughly, on SmolLM2's answers to Spec-Bench (docs/log.md); one token of suffix says too little to be used."""


@dataclass(frozen=True)
class Copying:
    """The LM protocol over `lm`, with q(v) = (1 - w) lm(v) + w [v is the token found].

    The token found stands behind the newest earlier occurrence of the longest suffix, at most len(trust)
    tokens, of the text so far, an encoder's source included; w = trust[n - 1] for a suffix of n tokens, 0
    where none occurred before. q follows from the text alone, as a model's does, so whatever drafts with it
    stays exact. Raises ValueError unless every w is in [0, 1).
    """

    lm: Any
    trust: tuple[float, ...] = TRUST

    def __post_init__(self) -> None:
        if not self.trust or not all(0 <= w < 1 for w in self.trust):
            raise ValueError(f"trust {self.trust} must hold shares of at least 0 and less than 1")

    @property
    def vocab(self) -> int:
        return self.lm.vocab

    @property
    def encodes(self) -> bool:
        return getattr(self.lm, "encodes", False)

    def flops_per_token(self) -> int:
        """FLOPs of one decoded token."""
        return self.lm.flops_per_token()

    def serving(self, params: Params) -> Params:
        """The parameters as decoding wants them."""
        return self.lm.serving(params)

    def prefill(
        self,
        params: Params,
        tokens: Int[Array, "b s"],
        lengths: Int[Array, " b"],
        capacity: int,
        width: int | None = None,
    ) -> tuple[Int[Array, " b"], Cache]:
        """Reads the prompts but their last tokens; the text is kept beside the model's own cache."""
        last, own = self.lm.prefill(params, tokens, lengths, capacity, width)
        b, s = tokens.shape
        text = jnp.zeros((b, 1, capacity, 1), jnp.int32)
        source = (tokens, lengths)
        if not self.encodes:
            text, source = text.at[:, 0, :s, 0].set(tokens), (tokens[:, :0], jnp.zeros_like(lengths))
        return last, Cache((own.layers, text), own.length, (own.memory, source))

    def extend(
        self, params: Params, tokens: Int[Array, "b t"], cache: Cache
    ) -> tuple[Float[Array, "b t v"], Cache]:
        """Reads t tokens; logits [b, t, v] of the token after each."""
        (layers, text), (memory, source) = cache.layers, cache.memory
        logits, own = self.lm.extend(params, tokens, Cache(layers, cache.length, memory))
        text = kv.write(text, tokens[:, None, :, None], cache.length)
        lengths = cache.length + source[1] + 1 + jnp.arange(tokens.shape[1])[:, None]
        whole = behind(*source, text[:, 0, :, 0])
        find = jax.vmap(lambda length: followed(whole, length, len(self.trust), None))
        token, run = (jnp.moveaxis(x, 0, 1) for x in find(lengths))
        return self._mixed(logits, token, run), kv.advance(cache, (own.layers, text), tokens.shape[1])

    def _mixed(
        self, logits: Float[Array, "b t v"], token: Int[Array, "b t"], run: Int[Array, "b t"]
    ) -> Float[Array, "b t v"]:
        """Scores whose softmax is the mixture: one of them grows, by a share of the sum of all."""
        odds = jnp.asarray([0.0, *(w / (1 - w) for w in self.trust)])[run][..., None]
        more = jax.nn.logsumexp(logits, axis=-1, keepdims=True) + jnp.log(odds)
        # At the one id alone: a logaddexp of each is a third of a small drafter's call.
        grown = jnp.logaddexp(jnp.take_along_axis(logits, token[..., None], axis=-1), more)
        found = jnp.arange(logits.shape[-1]) == token[..., None]
        return jnp.where(found & (odds > 0), grown, logits)
