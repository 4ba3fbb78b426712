"""The only decode loop: buffers, end of sequence, limits, frozen rows, rewinding. A method owns one step."""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import lax

from spec_cascades import axes, probs
from spec_cascades import cache as kv
from spec_cascades.probs import Edits, Sampling
from spec_cascades.typing import Array, Bool, Float, Int, Params, UInt32
from spec_cascades.verify import Noise

FOREVER = 2**31 - 1


@runtime_checkable
class LM(Protocol):
    """What a model family provides; `vocab` is the width of its logits."""

    @property
    def vocab(self) -> int: ...

    def prefill(
        self, params: Params, tokens: Array, lengths: Array, capacity: int, width: int | None = None
    ) -> tuple[Array, kv.Cache]:
        """Reads all of the prompts but the last token, which it returns: (last [b], cache).

        width: no call reads more tokens, and no rewind takes back more; a family may keep no more than that
        needs. None: no such promise.
        """

    def extend(self, params: Params, tokens: Array, cache: kv.Cache) -> tuple[Array, kv.Cache]:
        """Reads [b, t] tokens: (logits [b, t, v] of the token after each, cache)."""


def reach(method: Any) -> int:
    """Tokens that a call of the method's models may read, and a rewind take back: `reach`, or the width."""
    return method.reach if hasattr(method, "reach") else method.width


def check_widths(drafter: Any, target: Any) -> None:
    """Raises ValueError for models whose logits differ in width (`models.widened.same_width`)."""
    if drafter.vocab != target.vocab:
        raise ValueError(f"drafter and target score {drafter.vocab} and {target.vocab} ids")


class Request(NamedTuple):
    """What each row asks for, all data: one compilation serves every value.

    eos: ids any of which ends the row, -1 for none; seed: a row's noise depends on it and on the position
    alone; max_new_tokens: at least 1; capacity: how many tokens the target's window leaves room for, None for
    no limit; drafter_capacity: the drafter's, beyond which it proposes nothing; edits: of the scores, None
    where no row has any.
    """

    sampling: Sampling
    alpha: Float[Array, " b"]
    eos: Int[Array, "b e"]
    max_new_tokens: Int[Array, " b"]
    seed: UInt32[Array, " b"]
    capacity: Int[Array, " b"] | None = None
    drafter_capacity: Int[Array, " b"] | None = None
    edits: Edits | None = None


class View(NamedTuple):
    """What a step sees of its rows.

    prompt, prompt_length: as given, right-padded; text: the token that prefill left unread, then the answer;
    emitted: tokens of the answer; done: the row is finished; own: the method's state, a pytree of [b, ...]
    arrays; seen: ids that count as used for the repetition penalty, None where no row edits its scores; read:
    how many of the text's tokens each model's cache knows, () between steps.
    """

    prompt: Int[Array, "b s"]
    prompt_length: Int[Array, " b"]
    text: Int[Array, "b n+1"]
    emitted: Int[Array, " b"]
    done: Bool[Array, " b"]
    own: Any = ()
    seen: Bool[Array, "b v"] | None = None
    read: Any = ()

    @property
    def last(self) -> Int[Array, " b"]:
        """The newest token, which no cache has seen."""
        return jnp.take_along_axis(self.text, self.emitted[:, None], axis=1)[:, 0]


class Block(NamedTuple):
    """A step's result: the first count[b] of the w tokens are new.

    drafted, accepted: how many drafts were proposed, and how many of them stand; caches: of every model, read
    up to anywhere; calls: of each model, counted for a row that needed them; own: the method's next state.
    """

    tokens: Int[Array, "b w"]
    count: Int[Array, " b"]
    drafted: Int[Array, " b"]
    accepted: Int[Array, " b"]
    caches: Mapping[str, kv.Cache]
    calls: Mapping[str, Int[Array, " b"]]
    own: Any = ()


@runtime_checkable
class Method(Protocol):
    """A decoding method: which models it runs and the step.

    width: how many tokens a step may read and yield; drafts: how many of them it judges at most. A method
    whose models read more than that in one call says so in `reach`.
    """

    @property
    def models(self) -> Mapping[str, LM]: ...

    @property
    def width(self) -> int: ...

    @property
    def drafts(self) -> int: ...

    def begin(self, rows: int, max_new: int) -> Any:
        """The method's own state before the first step, a pytree of [rows, ...] arrays; () for none."""

    def step(
        self, params: Mapping[str, Params], noise: Noise, view: View, caches: Any, request: Request
    ) -> Block: ...


class Ledger(NamedTuple):
    """Counts per row. steps: blocks while the row was unfinished; calls: of each model in them.

    judged, accepted [b, g]: drafts the verifier decided on, and those kept, by position in the block. A
    draft beyond the end of sequence or the length limit counts in neither.
    """

    steps: Int[Array, " b"]
    calls: Mapping[str, Int[Array, " b"]]
    judged: Int[Array, "b g"]
    accepted: Int[Array, "b g"]


class Progress(NamedTuple):
    """The loop's state; its buffers and caches are donated to the call that goes on with it.

    begun: each model's tokens read before the first step; turns: steps taken so far.
    """

    view: View
    caches: Mapping[str, kv.Cache]
    begun: Mapping[str, Int[Array, " b"]]
    noise: Float[Array, "3 b n"]
    ledger: Ledger
    turns: Int[Array, ""]

    @property
    def done(self) -> Bool[Array, " b"]:
        return self.view.done


class Generation(NamedTuple):
    """tokens [b, n], zero beyond length; length [b] with the end symbol; ended [b]: by eos, not the limit."""

    tokens: Int[Array, "b n"]
    length: Int[Array, " b"]
    ended: Bool[Array, " b"]
    ledger: Ledger


def noise_table(seed: UInt32[Array, " b"], n: int) -> Float[Array, "3 b n"]:
    """Uniforms of draft, acceptance and residual per row and emitted position, from (seed, position) alone.

    Position i's numbers are used at most once in what is emitted: a draft behind a rejection is thrown away
    without having been looked at, so its number may serve again.
    """

    def one(seed: Array, position: Array) -> Array:
        return jax.random.uniform(jax.random.fold_in(jax.random.key(seed), position), (3,))

    table = jax.vmap(jax.vmap(one, (None, 0)), (0, None))(seed, jnp.arange(n))
    return jnp.moveaxis(table, -1, 0)


@partial(jax.jit, static_argnames=("method", "max_new", "capacity"))
def start(
    method: Method,
    params: Mapping[str, Params],
    tokens: Array,
    lengths: Array,
    request: Request,
    max_new: int,
    capacity: int | None = None,
) -> Progress:
    """Prefills every model on right-padded prompts [b, s], samples nothing.

    max_new: the buffers' length; capacity: that of the caches, None for what these prompts need.
    """
    b = tokens.shape[0]
    capacity = tokens.shape[1] + max_new + method.width if capacity is None else capacity
    with jax.named_scope("prefill"):
        room = (capacity, reach(method))
        read = {name: lm.prefill(params[name], tokens, lengths, *room) for name, lm in method.models.items()}
    zeros = lambda *shape: jnp.zeros((b, *shape), jnp.int32)
    text = zeros(max_new + 1).at[:, 0].set(next(iter(read.values()))[0])
    begin = Progress(
        view=View(
            tokens,
            lengths,
            text,
            zeros(),
            jnp.zeros(b, bool),
            method.begin(b, max_new),
            None if request.edits is None else request.edits.seen,
        ),
        caches={name: cache for name, (_, cache) in read.items()},
        begun={name: cache.length for name, (_, cache) in read.items()},
        noise=noise_table(request.seed, max_new + method.width),
        ledger=Ledger(zeros(), {name: zeros() for name in read}, zeros(method.drafts), zeros(method.drafts)),
        turns=jnp.zeros((), jnp.int32),
    )
    return placed(begin)


def placed(progress: Progress) -> Progress:
    """The loop with its arrays where a mesh wants them, wherever they were computed; as it is without one.

    Who is done is known on every device, so that each process can ask.
    """
    view, rows = progress.view, lambda tree: jax.tree.map(axes.by_rows, tree)
    seen = None if view.seen is None else axes.by_vocabulary(view.seen)
    return Progress(
        view=rows(view._replace(seen=None))._replace(done=axes.whole(view.done), seen=seen),
        caches={name: axes.by_heads(cache, name) for name, cache in progress.caches.items()},
        begun=rows(progress.begun),
        noise=axes.by_rows(progress.noise, 1),
        ledger=rows(progress.ledger),
        turns=axes.whole(progress.turns),
    )


@partial(jax.jit, static_argnames=("method",), donate_argnames=("progress",))
def run(
    method: Method,
    params: Mapping[str, Params],
    progress: Progress,
    request: Request,
    steps: int | Array = FOREVER,
    enough: int | Array = FOREVER,
) -> Progress:
    """Steps until every row is done, or `enough` rows are, at most `steps` times; called again, it goes on.

    steps, enough: data, not part of what is compiled.
    """
    until = progress.turns + jnp.minimum(steps, FOREVER - progress.turns)

    def unfinished(now: Progress) -> Array:
        finished = jnp.sum(now.done)
        return (finished < jnp.minimum(enough, now.done.size)) & (now.turns < until)

    return placed(lax.while_loop(unfinished, partial(_advance, method, params, request), progress))


def generate(
    method: Method,
    params: Mapping[str, Params],
    tokens: Array,
    lengths: Array,
    request: Request,
    max_new: int,
) -> Generation:
    """Prompts [b, s], right-padded, to answers of at most min(max_new, request.max_new_tokens) tokens."""
    end = run(method, params, start(method, params, tokens, lengths, request, max_new), request)
    return finish(end, request)


@jax.jit
def finish(end: Progress, request: Request) -> Generation:
    """The answers in a finished loop."""
    emitted, n = end.view.emitted, end.view.text.shape[1] - 1
    tokens = jnp.where(jnp.arange(n) < emitted[:, None], end.view.text[:, 1:], 0)
    ended = (emitted > 0) & jnp.any(end.view.last[:, None] == request.eos, axis=1)
    return axes.whole(Generation(tokens, emitted, ended, end.ledger))


@partial(jax.jit, donate_argnames=("progress",))
def cut(progress: Progress, before: Generation, length: Int[Array, " b"]) -> Progress:
    """The loop with rows of length[b] tokens or more ended there, as if no further one had been emitted.

    before: what `finish` said one step ago, when no row was that long.
    """
    view, ledger = progress.view, progress.ledger
    over = view.emitted >= length
    place = jnp.arange(ledger.judged.shape[1])
    gone = over[:, None] & (before.length[:, None] + place >= length[:, None])
    kept = lambda now, old: jnp.where(gone, old, now)
    shorter = progress._replace(
        view=view._replace(emitted=jnp.minimum(view.emitted, length), done=view.done | over),
        ledger=ledger._replace(
            judged=kept(ledger.judged, before.ledger.judged),
            accepted=kept(ledger.accepted, before.ledger.accepted),
        ),
    )
    return placed(shorter)


def room(view: View, request: Request) -> Int[Array, " b"]:
    """How many tokens each row may still emit."""
    most = jnp.minimum(request.max_new_tokens, view.text.shape[1] - 1)
    return (most if request.capacity is None else jnp.minimum(most, request.capacity)) - view.emitted


def _advance(method: Method, params: Mapping[str, Params], request: Request, old: Progress) -> Progress:
    view = old.view
    noise = Noise(*axes.by_rows(_window(old.noise, view.emitted, method.width), 1))
    read = {name: cache.length - old.begun[name] for name, cache in old.caches.items()}
    block = method.step(params, noise, view._replace(read=read), old.caches, request)
    left = room(view, request)
    count, ended = _cut(block, request.eos, left, old.done)
    emitted = view.emitted + count
    # A cache may know all but the newest token: what it read beyond, the next step overwrites.
    caches = {
        name: kv.rewind(cache, jnp.minimum(cache.length, old.begun[name] + emitted))
        for name, cache in block.caches.items()
    }
    text = _append(view.text, block.tokens, view.emitted + 1, count)
    done = old.done | ended | (count >= left)
    seen = None if view.seen is None else probs.used(view.seen, block.tokens, count)
    new = Progress(
        view=view._replace(text=text, emitted=emitted, done=done, own=block.own, seen=seen),
        caches=caches,
        begun=old.begun,
        noise=old.noise,
        ledger=_record(old.ledger, block, count),
        turns=old.turns + 1,
    )
    return placed(new)


def _window(table: Float[Array, "3 b n"], start: Int[Array, " b"], w: int) -> Float[Array, "3 b w"]:
    at = start[:, None] + jnp.arange(w)
    return jnp.take_along_axis(table, jnp.broadcast_to(at, (3, *at.shape)), axis=2)


def _cut(block: Block, eos: Array, room: Array, done: Array) -> tuple[Array, Array]:
    """How many of a block's tokens are emitted (0 for a finished row), and whether the last ends the row."""
    count = jnp.where(done, 0, jnp.minimum(block.count, room))
    place = jnp.arange(block.tokens.shape[1])
    ends = jnp.any(block.tokens[:, :, None] == eos[:, None], axis=2) & (place < count[:, None])
    ended = jnp.any(ends, axis=1)
    return jnp.where(ended, jnp.argmax(ends, axis=1) + 1, count), ended


def _append(buffer: Array, new: Array, length: Array, count: Array) -> Array:
    """Writes count[b] tokens at length[b]; the rest of the block goes past the end and is dropped."""
    place = jnp.arange(new.shape[1])
    at = jnp.where(place < count[:, None], length[:, None] + place, buffer.shape[1] + place)
    put = lambda row, values, i: row.at[i].set(values, mode="drop", unique_indices=True)
    return jax.vmap(put)(buffer, new, at)


def _record(ledger: Ledger, block: Block, count: Array) -> Ledger:
    place, live = jnp.arange(ledger.judged.shape[1]), count > 0
    seen = (place < count[:, None]) & (place < block.drafted[:, None])
    judged, kept = seen & (place <= block.accepted[:, None]), seen & (place < block.accepted[:, None])
    calls = {name: ledger.calls[name] + jnp.where(live, n, 0) for name, n in block.calls.items()}
    return Ledger(ledger.steps + live, calls, ledger.judged + judged, ledger.accepted + kept)
