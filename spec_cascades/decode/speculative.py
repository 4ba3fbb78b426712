"""Speculative cascades: draft, score once, pair, verify (Alg. 4 of the paper)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from spec_cascades.cache import Cache
from spec_cascades.decode.drafting import Proposal, Proposer, Sampled
from spec_cascades.decode.lengths import Fixed, Lengths
from spec_cascades.decode.loop import LM, Block, Request, View, check_widths
from spec_cascades.probs import Pair, distribution, draw, edited, raw, used_along
from spec_cascades.rules import RULES, Rule
from spec_cascades.typing import Array, Bool, Float, Int, Params
from spec_cascades.verify import Noise, Verdict, at, verify

Judge = Callable[..., Verdict]
"""From (noise, drafts, drafted, q's logits, p's logits, sampling, rule, alpha) to what `verify` would say."""


@dataclass(frozen=True)
class Speculative:
    """Up to gamma drafts a block, verified exactly for `rule`'s pi. Rule `lossless` is speculative decoding.

    drafter: a model, or another source of drafts; lengths: how many of the gamma drafts are proposed; judge:
    verifies from logits (`kernels.verification`), None for whole distributions. Raises ValueError for
    gamma < 1, models whose logits differ in width (`models.widened.same_width`), and a judge without a
    drafter that has logits.
    """

    drafter: LM | Proposer
    target: LM
    rule: Rule
    gamma: int
    lengths: Lengths = field(default_factory=Fixed)
    judge: Judge | None = None

    def __post_init__(self) -> None:
        if self.gamma < 1:
            raise ValueError(f"gamma {self.gamma} must be at least 1")
        check_widths(self.drafter, self.target)
        if self.judge is not None and isinstance(self.drafter, Proposer):
            raise ValueError(
                f"a judge of logits needs a model as drafter, not a {type(self.drafter).__name__}"
            )

    @property
    def proposer(self) -> Proposer:
        if isinstance(self.drafter, Proposer):
            return self.drafter
        # Where every draft stands, the bonus token comes from pi: p alone for speculative decoding.
        bonus = self.rule is not RULES["lossless"]
        return Sampled(self.drafter, bonus, logits=self.judge is not None)

    @property
    def models(self) -> Mapping[str, LM]:
        return {"target": self.target, **self.proposer.models}

    @property
    def width(self) -> int:
        return self.gamma + 1

    @property
    def drafts(self) -> int:
        return self.gamma

    def begin(self, rows: int, max_new: int) -> Any:
        return self.lengths.begin(rows, self.gamma)

    def step(
        self,
        params: Mapping[str, Params],
        noise: Noise,
        view: View,
        caches: Mapping[str, Cache],
        request: Request,
    ) -> Block:
        with jax.named_scope("draft"):
            limit = jnp.broadcast_to(self.lengths.limit(view.own, self.gamma), view.emitted.shape)
            for capacity in (request.capacity, request.drafter_capacity):
                if capacity is not None:
                    limit = jnp.clip(capacity - view.emitted - 1, 0, limit)
            made = self.proposer.propose(params, noise, view, caches, request, limit, self.lengths.sure)
        with jax.named_scope("score"):
            read = jnp.concatenate([view.last[:, None], made.drafts[:, :-1]], axis=1)
            p_logits, target = self.target.extend(params["target"], read, caches["target"])
            p_logits = edited(p_logits, request.edits, used_along(view.seen, made.drafts[:, :-1]))
        with jax.named_scope("verify"):
            verdict = self._verdict(noise, made, p_logits, request)
        return Block(
            tokens=verdict.tokens,
            count=verdict.accepted + 1,
            drafted=made.drafted,
            accepted=verdict.accepted,
            caches={"target": target, **made.caches},
            calls={"target": jnp.ones_like(view.emitted), **made.calls},
            own=self.lengths.learn(view.own, self.gamma, made.drafted, verdict.accepted),
        )

    def _verdict(
        self, noise: Noise, made: Proposal, p_logits: Float[Array, "b w v"], request: Request
    ) -> Verdict:
        drafts, sampling = (noise, made.drafts, made.drafted), request.sampling
        if self.judge is not None:
            return self.judge(*drafts, made.logits, p_logits, sampling, self.rule, request.alpha)
        pair = Pair(made.q, distribution(p_logits, sampling), made.q_raw, raw(p_logits))
        verdict = verify(*drafts, pair, self.rule, request.alpha)
        if made.silent is None:
            return verdict
        tokens = _spoken_for(verdict.tokens, verdict.accepted, made.silent, pair.p, noise)
        return verdict._replace(tokens=tokens)


def _spoken_for(
    tokens: Int[Array, "b w"],
    accepted: Int[Array, " b"],
    silent: Bool[Array, "b w"],
    p: Float[Array, "b w v"],
    noise: Noise,
) -> Int[Array, "b w"]:
    """The block's last token drawn from p where the drafter is silent: no q, so no rule to ask."""
    here = lambda x: jnp.take_along_axis(x, accepted[:, None], axis=1)[:, 0]
    own = draw(at(p, accepted), here(noise.residual))
    place = jnp.arange(tokens.shape[1])
    return jnp.where((place == accepted[:, None]) & silent, own[:, None], tokens)
