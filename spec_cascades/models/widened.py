"""A model whose logits are made wider, so that two tables padded to different sizes can be compared."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from spec_cascades.cache import Cache
from spec_cascades.typing import Array, Float, Int, Params


@dataclass(frozen=True)
class Widened:
    """The LM protocol over `lm` with `vocab` logits, -inf for the ids that its table has no row for.

    Such an id has probability 0, which changes no other: it is neither drafted nor, where the target lacks
    it, emitted. Raises ValueError unless `vocab` is at least the width of lm's logits.
    """

    lm: Any
    vocab: int

    def __post_init__(self) -> None:
        if self.vocab < self.lm.vocab:
            raise ValueError(f"vocab {self.vocab} is less than the {self.lm.vocab} ids that the model scores")

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
        """Reads the prompts but their last tokens."""
        return self.lm.prefill(params, tokens, lengths, capacity, width)

    def extend(
        self, params: Params, tokens: Int[Array, "b t"], cache: Cache
    ) -> tuple[Float[Array, "b t v"], Cache]:
        """Reads t tokens; logits [b, t, v] of the token after each."""
        logits, cache = self.lm.extend(params, tokens, cache)
        missing = ((0, 0), (0, 0), (0, self.vocab - self.lm.vocab))
        return jnp.pad(logits, missing, constant_values=-jnp.inf), cache


def same_width(drafter: Any, target: Any) -> tuple[Any, Any]:
    """The two models, the one with fewer logits widened: for tables padded apart under one tokenizer."""
    width = max(drafter.vocab, target.vocab)
    widen = lambda lm: lm if lm.vocab == width else Widened(lm, width)
    return widen(drafter), widen(target)
