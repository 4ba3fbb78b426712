"""A model that scores some ids only, as one of the whole vocabulary: q = 0 elsewhere, which stays exact."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from spec_cascades.cache import Cache
from spec_cascades.typing import Array, Float, Int, Params


@dataclass(frozen=True)
class Subset:
    """The LM protocol over `lm`, whose r logits belong to some of `vocab` ids.

    Parameters: {"model": those of lm, "place": int32 [vocab], where an id's logit is among the r, or r where
    it has none}. An id without a logit is never drafted; the verifier draws it from the residual as often as
    pi wants it.
    """

    lm: Any
    vocab: int

    def flops_per_token(self) -> int:
        """FLOPs of one decoded token."""
        return self.lm.flops_per_token()

    def serving(self, params: Params) -> Params:
        """The parameters as decoding wants them."""
        return params | {"model": self.lm.serving(params["model"])}

    def prefill(
        self,
        params: Params,
        tokens: Int[Array, "b s"],
        lengths: Int[Array, " b"],
        capacity: int,
        width: int | None = None,
    ) -> tuple[Int[Array, " b"], Cache]:
        """Reads the prompts but their last tokens."""
        return self.lm.prefill(params["model"], tokens, lengths, capacity, width)

    def extend(
        self, params: Params, tokens: Int[Array, "b t"], cache: Cache
    ) -> tuple[Float[Array, "b t v"], Cache]:
        """Reads t tokens; logits [b, t, v], -inf for ids without one."""
        some, cache = self.lm.extend(params["model"], tokens, cache)
        nowhere = jnp.full((*some.shape[:2], 1), -jnp.inf, some.dtype)
        return jnp.concatenate([some, nowhere], axis=-1)[..., params["place"]], cache


def places(ids: Int[Array, " r"], vocab: int) -> Int[Array, " v"]:
    """`place` for the ids that the r logits stand for."""
    return jnp.full(vocab, ids.shape[0], jnp.int32).at[ids].set(jnp.arange(ids.shape[0], dtype=jnp.int32))
