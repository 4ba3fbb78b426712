"""What rows ask for, as the arrays that the decode loop reads."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np

from spec_cascades import methods
from spec_cascades.config import Decoding
from spec_cascades.decode.loop import Request
from spec_cascades.probs import Edits, Sampling
from spec_cascades.tokenizers import Tokenizer


class Windows(NamedTuple):
    """How many tokens each model can see, None for no limit; a prompt's tokens count unless encoded apart."""

    target: int | None = None
    drafter: int | None = None


NO_LIMIT = Windows()


def request_of(
    decodings: Sequence[Decoding],
    prompts: Sequence[Sequence[int]],
    tokenizer: Tokenizer,
    vocab: int,
    windows: Windows = NO_LIMIT,
) -> Request:
    """One row a decoding, row i's prompt being prompts[i]; vocab: the width of the logits.

    Raises ValueError for an id that is not in the vocabulary and a prompt that fills a window.
    """
    column = lambda key, dtype: np.asarray([getattr(d, key) for d in decodings], dtype)
    alphas = [methods.default_alpha(d) if d.alpha is None else d.alpha for d in decodings]
    return jax.tree.map(
        jax.numpy.asarray,
        Request(
            sampling=Sampling(
                column("temperature", np.float32),
                column("top_k", np.int32),
                column("top_p", np.float32),
                column("min_p", np.float32),
            ),
            alpha=np.asarray(alphas, np.float32),
            eos=_ends(decodings, tokenizer, vocab),
            max_new_tokens=column("max_new_tokens", np.int32),
            seed=column("seed", np.uint32),
            capacity=_capacity("target", windows.target, prompts),
            drafter_capacity=_capacity("drafter", windows.drafter, prompts),
            edits=_edits(decodings, prompts, vocab),
        ),
    )


def _ends(decodings: Sequence[Decoding], tokenizer: Tokenizer, vocab: int) -> np.ndarray:
    ends = [list(tokenizer.stops) if d.eos is None else _known("eos", d.eos, vocab) for d in decodings]
    width = max(1, *map(len, ends))
    return np.asarray([row + [-1] * (width - len(row)) for row in ends], np.int32)


def _capacity(role: str, window: int | None, prompts: Sequence[Sequence[int]]) -> np.ndarray | None:
    if window is None:
        return None
    longest = max(map(len, prompts))
    if longest >= window and role == "target":
        raise ValueError(f"a prompt of {longest} tokens leaves no room in the target's window of {window}")
    return np.asarray([max(window - len(prompt), 0) for prompt in prompts], np.int32)


def _edits(decodings: Sequence[Decoding], prompts: Sequence[Sequence[int]], vocab: int) -> Edits | None:
    """None unless some row changes its scores: the arrays are as wide as the vocabulary."""
    if not any(d.edits for d in decodings):
        return None
    bias, seen = np.zeros((2, len(decodings), vocab), np.float32)
    for row, (d, prompt) in enumerate(zip(decodings, prompts, strict=True)):
        given: Mapping[int, float] = d.logit_bias
        bias[row, _known("logit_bias", list(given), vocab)] = list(given.values())
        bias[row, _known("forbidden", d.forbidden, vocab)] = -np.inf
        seen[row, list(prompt)] = 1
    penalty = np.asarray([d.repetition_penalty for d in decodings], np.float32)
    return Edits(bias, penalty, seen.astype(bool))


def _known(key: str, ids: Sequence[int], vocab: int) -> list[int]:
    for i in ids:
        if not 0 <= i < vocab:
            raise ValueError(f"{key}: id {i} is not in the vocabulary, 0..{vocab - 1}")
    return list(ids)
