"""Long prompts in chunks: scores [chunk, l] instead of [s, s] for s tokens."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from spec_cascades.typing import Array, Int

CHUNK = 512
"""Prompts of up to so many tokens are read in one piece (docs/long_prompts.md)."""


def of(lm: Any, chunk: int | None) -> Any:
    """The model reading longer prompts in pieces of at most `chunk` tokens; as it is for None.

    Raises ValueError for chunk < 1, and for a model that reads its prompts with an encoder, at once.
    """
    if chunk is None:
        return lm
    if chunk < 1:
        raise ValueError(f"prefill_chunk {chunk} must be at least 1 token")
    if not hasattr(lm, "chunk"):
        raise ValueError(f"{type(lm).__name__} reads a prompt at once: prefill_chunk {chunk} must be null")
    return replace(lm, chunk=chunk)


def split(s: int, chunk: int) -> tuple[int, int]:
    """(pieces, tokens in each): as few as there can be of at most `chunk` tokens, and equally long."""
    pieces = -(-s // chunk)
    return pieces, -(-s // pieces)


def read(
    one: Callable[[Any, Int[Array, "b c"], Any], Any],
    blank: Callable[[int], Any],
    tokens: Int[Array, "b s"],
    capacity: int,
    chunk: int,
) -> Any:
    """The layers' caches after the prompts: one(layers, tokens, start) for each chunk in turn, in a scan.

    blank: caches of nothing with so many slots, which are more than `capacity` where the last chunk's padding
    passes it, and cut off again; start: the first token's position, None for prompts in one piece.
    """
    (b, s), (n, c) = tokens.shape, split(tokens.shape[1], chunk)
    layers = blank(max(capacity, n * c))
    if n == 1:
        layers = one(layers, tokens, None)
    else:
        pieces = jnp.pad(tokens, ((0, 0), (0, n * c - s))).reshape(b, n, c)
        body = lambda layers, step: (one(layers, *step), None)
        layers, _ = lax.scan(body, layers, (jnp.moveaxis(pieces, 1, 0), c * jnp.arange(n)))
    return jax.tree.map(lambda x: x[..., :capacity, :], layers)
