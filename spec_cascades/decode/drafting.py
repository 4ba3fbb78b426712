"""Where drafts come from: what a block asks of a source, and a second model's own samples."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp
from jax import lax

from spec_cascades import axes
from spec_cascades import cache as kv
from spec_cascades.cache import Cache
from spec_cascades.decode.loop import LM, Request, View
from spec_cascades.probs import distribution, draw, edited, raw, used
from spec_cascades.typing import Array, Bool, Float, Int, Params
from spec_cascades.verify import Noise


class Proposal(NamedTuple):
    """Drafts and what they were drawn from.

    drafts [b, w]: the last is never proposed; drafted [b]: how many are, at most w - 1; q, q_raw [b, w, v]:
    as sampled, and at temperature 1 unfiltered; caches, calls: of the proposer's models; silent [b, w]: the
    source has no opinion there, so that pi = p whatever the rule, and no draft; None where it always has one.
    Whether a place is silent must follow from the text before it, as q must. logits [b, w, v]: the edited
    scores, from a proposer that keeps them in place of q and q_raw.
    """

    drafts: Int[Array, "b w"]
    drafted: Int[Array, " b"]
    q: Float[Array, "b w v"] | None
    q_raw: Float[Array, "b w v"] | None
    caches: Mapping[str, Cache]
    calls: Mapping[str, Int[Array, " b"]]
    silent: Bool[Array, "b w"] | None = None
    logits: Float[Array, "b w v"] | None = None


@runtime_checkable
class Proposer(Protocol):
    """A source of drafts; `vocab` is the width of q."""

    @property
    def models(self) -> Mapping[str, LM]: ...

    @property
    def vocab(self) -> int: ...

    def propose(
        self,
        params: Mapping[str, Params],
        noise: Noise,
        view: View,
        caches: Mapping[str, Cache],
        request: Request,
        limit: Int[Array, " b"],
        sure: Callable[[Array], Array],
    ) -> Proposal:
        """At most limit[b] drafts a row, of noise.draft's width less one.

        sure: from a row's q_raw [b, v] to whether a draft from it is worth proposing.
        """


class _Drafting(NamedTuple):
    """The draft loop's state: place, newest token, cache, ids seen, calls and drafts so far, results.

    kept: q and q_raw, or the logits alone.
    """

    place: Int[Array, ""]
    token: Int[Array, " b"]
    cache: Cache
    seen: Array | None
    calls: Int[Array, " b"]
    drafted: Int[Array, " b"]
    drafts: Int[Array, "w b"]
    kept: tuple[Float[Array, "w b v"], ...]


@dataclass(frozen=True)
class Sampled:
    """A second model's own samples, one call each; calls end when no row has another draft to propose.

    bonus: one more call reads the last draft, so that q exists behind it. Without it the cache lags by that
    draft where it stands, and a block's first call reads up to two tokens. logits: these are kept for who
    verifies from them, one array where q and q_raw are two.
    """

    lm: LM
    bonus: bool = True
    logits: bool = False

    @property
    def models(self) -> Mapping[str, LM]:
        return {"drafter": self.lm}

    @property
    def vocab(self) -> int:
        return self.lm.vocab

    def propose(
        self,
        params: Mapping[str, Params],
        noise: Noise,
        view: View,
        caches: Mapping[str, Cache],
        request: Request,
        limit: Int[Array, " b"],
        sure: Callable[[Array], Array],
    ) -> Proposal:
        b, w = noise.draft.shape
        limit = jnp.where(view.done, 0, jnp.minimum(limit, w - 1))

        def due(x: _Drafting) -> Bool[Array, " b"]:
            """Rows that want a call: those that have proposed at every place so far, and may here."""
            return (x.drafted == x.place) & ((x.place == 0) | (x.place < (w if self.bonus else limit)))

        def propose(x: _Drafting, logits: Float[Array, "b v"], cache: Cache) -> _Drafting:
            put = lambda kept, new: lax.dynamic_update_index_in_dim(kept, new, x.place, 0)
            logits = edited(logits, request.edits, x.seen)
            q, q_raw = distribution(logits, request.sampling), raw(logits)
            token = axes.by_rows(draw(q, noise.draft[:, x.place]))
            made = (logits.astype(jnp.float32),) if self.logits else (q, q_raw)
            going = (x.drafted == x.place) & (x.place < limit) & sure(q_raw)
            return _Drafting(
                x.place + 1,
                token,
                cache,
                None if x.seen is None else used(x.seen, token[:, None], jnp.ones_like(token)),
                x.calls + due(x),
                x.drafted + going,
                put(x.drafts, token),
                tuple(put(kept, new) for kept, new in zip(x.kept, made, strict=True)),
            )

        def one(x: _Drafting) -> _Drafting:
            logits, cache = self.lm.extend(params["drafter"], x.token[:, None], x.cache)
            return propose(x, logits[:, 0], cache)

        wide = axes.by_vocabulary(jnp.zeros((w, b, self.vocab), jnp.float32), 1)
        none, drafts = jnp.zeros(b, jnp.int32), jnp.zeros((w, b), jnp.int32)
        kept = (wide,) if self.logits else (wide, wide)
        begin = _Drafting(
            jnp.zeros((), jnp.int32), view.last, caches["drafter"], view.seen, none, none, drafts, kept
        )
        if not self.bonus:
            begin = propose(begin, *self._newest(params["drafter"], view, caches["drafter"]))
        end = lax.while_loop(lambda x: jnp.any(due(x)), one, begin)
        cache = end.cache
        if not self.bonus:
            # What a row's own calls read: how far it lags must not depend on the other rows.
            cache = kv.rewind(cache, cache.length - end.place + end.calls)
        drafts, *kept = (jnp.moveaxis(x, 0, 1) for x in (end.drafts, *end.kept))
        q, q_raw, logits = (None, None, *kept) if self.logits else (*kept, None)
        made = {"drafter": cache}, {"drafter": end.calls}
        return Proposal(axes.by_rows(drafts), end.drafted, q, q_raw, *made, logits=logits)

    def _newest(self, params: Params, view: View, cache: Cache) -> tuple[Float[Array, "b v"], Cache]:
        """Scores after the newest token, of which the cache may lack the one before it, too."""
        read = view.read["drafter"]
        at = jnp.minimum(read[:, None] + jnp.arange(2), view.text.shape[1] - 1)
        logits, new = self.lm.extend(params, jnp.take_along_axis(view.text, at, axis=1), cache)
        behind = view.emitted - read
        # Where only one was missing, what was read behind it is hidden like a rejected draft.
        cache = kv.rewind(new, cache.length + behind + 1)
        return jnp.take_along_axis(logits, behind[:, None, None], axis=1)[:, 0], cache
