"""One model alone, one token a call."""

from collections.abc import Mapping
from dataclasses import dataclass

import jax.numpy as jnp

from spec_cascades.cache import Cache
from spec_cascades.decode.loop import LM, Block, Request
from spec_cascades.probs import distribution, draw
from spec_cascades.typing import Array, Params
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

    def step(
        self,
        params: Mapping[str, Params],
        noise: Noise,
        last: Array,
        caches: Mapping[str, Cache],
        request: Request,
    ) -> Block:
        logits, cache = self.lm.extend(params[self.name], last[:, None], caches[self.name])
        token = draw(distribution(logits[:, 0], request.sampling), noise.residual[:, 0])
        return Block(token[:, None], jnp.ones_like(token), jnp.zeros_like(token), {self.name: cache})
