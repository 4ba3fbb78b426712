"""What the target thinks of packed texts, kept on disk: its likeliest tokens at every position.

The target's forward pass is most of the cost of a distillation, and a label of k log-probabilities is a few
dozen bytes: so the target reads each text once and the student as often as it likes.
"""

import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from spec_cascades.distill.corpus import Rows
from spec_cascades.typing import Array, Params

CHUNK = 4
"""Rows the target reads at once: their logits are the peak of memory."""


class Labelled(NamedTuple):
    """Packed rows [n, t] with the target's k likeliest ids and their log p, [n, t, k], likeliest first."""

    tokens: np.ndarray
    segments: np.ndarray
    weights: np.ndarray
    ids: np.ndarray
    log_p: np.ndarray


def label(
    forward: Callable[..., Array],
    params: Params,
    config: Any,
    rows: Rows,
    top: int,
    folder: Path,
    made_with: str,
) -> Labelled:
    """Labels of all rows, kept in `folder` as one file a chunk, so that a kill costs one.

    A chunk's name holds a hash of what it was made from: other texts or settings find no label of theirs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    look = jax.jit(partial(_look, forward, config, top))
    parts = []
    for number, chunk in enumerate(_chunks(rows)):
        file = folder / f"{number:05d}-{_hash(chunk, top, made_with)}.npz"
        if not file.is_file():
            ids, log_p = jax.device_get(look(params, chunk.tokens, chunk.segments))
            scratch = file.with_suffix(".partial.npz")
            np.savez(scratch, ids=ids, log_p=log_p)
            scratch.replace(file)
        with np.load(file) as held:
            n = rows.tokens[number * CHUNK : (number + 1) * CHUNK].shape[0]
            parts.append((held["ids"][:n], held["log_p"][:n]))
    ids, log_p = (np.concatenate(x) for x in zip(*parts, strict=True))
    return Labelled(*rows, ids, log_p)


def _hash(chunk: Rows, top: int, made_with: str) -> str:
    digest = hashlib.sha256(f"{top} {made_with}".encode())
    for part in (chunk.tokens, chunk.segments):
        digest.update(part.tobytes())
    return digest.hexdigest()[:12]


def _chunks(rows: Rows) -> Iterator[Rows]:
    """CHUNK rows at a time, the last filled with padding."""
    for first in range(0, rows.tokens.shape[0], CHUNK):
        some = Rows(*(x[first : first + CHUNK] for x in rows))
        short = CHUNK - some.tokens.shape[0]
        yield Rows(*(np.pad(x, ((0, short), (0, 0))) for x in some))


def _look(
    forward: Callable[..., Array], config: Any, top: int, params: Params, tokens: Array, segments: Array
) -> tuple[Array, Array]:
    log_p = jax.nn.log_softmax(forward(params, config, tokens, segments))
    best, ids = jax.lax.top_k(log_p, top)
    return ids.astype(jnp.int32), best.astype(jnp.float16)


def frequent(labelled: Labelled, count: int, vocab: int) -> np.ndarray:
    """The `count` ids, sorted, that the target most often thinks likely where it counts; low ids fill up.

    Byte-level and SentencePiece vocabularies list frequent pieces first, so that low ids are a fair guess.
    """
    mass = np.zeros(vocab)
    np.add.at(mass, labelled.ids, np.exp(labelled.log_p.astype(np.float32)) * labelled.weights[..., None])
    order = np.lexsort((np.arange(vocab), -mass))
    return np.sort(order[:count]).astype(np.int32)
