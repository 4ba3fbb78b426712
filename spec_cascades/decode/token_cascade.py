"""Token-level cascades: the drafter unless it defers (Alg. 2 of the paper), and their oracle (Alg. 3)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from spec_cascades import cache as kv
from spec_cascades.cache import Cache
from spec_cascades.decode.loop import LM, Block, Request, View, check_widths
from spec_cascades.probs import Pair, distribution, draw, edited, raw
from spec_cascades.rules import Deferral, Rule
from spec_cascades.typing import Array, Bool, Float, Int, Params
from spec_cascades.verify import Noise, verify

BLIND = ("chow", "chow_log")
"""Rules whose mask reads q alone, so that it is known before the target has run."""


class _Late(NamedTuple):
    """The target catching up: tokens of the text read, blocks it took, scores after the newest token."""

    cache: Cache
    read: Int[Array, " b"]
    blocks: Int[Array, " b"]
    logits: Float[Array, "b v"]


@dataclass(frozen=True)
class TokenCascade:
    """Each token from q, or where the drafter defers from p: pi = q (1 - r) + p r, r read off q (Alg. 2).

    The target runs only in steps in which an unfinished row defers; that row then reads all it has not read,
    newest token included, in blocks of `catch_up` tokens. The other rows stay where they are, so that a row's
    blocks, and with them its last bits, do not depend on its batch. A token kept counts as an accepted draft.

    Raises ValueError for a rule that needs p, catch_up < 1, or models whose logits differ in width.
    """

    drafter: LM
    target: LM
    rule: Rule
    catch_up: int

    def __post_init__(self) -> None:
        if not (isinstance(self.rule, Deferral) and self.rule.name in BLIND):
            raise ValueError(
                f"rule {self.rule.name!r} reads the target, which has not run when a token cascade decides; "
                f"choose one of {', '.join(BLIND)}"
            )
        if self.catch_up < 1:
            raise ValueError(f"catch_up {self.catch_up} must be at least 1")
        check_widths(self.drafter, self.target)

    @property
    def models(self) -> Mapping[str, LM]:
        return {"target": self.target, "drafter": self.drafter}

    @property
    def width(self) -> int:
        return 1

    @property
    def reach(self) -> int:
        return self.catch_up

    @property
    def drafts(self) -> int:
        return 1

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
        with jax.named_scope("draft"):
            logits, drafter = self.drafter.extend(params["drafter"], view.last[:, None], caches["drafter"])
            q_logits = edited(logits[:, 0], request.edits, view.seen)
            q, q_raw = distribution(q_logits, request.sampling), raw(q_logits)
            defers = self.rule.mask(Pair(q, q, q_raw, q_raw), request.alpha[:, None])[:, 0] & ~view.done
            draft = draw(q, noise.draft[:, 0])
        with jax.named_scope("score"):
            late = self._catch_up(params["target"], view, caches["target"], defers)

        def deferred() -> Array:
            p = distribution(edited(late.logits, request.edits, view.seen), request.sampling)
            return jnp.where(defers, draw(p, noise.residual[:, 0]), draft)

        with jax.named_scope("verify"):
            token = lax.cond(jnp.any(defers), deferred, lambda: draft)
        one = jnp.ones_like(token)
        return Block(
            tokens=token[:, None],
            count=one,
            drafted=one,
            accepted=(~defers).astype(jnp.int32),
            caches={"target": late.cache, "drafter": drafter},
            calls={"target": late.blocks, "drafter": one},
        )

    def _catch_up(self, params: Params, view: View, cache: Cache, defers: Bool[Array, " b"]) -> _Late:
        """The target after it has read all of the text in the rows that defer; no call if none does."""
        due = jnp.where(defers, view.emitted + 1, 0)
        place = jnp.arange(self.catch_up)

        def block(x: _Late) -> _Late:
            n = jnp.clip(due - x.read, 0, self.catch_up)
            # Behind the n tokens lies padding, whose entries the rewind hides like a rejected draft's.
            at = jnp.minimum(x.read[:, None] + place, view.text.shape[1] - 1)
            tokens = jnp.take_along_axis(view.text, at, axis=1)
            logits, new = self.target.extend(params, tokens, x.cache)
            here = jnp.maximum(n - 1, 0)[:, None, None]
            newest = jnp.take_along_axis(logits, here, axis=1)[:, 0].astype(jnp.float32)
            return _Late(
                kv.rewind(new, x.cache.length + n),
                x.read + n,
                x.blocks + (n > 0),
                jnp.where((n > 0)[:, None], newest, x.logits),
            )

        read = view.read["target"]
        blank = jnp.zeros((read.shape[0], self.target.vocab), jnp.float32)
        begin = _Late(cache, read, jnp.zeros_like(read), blank)
        return lax.while_loop(lambda x: jnp.any(x.read < due), block, begin)


@dataclass(frozen=True)
class Oracle:
    """Both models at every token, aimed at `rule`'s pi: what a rule is worth, whatever it costs (Alg. 3).

    A draft from q stands unless the rule's mask defers it; then the token is drawn from p (eq. 11). A law
    without a mask accepts and replaces as verification does. A reference for token-level rules that need p.

    Raises ValueError for models whose logits differ in width.
    """

    drafter: LM
    target: LM
    rule: Rule

    def __post_init__(self) -> None:
        check_widths(self.drafter, self.target)

    @property
    def models(self) -> Mapping[str, LM]:
        return {"target": self.target, "drafter": self.drafter}

    @property
    def width(self) -> int:
        return 1

    @property
    def drafts(self) -> int:
        return 1

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
        read = {}
        for scope, (name, lm) in zip(("score", "draft"), self.models.items(), strict=True):
            with jax.named_scope(scope):
                read[name] = lm.extend(params[name], view.last[:, None], caches[name])
        with jax.named_scope("verify"):
            q, p = (edited(read[name][0][:, 0], request.edits, view.seen) for name in ("drafter", "target"))
            pair = Pair(*(distribution(x, request.sampling) for x in (q, p)), raw(q), raw(p))
            draft = draw(pair.q, noise.draft[:, 0])
            token, stands = self._decide(noise, draft, pair, request.alpha)
        one = jnp.ones_like(token)
        return Block(
            tokens=token[:, None],
            count=one,
            drafted=one,
            accepted=stands.astype(jnp.int32),
            caches={name: cache for name, (_, cache) in read.items()},
            calls={name: one for name in read},
        )

    def _decide(
        self, noise: Noise, draft: Int[Array, " b"], pair: Pair, alpha: Float[Array, " b"]
    ) -> tuple[Int[Array, " b"], Bool[Array, " b"]]:
        """(the token, whether it is the draft)."""
        if isinstance(self.rule, Deferral):
            r = jnp.broadcast_to(self.rule.mask(pair, alpha[:, None]), pair.q.shape)
            defers = jnp.take_along_axis(r, draft[:, None], axis=1)[:, 0]
            return jnp.where(defers, draw(pair.p, noise.residual[:, 0]), draft), ~defers
        # A block of one draft; the place behind it is there for the shape, its token is not looked at.
        twice = lambda x: jnp.stack([x, x], axis=1)
        noise, pair = Noise(*(twice(x[:, 0]) for x in noise)), Pair(*map(twice, pair))
        verdict = verify(noise, twice(draft), jnp.ones_like(draft), pair, self.rule, alpha)
        return verdict.tokens[:, 0], verdict.accepted > 0
