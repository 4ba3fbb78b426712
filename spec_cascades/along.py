"""q and p along a text that is already there: one parallel call of each model, nothing is decoded."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from spec_cascades import axes, methods
from spec_cascades.config import Decoding
from spec_cascades.decode.loop import Request
from spec_cascades.engine import BUCKET, Call, Engine
from spec_cascades.probs import Pair, distribution, edited, raw, used_along
from spec_cascades.typing import Array, Params


def along(
    engine: Engine,
    texts: list[str],
    answers: list[list[int]],
    decoding: Decoding,
    block: int | None = None,
) -> list[Pair]:
    """The pair over the prefix before each token of each answer: arrays [t, v], float32, on the host.

    Row i is prompt texts[i] and answers[i]'s t tokens; temperature, filters and edits are the decoding's.
    block: tokens that a call reads, None for all in one. In bfloat16 the figures differ in their last bits
    from those of a decode, which reads other blocks.
    Raises ValueError for an empty answer, where a model is missing or the drafter is no model, and on a mesh
    over several processes.
    """
    _check(texts, answers)
    # Any method of both models does: the pair depends on none, and this one refuses drafters without a q.
    call = engine.call(texts, methods.pairing(decoding, len(texts)))
    with engine.within():
        there = engine.placed(call)
        drafter, target = (_laws(there, role, answers, block) for role in ("drafter", "target"))
    return [Pair(q, p, q_raw, p_raw) for (q, q_raw), (p, p_raw) in zip(drafter, target, strict=True)]


def alone(
    engine: Engine,
    texts: list[str],
    answers: list[list[int]],
    decoding: Decoding,
    role: str,
    block: int | None = None,
) -> list[Pair]:
    """As `along`, with one model, "target" or "drafter", in both places of the pair: q = p."""
    _check(texts, answers)
    call = engine.call(texts, replace(decoding, method=role))
    with engine.within():
        laws = _laws(engine.placed(call), role, answers, block)
    return [Pair(x, x, raw, raw) for x, raw in laws]


def _check(texts: list[str], answers: list[list[int]]) -> None:
    if not all(answers):
        raise ValueError("an answer without tokens has no position to read")
    if len(texts) != len(answers):
        raise ValueError(f"{len(texts)} prompts for {len(answers)} answers")


def _laws(
    call: Call, role: str, answers: list[list[int]], block: int | None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """A model's law as sampled and raw, each [t, v], before each token of each answer."""
    longest = -(-max(map(len, answers)) // BUCKET) * BUCKET
    # Rows that fill a batch up on a mesh have no answer: any tokens do.
    tokens = np.zeros((len(call.tokens), longest), np.int32)
    for row, answer in zip(tokens, answers, strict=False):
        row[: len(answer)] = answer
    lm, params = call.method.models[role], call.params[role]
    # Without a mesh a role makes no difference, and one program serves a model in both.
    role = role if axes.around() else None
    laws = _read(lm, params, call.tokens, call.lengths, tokens, call.request, block or longest, role)
    if not laws[0].is_fully_addressable:
        raise ValueError("q and p along a text are read by one process: mesh must fit its own devices")
    # What is divided on a mesh meets on the host alone.
    sampled, plain = jax.device_get(laws)
    return [(sampled[i, : len(a)], plain[i, : len(a)]) for i, a in enumerate(answers)]


@partial(jax.jit, static_argnames=("lm", "block", "role"))
def _read(
    lm: Any,
    params: Params,
    prompts: Array,
    lengths: Array,
    tokens: Array,
    request: Request,
    block: int,
    role: str | None,
) -> tuple[Array, Array]:
    """The law as sampled and raw [b, t, v] before each of tokens [b, t], read `block` at a time.

    On a mesh rows and the vocabulary are divided, and the model's cache as its role has it.
    """
    t = tokens.shape[1]
    blocks = -(-t // block)
    last, cache = lm.prefill(params, prompts, lengths, prompts.shape[1] + blocks * block, block)
    tokens = axes.by_rows(tokens)
    feed = jnp.concatenate([last[:, None], tokens[:, :-1]], axis=1)
    feed = jnp.pad(feed, ((0, 0), (0, blocks * block - t))).reshape(-1, blocks, block)

    def step(cache: Any, some: Array) -> tuple[Any, Array]:
        logits, cache = lm.extend(params, some, cache)
        return axes.by_heads(cache, role), axes.by_vocabulary(logits)

    logits = jnp.moveaxis(lax.scan(step, axes.by_heads(cache, role), jnp.moveaxis(feed, 1, 0))[1], 0, 1)
    logits = logits.reshape(len(tokens), blocks * block, -1)[:, :t]
    seen = None if request.edits is None else used_along(request.edits.seen, tokens[:, :-1])
    logits = edited(logits, request.edits, seen)
    sampled, plain = distribution(logits, request.sampling), raw(logits)
    return axes.by_vocabulary(sampled), axes.by_vocabulary(plain)
