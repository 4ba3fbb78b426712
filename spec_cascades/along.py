"""q and p along a text that is already there: one parallel call of each model, nothing is decoded."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from spec_cascades import methods
from spec_cascades.config import Decoding
from spec_cascades.decode.loop import Request
from spec_cascades.engine import BUCKET, Engine
from spec_cascades.probs import Pair, distribution, edited, raw, used_along
from spec_cascades.typing import Array, Params


def along(engine: Engine, texts: list[str], answers: list[list[int]], decoding: Decoding) -> list[Pair]:
    """The pair over the prefix before each token of each answer: arrays [t, v], float32, on the host.

    Row i is prompt texts[i] and answers[i]'s t tokens; temperature, filters and edits are the decoding's.
    In bfloat16 the figures differ in their last bits from those of a decode, which reads other blocks.
    Raises ValueError for an empty answer, and where a model is missing or the drafter is no model.
    """
    if not all(answers):
        raise ValueError("an answer without tokens has no position to read")
    if len(texts) != len(answers):
        raise ValueError(f"{len(texts)} prompts for {len(answers)} answers")
    # Any method of both models does: the pair depends on none, and this one refuses drafters without a q.
    call = engine.call(texts, methods.pairing(decoding, len(texts)))
    longest = -(-max(map(len, answers)) // BUCKET) * BUCKET
    tokens = np.zeros((len(answers), longest), np.int32)
    for row, answer in zip(tokens, answers, strict=True):
        row[: len(answer)] = answer
    models = (call.method.models["drafter"], call.method.models["target"])
    params = (call.params["drafter"], call.params["target"])
    pair = jax.device_get(_read(models, params, call.tokens, call.lengths, jnp.asarray(tokens), call.request))
    return [Pair(*(x[i, : len(answer)] for x in pair)) for i, answer in enumerate(answers)]


@partial(jax.jit, static_argnames="models")
def _read(
    models: tuple[Any, Any],
    params: tuple[Params, Params],
    prompts: Array,
    lengths: Array,
    tokens: Array,
    request: Request,
) -> Pair:
    """The pair [b, t, v] before each of tokens [b, t]."""

    def scores(lm: Any, weights: Params) -> Array:
        last, cache = lm.prefill(weights, prompts, lengths, prompts.shape[1] + tokens.shape[1])
        logits, _ = lm.extend(weights, jnp.concatenate([last[:, None], tokens[:, :-1]], axis=1), cache)
        seen = None if request.edits is None else used_along(request.edits.seen, tokens[:, :-1])
        return edited(logits, request.edits, seen)

    q, p = map(scores, models, params)
    drawn = partial(distribution, sampling=request.sampling)
    return Pair(drawn(q), drawn(p), raw(q), raw(p))
