"""q and p along a text that is already there: one parallel call of each model, nothing is decoded."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from spec_cascades import methods
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
    Raises ValueError for an empty answer, and where a model is missing or the drafter is no model.
    """
    _check(texts, answers)
    # Any method of both models does: the pair depends on none, and this one refuses drafters without a q.
    call = engine.call(texts, methods.pairing(decoding, len(texts)))
    drafter, target = (_laws(call, role, answers, block) for role in ("drafter", "target"))
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
    return [Pair(x, x, raw, raw) for x, raw in _laws(call, role, answers, block)]


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
    tokens = np.zeros((len(answers), longest), np.int32)
    for row, answer in zip(tokens, answers, strict=True):
        row[: len(answer)] = answer
    lm, params = call.method.models[role], call.params[role]
    laws = _read(lm, params, call.tokens, call.lengths, jnp.asarray(tokens), call.request, block or longest)
    sampled, plain = jax.device_get(laws)
    return [(sampled[i, : len(a)], plain[i, : len(a)]) for i, a in enumerate(answers)]


@partial(jax.jit, static_argnames=("lm", "block"))
def _read(
    lm: Any,
    params: Params,
    prompts: Array,
    lengths: Array,
    tokens: Array,
    request: Request,
    block: int,
) -> tuple[Array, Array]:
    """The law as sampled and raw [b, t, v] before each of tokens [b, t], read `block` at a time."""
    t = tokens.shape[1]
    blocks = -(-t // block)
    last, cache = lm.prefill(params, prompts, lengths, prompts.shape[1] + blocks * block, block)
    feed = jnp.concatenate([last[:, None], tokens[:, :-1]], axis=1)
    feed = jnp.pad(feed, ((0, 0), (0, blocks * block - t))).reshape(-1, blocks, block)

    def step(cache: Any, some: Array) -> tuple[Any, Array]:
        logits, cache = lm.extend(params, some, cache)
        return cache, logits

    logits = jnp.moveaxis(lax.scan(step, cache, jnp.moveaxis(feed, 1, 0))[1], 0, 1)
    logits = logits.reshape(len(tokens), blocks * block, -1)[:, :t]
    seen = None if request.edits is None else used_along(request.edits.seen, tokens[:, :-1])
    logits = edited(logits, request.edits, seen)
    return distribution(logits, request.sampling), raw(logits)
