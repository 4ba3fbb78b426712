"""Sequence-level cascades: the drafter answers a whole batch, the target the rows whose answers score badly.

Rows leave and join batches here, so this is a function on the host, not a step of the loop.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from spec_cascades.cache import Cache
from spec_cascades.decode import loop
from spec_cascades.decode.autoregressive import Autoregressive
from spec_cascades.decode.loop import (
    LM,
    Block,
    Generation,
    Ledger,
    Progress,
    Request,
    View,
    check_widths,
)
from spec_cascades.probs import Pair, distribution, draw, edited, raw, used_along
from spec_cascades.rules import RULES
from spec_cascades.typing import Array, Float, Int, Params
from spec_cascades.verify import Noise, verify

SCORES: dict[str, Callable[[np.ndarray, float], float]] = {
    "sum": lambda logs, _: np.sum(logs),
    "average": lambda logs, _: np.mean(logs),
    "quantile": lambda logs, quantile: np.quantile(logs, quantile),
}
"""From the log q of an answer's tokens (and the quantile asked for) to its score; higher is surer."""


@dataclass(frozen=True)
class Sequence:
    """Defers a row's whole answer where its score < -alpha.

    The score is of the tokens' log q at temperature 1, end symbol included: their sum, average or quantile
    (0 is the least likely token's, 1 the likeliest's). So a larger alpha keeps more answers: the target alone
    at -inf, the drafter alone at inf. Log-probabilities are not positive: alpha < 0 defers all of them.

    Without `verify` the target answers a deferred row afresh, from noise that had no part in the deferral:
    that answer follows p. With it the drafter's answer is verified as one long draft, and the target goes on
    from the first rejection. Greedily that is the same text for fewer calls. Under sampling the answer does
    not follow p: verification yields p from drafts that follow q, but a deferred answer follows q given that
    it scored badly, and what stands of it keeps that bias.

    Raises ValueError for an unknown score, a quantile outside [0, 1], or models whose logits differ in width.
    """

    drafter: LM
    target: LM
    score: str = "average"
    quantile: float = 0.0
    verify: bool = False

    def __post_init__(self) -> None:
        if self.score not in SCORES:
            raise ValueError(f"score {self.score!r} is not one of {', '.join(SCORES)}")
        if not 0 <= self.quantile <= 1:
            raise ValueError(f"quantile {self.quantile} must lie in 0..1")
        check_widths(self.drafter, self.target)

    @property
    def models(self) -> Mapping[str, LM]:
        return {"target": self.target, "drafter": self.drafter}

    def scores(self, logs: Float[np.ndarray, "b n"], length: Int[np.ndarray, " b"]) -> np.ndarray:
        """Each row's score [b], float64; 0 for a row that had no room for an answer."""
        one = lambda row, n: SCORES[self.score](row[:n].astype(np.float64), self.quantile) if n else 0.0
        return np.asarray([one(row, n) for row, n in zip(logs, length, strict=True)])


class Info(NamedTuple):
    """What a cascade decided and how long it took.

    deferred, score [b]; kept [b]: how many tokens of the drafter's answer are in the final one; seconds, of
    wall clock with the device synchronised: of the drafter's stage, until the target's first tokens (from the
    start of all; None when no row is deferred), of the target's stage. A shape's first call compiles: `warm`.
    """

    deferred: np.ndarray
    score: np.ndarray
    kept: np.ndarray
    drafter_seconds: float
    waiting_seconds: float | None
    target_seconds: float

    @property
    def waiting_share(self) -> float | None:
        """Of the total, the part before the target's first tokens."""
        if self.waiting_seconds is None:
            return None
        return self.waiting_seconds / (self.drafter_seconds + self.target_seconds)


def run(
    cascade: Sequence,
    params: Mapping[str, Params],
    tokens: Array,
    lengths: Array,
    request: Request,
    max_new: int,
) -> tuple[Generation, Info]:
    """Prompts [b, s], right-padded, to answers as `loop.generate` gives them; request.alpha is each row's.

    The ledger has one decision a row, judged and accepted [b, 1]: whether the drafter's answer was kept.
    """
    batch, began = _Batch(tokens, lengths, request, max_new), time.perf_counter()
    draft, logs = _draft(cascade, params, batch)
    drafted = time.perf_counter()
    score = cascade.scores(logs, draft.length)
    deferred = score < -np.asarray(request.alpha)
    rows, kept = np.flatnonzero(deferred), np.where(deferred, 0, draft.length)
    answer, first = jax.tree.map(lambda x: x[:0], draft), None
    if len(rows):
        answer, first = _answer(cascade, params, batch, rows, draft)
        kept[rows] = answer.ledger.accepted.sum(1)
    ended = time.perf_counter()
    waited = None if first is None else first - began
    info = Info(deferred, score, kept, drafted - began, waited, ended - drafted)
    return _merged(draft, rows, answer), info


def warm(
    cascade: Sequence,
    params: Mapping[str, Params],
    tokens: Array,
    lengths: Array,
    request: Request,
    max_new: int,
) -> None:
    """Compiles all that `run` may meet with a batch of this shape: the drafter's stage and every size."""
    one = request._replace(max_new_tokens=jnp.ones_like(request.max_new_tokens))
    batch = _Batch(tokens, lengths, one, max_new)
    draft, _ = _draft(cascade, params, batch)
    for size in sorted({_size(n, len(tokens)) for n in range(1, len(tokens) + 1)}):
        _answer(cascade, params, batch, np.arange(size), draft)


class _Batch(NamedTuple):
    """The arguments of `loop.start`."""

    tokens: Array
    lengths: Array
    request: Request
    max_new: int


def _size(n: int, b: int) -> int:
    """Rows of the batch that answers n of b: a power of two, so that few shapes compile, but at most b."""
    return min(1 << (n - 1).bit_length(), b)


def _compact(batch: _Batch, rows: np.ndarray) -> tuple[_Batch, np.ndarray]:
    """These rows, and copies of the first that stop after one token: (batch, rows and copies)."""
    size = _size(len(rows), len(batch.tokens))
    taken = np.concatenate([rows, np.repeat(rows[:1], size - len(rows))])
    # On the host: on a device each number of rows would compile its own gathers.
    pick = lambda x: jnp.asarray(np.asarray(x)[taken])
    request = jax.tree.map(pick, batch.request)
    limit = jnp.where(jnp.arange(size) < len(rows), request.max_new_tokens, 1)
    request = request._replace(max_new_tokens=limit)
    return _Batch(pick(batch.tokens), pick(batch.lengths), request, batch.max_new), taken


def _draft(cascade: Sequence, params: Mapping[str, Params], batch: _Batch) -> tuple[Generation, np.ndarray]:
    """The drafter's answers and their log q [b, n], on the host."""
    method = Scored(cascade.drafter)
    end = loop.run(method, params, loop.start(method, params, *batch), batch.request)
    return jax.device_get((loop.finish(end, batch.request), end.view.own))


def _answer(
    cascade: Sequence, params: Mapping[str, Params], batch: _Batch, rows: np.ndarray, draft: Generation
) -> tuple[Generation, float]:
    """The target's answers to these rows, on the host, and when its first tokens were there."""
    small, taken = _compact(batch, rows)
    if cascade.verify:
        end, first = _from_draft(cascade, params, small, draft.tokens[taken], draft.length[taken])
    else:
        end, first = _afresh(cascade, params, small)
    return jax.tree.map(lambda x: x[: len(rows)], jax.device_get(end)), first


def _afresh(cascade: Sequence, params: Mapping[str, Params], batch: _Batch) -> tuple[Generation, float]:
    alone = Autoregressive(cascade.target)
    begin = loop.start(alone, params, *batch)
    progress = jax.block_until_ready(loop.run(alone, params, begin, batch.request, 1))
    first = time.perf_counter()
    return loop.finish(loop.run(alone, params, progress, batch.request), batch.request), first


def _from_draft(
    cascade: Sequence, params: Mapping[str, Params], batch: _Batch, drafts: np.ndarray, drafted: np.ndarray
) -> tuple[Generation, float]:
    method = Verifying(cascade.drafter, cascade.target, batch.max_new)
    begin = loop.start(method, params, *batch)
    begin = begin._replace(view=begin.view._replace(own=(jnp.asarray(drafts), jnp.asarray(drafted))))
    progress = jax.block_until_ready(loop.run(method, params, begin, batch.request, 1))
    first, before = time.perf_counter(), progress.ledger
    alone = Autoregressive(cascade.target)
    end = loop.finish(loop.run(alone, params, _target_alone(progress), batch.request), batch.request)
    after = end.ledger
    calls = before.calls | {"target": before.calls["target"] + after.calls["target"]}
    return end._replace(ledger=before._replace(steps=before.steps + after.steps, calls=calls)), first


def _target_alone(progress: Progress) -> Progress:
    """The loop as the target's own method continues it; the ledger begins anew."""
    only = lambda x: {"target": x["target"]}
    zeros = lambda *shape: jnp.zeros((*progress.done.shape, *shape), jnp.int32)  # a buffer each: donated
    return progress._replace(
        view=progress.view._replace(own=()),
        caches=only(progress.caches),
        begun=only(progress.begun),
        ledger=Ledger(zeros(), {"target": zeros()}, zeros(0), zeros(0)),
    )


def _merged(draft: Generation, rows: np.ndarray, answer: Generation) -> Generation:
    """The drafter's answers, these rows replaced by the target's; the work of both in the ledger."""

    def put(old: np.ndarray, new: np.ndarray) -> np.ndarray:
        whole = np.array(old)
        whole[rows] = new
        return whole

    none = np.zeros_like(draft.length)
    also = lambda name: put(none, answer.ledger.calls.get(name, none[rows]))
    kept = put(np.ones_like(none), none[rows])[:, None]
    ledger = Ledger(
        steps=draft.ledger.steps + put(none, answer.ledger.steps),
        calls={"target": also("target"), "drafter": draft.ledger.calls["drafter"] + also("drafter")},
        judged=np.ones_like(kept),
        accepted=kept,
    )
    text = [put(*both) for both in zip(draft[:3], answer[:3], strict=True)]
    return jax.tree.map(jnp.asarray, Generation(*text, ledger))


@dataclass(frozen=True)
class Scored:
    """The drafter alone, its own state the log q of its tokens [b, max_new], at temperature 1.

    It draws from the drafts' noise, so that the target's answer to the same request is independent of it.
    """

    drafter: LM

    @property
    def models(self) -> Mapping[str, LM]:
        return {"drafter": self.drafter}

    @property
    def width(self) -> int:
        return 1

    @property
    def drafts(self) -> int:
        return 0

    def begin(self, rows: int, max_new: int) -> Float[Array, "b n"]:
        return jnp.zeros((rows, max_new), jnp.float32)

    def step(
        self,
        params: Mapping[str, Params],
        noise: Noise,
        view: View,
        caches: Mapping[str, Cache],
        request: Request,
    ) -> Block:
        with jax.named_scope("draft"):
            logits, cache = self.drafter.extend(params["drafter"], view.last[:, None], caches["drafter"])
            logits = edited(logits[:, 0], request.edits, view.seen)
            token = draw(distribution(logits, request.sampling), noise.draft[:, 0])
            logs = jax.nn.log_softmax(logits.astype(jnp.float32), axis=-1)
            log = jnp.take_along_axis(logs, token[:, None], axis=1)
        here = jnp.arange(view.own.shape[1]) == jnp.where(view.done, -1, view.emitted)[:, None]
        one, none = jnp.ones_like(token), jnp.zeros_like(token)
        return Block(
            tokens=token[:, None],
            count=one,
            drafted=none,
            accepted=none,
            caches={"drafter": cache},
            calls={"drafter": one},
            own=jnp.where(here, log, view.own),
        )


@dataclass(frozen=True)
class Verifying:
    """One block that verifies a whole answer, its own state (drafts [b, max_new], how many of them [b]).

    For the first step only. One call of either model reads the answer; its logits [b, max_new + 1, v] are
    the price.
    """

    drafter: LM
    target: LM
    max_new: int

    @property
    def models(self) -> Mapping[str, LM]:
        return {"target": self.target, "drafter": self.drafter}

    @property
    def width(self) -> int:
        return self.max_new + 1

    @property
    def drafts(self) -> int:
        return self.max_new

    def begin(self, rows: int, max_new: int) -> tuple[Array, Array]:
        return jnp.zeros((rows, max_new), jnp.int32), jnp.zeros(rows, jnp.int32)

    def step(
        self,
        params: Mapping[str, Params],
        noise: Noise,
        view: View,
        caches: Mapping[str, Cache],
        request: Request,
    ) -> Block:
        drafts, drafted = view.own
        read = jnp.concatenate([view.last[:, None], drafts], axis=1)
        with jax.named_scope("score"):
            made = {name: lm.extend(params[name], read, caches[name]) for name, lm in self.models.items()}
        with jax.named_scope("verify"):
            seen = used_along(view.seen, drafts)
            q, p = (edited(made[name][0], request.edits, seen) for name in ("drafter", "target"))
            pair = Pair(*(distribution(x, request.sampling) for x in (q, p)), raw(q), raw(p))
            drafts = jnp.pad(drafts, ((0, 0), (0, 1)))
            verdict = verify(noise, drafts, drafted, pair, RULES["lossless"], request.alpha)
        return Block(
            tokens=verdict.tokens,
            count=verdict.accepted + 1,
            drafted=drafted,
            accepted=verdict.accepted,
            caches={name: cache for name, (_, cache) in made.items()},
            calls={name: jnp.ones_like(drafted) for name in made},
            own=view.own,
        )
