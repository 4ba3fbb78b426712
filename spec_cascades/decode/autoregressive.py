"""One model alone, one token a call."""

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from spec_cascades.cache import Cache
from spec_cascades.decode.loop import LM, Block, Request, View
from spec_cascades.probs import distribution, draw, edited
from spec_cascades.typing import Params
from spec_cascades.verify import Noise


@dataclass(frozen=True)
class Autoregressive:
    """pi = the model's own distribution: the baseline of every comparison, for target and drafter."""

    lm: LM
    name: str = "target"

    @property
    def models(self) -> Mapping[str, LM]:
        return {self.name: self.lm}

    @property
    def width(self) -> int:
        return 1

    @property
    def drafts(self) -> int:
        return 0

    def begin(self, rows: int, max_new: int) -> tuple[()]:
        return ()

    def step(
        self,
        params: Mapping[str, Params],
        noise: Noise,
        view: View,
        caches: Mapping[str, Cache],
        request: Request,
    ) -> Block:
        with jax.named_scope("draft" if self.name == "drafter" else "score"):
            logits, cache = self.lm.extend(params[self.name], view.last[:, None], caches[self.name])
        with jax.named_scope("draft" if self.name == "drafter" else "verify"):
            logits = edited(logits[:, 0], request.edits, view.seen)
            token = draw(distribution(logits, request.sampling), noise.residual[:, 0])
        one, none = jnp.ones_like(token), jnp.zeros_like(token)
        return Block(token[:, None], one, none, none, {self.name: cache}, {self.name: one})
