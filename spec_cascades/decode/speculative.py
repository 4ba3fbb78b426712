"""Speculative cascades: draft, score once, pair, verify (Alg. 4 of the paper)."""

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax

from spec_cascades.cache import Cache
from spec_cascades.decode.loop import LM, Block, Request
from spec_cascades.probs import Pair, distribution, draw, raw
from spec_cascades.rules import Rule
from spec_cascades.typing import Array, Float, Int, Params
from spec_cascades.verify import Noise, verify


@dataclass(frozen=True)
class Speculative:
    """gamma drafts a block, verified exactly for `rule`'s pi. Rule `lossless` is speculative decoding.

    Raises ValueError for gamma < 1 or models whose logits differ in width (`models.widened.same_width`).
    """

    drafter: LM
    target: LM
    rule: Rule
    gamma: int

    def __post_init__(self) -> None:
        if self.gamma < 1:
            raise ValueError(f"gamma {self.gamma} must be at least 1")
        if self.drafter.vocab != self.target.vocab:
            raise ValueError(f"drafter and target score {self.drafter.vocab} and {self.target.vocab} ids")

    @property
    def models(self) -> Mapping[str, LM]:
        return {"target": self.target, "drafter": self.drafter}

    @property
    def width(self) -> int:
        return self.gamma + 1

    def step(
        self,
        params: Mapping[str, Params],
        noise: Noise,
        last: Array,
        caches: Mapping[str, Cache],
        request: Request,
    ) -> Block:
        with jax.named_scope("draft"):
            drafts, q_logits, q, drafter = self._draft(
                params["drafter"], noise, last, caches["drafter"], request
            )
        with jax.named_scope("score"):
            read = jnp.concatenate([last[:, None], drafts[:, :-1]], axis=1)
            p_logits, target = self.target.extend(params["target"], read, caches["target"])
        with jax.named_scope("verify"):
            pair = Pair(q, distribution(p_logits, request.sampling), raw(q_logits), raw(p_logits))
            verdict = verify(noise, drafts, pair, self.rule, request.alpha)
        return Block(
            verdict.tokens, verdict.accepted + 1, verdict.accepted, {"target": target, "drafter": drafter}
        )

    def _draft(
        self, params: Params, noise: Noise, last: Array, cache: Cache, request: Request
    ) -> tuple[Int[Array, "b w"], Float[Array, "b w v"], Float[Array, "b w v"], Cache]:
        """gamma + 1 drafter calls, the last of which reads the last draft.

        So q exists for the bonus token, and the cache is whole when every draft stands.
        """

        def one(carry: tuple[Array, Cache], u: Array) -> tuple[tuple[Array, Cache], tuple[Array, ...]]:
            token, cache = carry
            logits, cache = self.drafter.extend(params, token[:, None], cache)
            q = distribution(logits[:, 0], request.sampling)
            token = draw(q, u)
            return (token, cache), (token, logits[:, 0], q)

        (_, cache), out = lax.scan(one, (last, cache), noise.draft.T)
        drafts, logits, q = (jnp.moveaxis(x, 0, 1) for x in out)
        return drafts, logits, q, cache
