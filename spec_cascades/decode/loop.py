"""The only decode loop: buffers, end of sequence, limits, frozen rows, rewinding. A method owns one step."""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import lax

from spec_cascades import cache as kv
from spec_cascades.probs import Sampling
from spec_cascades.typing import Array, Bool, Float, Int, Params, UInt32
from spec_cascades.verify import Noise

FOREVER = 2**31 - 1


@runtime_checkable
class LM(Protocol):
    """What a model family provides; `vocab` is the width of its logits."""

    @property
    def vocab(self) -> int: ...

    def prefill(self, params: Params, tokens: Array, lengths: Array, capacity: int) -> tuple[Array, kv.Cache]:
        """Reads all of the prompts but the last token, which it returns: (last [b], cache)."""

    def extend(self, params: Params, tokens: Array, cache: kv.Cache) -> tuple[Array, kv.Cache]:
        """Reads [b, t] tokens: (logits [b, t, v] of the token after each, cache)."""


class Request(NamedTuple):
    """What each row asks for, all data: one compilation serves every value.

    eos: ids any of which ends the row, -1 for none; seed: a row's noise depends on it and on the position
    alone; max_new_tokens: at least 1.
    """

    sampling: Sampling
    alpha: Float[Array, " b"]
    eos: Int[Array, "b e"]
    max_new_tokens: Int[Array, " b"]
    seed: UInt32[Array, " b"]


class Block(NamedTuple):
    """A step's result: count[b] of the w tokens are new, accepted[b] drafts stand, caches read all w."""

    tokens: Int[Array, "b w"]
    count: Int[Array, " b"]
    accepted: Int[Array, " b"]
    caches: Mapping[str, kv.Cache]


@runtime_checkable
class Method(Protocol):
    """A decoding method: which models it runs, how many tokens a step may yield, the step."""

    @property
    def models(self) -> Mapping[str, LM]: ...

    @property
    def width(self) -> int: ...

    def step(
        self, params: Mapping[str, Params], noise: Noise, last: Array, caches: Any, request: Request
    ) -> Block: ...


class Ledger(NamedTuple):
    """Counts per row. steps: blocks while the row was unfinished, each a call of the target (or only model).

    judged, accepted [b, w-1]: drafts the verifier decided on, and those kept, by position in the block. A
    draft beyond the end of sequence or the length limit counts in neither.
    """

    steps: Int[Array, " b"]
    judged: Int[Array, "b g"]
    accepted: Int[Array, "b g"]


class Progress(NamedTuple):
    """The loop's state; its buffers and caches are donated to the call that goes on with it."""

    last: Int[Array, " b"]
    caches: Mapping[str, kv.Cache]
    tokens: Int[Array, "b n"]
    emitted: Int[Array, " b"]
    done: Bool[Array, " b"]
    noise: Float[Array, "3 b n"]
    ledger: Ledger


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


@partial(jax.jit, static_argnames=("method", "max_new"))
def start(
    method: Method,
    params: Mapping[str, Params],
    tokens: Array,
    lengths: Array,
    request: Request,
    max_new: int,
) -> Progress:
    """Prefills every model on right-padded prompts [b, s], samples nothing. max_new: the buffers' length."""
    b, capacity = tokens.shape[0], tokens.shape[1] + max_new + method.width
    read = {name: lm.prefill(params[name], tokens, lengths, capacity) for name, lm in method.models.items()}
    last = next(iter(read.values()))[0]
    zeros = lambda *shape: jnp.zeros((b, *shape), jnp.int32)
    ledger = Ledger(zeros(), zeros(method.width - 1), zeros(method.width - 1))
    noise = noise_table(request.seed, max_new + method.width)
    caches = {name: cache for name, (_, cache) in read.items()}
    return Progress(last, caches, zeros(max_new), zeros(), jnp.zeros(b, bool), noise, ledger)


@partial(jax.jit, static_argnames=("method",), donate_argnames=("progress",))
def run(
    method: Method,
    params: Mapping[str, Params],
    progress: Progress,
    request: Request,
    steps: int | Array = FOREVER,
) -> Progress:
    """Steps until every row is done, at most `steps` (data) times; called again, it goes on."""

    def body(carry: tuple[Progress, Array]) -> tuple[Progress, Array]:
        return _advance(method, params, request, carry[0]), carry[1] + 1

    unfinished = lambda carry: ~jnp.all(carry[0].done) & (carry[1] < steps)
    return lax.while_loop(unfinished, body, (progress, jnp.zeros((), jnp.int32)))[0]


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
    n = end.tokens.shape[1]
    tokens = jnp.where(jnp.arange(n) < end.emitted[:, None], end.tokens, 0)
    final = jnp.take_along_axis(tokens, jnp.maximum(end.emitted - 1, 0)[:, None], axis=1)[:, 0]
    ended = jnp.any(final[:, None] == request.eos, axis=1)
    return Generation(tokens, end.emitted, ended, end.ledger)


def _advance(method: Method, params: Mapping[str, Params], request: Request, old: Progress) -> Progress:
    w, n = method.width, old.tokens.shape[1]
    before = {name: cache.length for name, cache in old.caches.items()}
    noise = Noise(*_window(old.noise, old.emitted, w))
    block = method.step(params, noise, old.last, old.caches, request)
    room = jnp.minimum(request.max_new_tokens, n) - old.emitted
    count, ended = _cut(block, request.eos, room, old.done)
    tokens = _append(old.tokens, block.tokens, old.emitted, count)
    newest = jnp.take_along_axis(block.tokens, jnp.maximum(count - 1, 0)[:, None], axis=1)[:, 0]
    caches = {name: kv.rewind(cache, before[name] + count) for name, cache in block.caches.items()}
    return Progress(
        last=jnp.where(count > 0, newest, old.last),
        caches=caches,
        tokens=tokens,
        emitted=old.emitted + count,
        done=old.done | ended | (count >= room),
        noise=old.noise,
        ledger=_record(old.ledger, block.accepted, count, w - 1),
    )


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


def _record(ledger: Ledger, accepted: Array, count: Array, g: int) -> Ledger:
    place = jnp.arange(g)
    seen = place < count[:, None]
    judged, kept = seen & (place <= accepted[:, None]), seen & (place < accepted[:, None])
    return Ledger(ledger.steps + (count > 0), ledger.judged + judged, ledger.accepted + kept)
