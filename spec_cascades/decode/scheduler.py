"""Many prompts through a few slots: a finished row makes room for the next prompt.

Prompts wait in order. The loop runs until some slots are free, the answers in them are handed out, and
newcomers are prefilled on their own and put there: nobody else's caches are touched, and since a row's noise
depends on its seed and position alone, an answer is that of the prompt alone.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from spec_cascades import axes
from spec_cascades.decode.loop import (
    FOREVER,
    Generation,
    Method,
    Progress,
    Request,
    cut,
    finish,
    placed,
    run,
    start,
)
from spec_cascades.typing import Array, Int, Params

Ends = Callable[[Sequence[int], Generation, Generation], np.ndarray | None]
"""(prompt in each slot, answers a step ago and now) to the lengths [b] that rows end at, or None."""


class Stats(NamedTuple):
    """turns: steps of the whole batch; occupancy: share of slots whose row was unfinished, over all turns;
    prefills: calls of `start`.
    """

    turns: int
    occupancy: float
    prefills: int


def serve(
    method: Method,
    params: Mapping[str, Params],
    prompts: Sequence[Sequence[int]],
    request: Request,
    max_new: int,
    slots: int,
    idle: int = 1,
    bucket: int = 32,
    ends: Ends | None = None,
) -> Generator[tuple[int, Generation], None, Stats]:
    """Yields (i, prompt i's answer [1, ...]) as rows finish; `request` holds a row for each prompt of ids.

    slots: rows decoded at once; idle: free slots that call for a refill; bucket: prompts are padded to a
    multiple of it; ends: sees every step and may end rows early. Raises ValueError for no prompt, or slots or
    idle out of range.
    """
    n, slots = len(prompts), min(slots, len(prompts))
    if not 1 <= idle <= slots:
        raise ValueError(f"slots {slots} and idle {idle}: wanted 1 <= idle <= slots, and a prompt")
    width = _padded(prompts, bucket)
    capacity = width + max_new + method.width
    owner, begun = list(range(slots)), slots
    own = axes.spread(_take(request, owner))
    progress = start(method, params, *pad(prompts[:slots], width), own, max_new, capacity)
    prefills, steps = 1, 0
    occupant = list(owner)
    look = lambda: jax.device_get(finish(progress, own)) if ends else None
    before = look()
    while True:
        enough = idle if begun < n else FOREVER
        progress = run(method, params, progress, own, 1 if ends else FOREVER, enough)
        out, done = jax.device_get((finish(progress, own), progress.done))
        if ends and (length := ends(occupant, before, out)) is not None:
            progress = cut(progress, before, jnp.asarray(length))
            out, done = jax.device_get((finish(progress, own), progress.done))
        before = out
        free = [slot for slot, i in enumerate(owner) if i is not None and done[slot]]
        for slot in free:
            row = jax.tree.map(lambda x, slot=slot: x[slot : slot + 1], out)
            steps += int(row.ledger.steps[0])
            yield occupant[slot], row
            owner[slot] = None
        if all(i is None for i in owner) and begun == n:
            turns = int(progress.turns)
            return Stats(turns, steps / (turns * slots), prefills)
        coming = list(range(begun, min(begun + len(free), n)))
        if coming:
            begun += len(coming)
            places = free[: len(coming)]
            for slot, i in zip(places, coming, strict=True):
                owner[slot] = occupant[slot] = i
            # Groups of 1, 2, 4, ... rows, so that few shapes compile; a row that only fills up has no slot.
            spare = (1 << (len(coming) - 1).bit_length()) - len(coming)
            rows, places = coming + coming[:1] * spare, places + [slots] * spare
            theirs = _take(request, rows)
            group = [prompts[i] for i in rows]
            fresh = start(method, params, *pad(group, bucket), theirs, max_new, capacity)
            progress, own = admit(progress, own, fresh, theirs, jnp.asarray(places, jnp.int32))
            before, prefills = look(), prefills + 1


@partial(jax.jit, donate_argnames=("progress", "request"))
def admit(
    progress: Progress, request: Request, fresh: Progress, theirs: Request, places: Int[Array, " r"]
) -> tuple[Progress, Request]:
    """The loop with the rows of `fresh` in `places`; a place beyond the batch is dropped."""

    def put(old: Array, new: Array, axis: int = 0) -> Array:
        room = [
            (0, 0 if i == axis else a - b) for i, (a, b) in enumerate(zip(old.shape, new.shape, strict=True))
        ]
        return old.at[(slice(None),) * axis + (places,)].set(jnp.pad(new, room), mode="drop")

    noise, turns = put(progress.noise, fresh.noise, axis=1), progress.turns
    rest = jax.tree.map(put, progress._replace(noise=(), turns=()), fresh._replace(noise=(), turns=()))
    asked = jax.tree.map(lambda old, new: axes.by_rows(put(old, new)), request, theirs)
    return placed(rest._replace(noise=noise, turns=turns)), asked


def _take(request: Request, rows: Sequence[int]) -> Request:
    return jax.tree.map(lambda x: jnp.asarray(x)[np.asarray(rows)], request)


def pad(prompts: Sequence[Sequence[int]], bucket: int) -> tuple[Int[Array, "b s"], Int[Array, " b"]]:
    """Prompts right-padded to a multiple of `bucket` tokens, so that few shapes compile; their lengths."""
    tokens = np.zeros((len(prompts), _padded(prompts, bucket)), np.int32)
    for row, prompt in zip(tokens, prompts, strict=True):
        row[: len(prompt)] = prompt
    return jnp.asarray(tokens), jnp.asarray([len(p) for p in prompts], jnp.int32)


def _padded(prompts: Sequence[Sequence[int]], bucket: int) -> int:
    return -(-max(map(len, prompts)) // bucket) * bucket
