"""(q, p) along texts on disk: a log of finished batches, and beside it one .npz of sparse rows for each.

A position keeps the ids that carry all but `remainder` of the mass of each of q, p, q_raw and p_raw, in
ascending order so that ties fall as in the dense arrays. What a rule sums over the ids left out is within the
remainder. Nothing is unpickled. A killed run goes on behind its last logged batch.
"""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np

from spec_cascades.checks import ConfigError
from spec_cascades.runlog import write_atomically

COLUMNS = ("q", "p", "q_raw", "p_raw")


class Rows(NamedTuple):
    """Sparse positions one after the other: counts [n] of their ids, and ids and columns [sum of counts]."""

    counts: np.ndarray
    ids: np.ndarray
    q: np.ndarray
    p: np.ndarray
    q_raw: np.ndarray
    p_raw: np.ndarray

    @property
    def width(self) -> int:
        """The most ids that a position keeps."""
        return int(self.counts.max(initial=0))


class Store(NamedTuple):
    """All positions of a store; lengths: tokens of each of its answers, in their order."""

    rows: Rows
    lengths: list[int]


def sparse(pair: Any, remainder: float) -> Rows:
    """The rows of a dense pair of arrays [t, v]."""
    keep = np.zeros(pair.q.shape, bool)
    for x in pair:
        keep |= _carrying(x, remainder)
    return Rows(keep.sum(1).astype(np.int32), np.nonzero(keep)[1].astype(np.int32), *(x[keep] for x in pair))


def _carrying(x: np.ndarray, remainder: float) -> np.ndarray:
    """The likeliest ids of each row, and all as likely as the last of them, but for at most `remainder`."""
    ranked = -np.sort(-x, axis=-1)
    # Summed from the small end: the tail is what counts, and a sum from the large end would round it away.
    tail = np.cumsum(ranked[:, ::-1], axis=-1, dtype=np.float64)[:, ::-1]
    last = np.maximum((tail > remainder).sum(-1) - 1, 0)
    least = np.take_along_axis(ranked, last[:, None], axis=-1)
    return (x >= least) & (x > 0)


def dense(rows: Rows, width: int) -> dict[str, np.ndarray]:
    """Columns [n, width], zero where a position keeps fewer ids."""
    inside = np.arange(width) < rows.counts[:, None]
    filled = {name: np.zeros(inside.shape, np.float32) for name in COLUMNS}
    for name, x in filled.items():
        x[inside] = getattr(rows, name)
    return filled


def chunks(rows: Rows, n: int) -> Iterator[Rows]:
    """Rows of n positions at a time; the last has what is left."""
    ends = np.concatenate([[0], np.cumsum(rows.counts, dtype=np.int64)])
    for first in range(0, len(rows.counts), n):
        last = min(first + n, len(rows.counts))
        flat = slice(ends[first], ends[last])
        yield Rows(rows.counts[first:last], *(x[flat] for x in rows[1:]))


def joined(parts: list[Rows]) -> Rows:
    """The positions of several, one after the other."""
    return Rows(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def write(path: Path, rows: Rows) -> None:
    """The file as a whole, on disk when this returns."""
    data = io.BytesIO()
    np.savez_compressed(data, **rows._asdict())
    write_atomically(path, data.getvalue())


def read(folder: Path, lines: list[dict[str, Any]]) -> Store:
    """The store that the log's batches describe. Raises ConfigError for a file that is gone or not theirs."""
    batches = sorted(
        (line for line in lines if line["kind"] == "pairs"), key=lambda b: (b["repeat"], b["first"])
    )
    lengths = [len(answer["tokens"]) for batch in batches for answer in batch["answers"]]
    return Store(joined([_read(folder / b["file"], b) for b in batches]), lengths)


def _read(path: Path, batch: dict[str, Any]) -> Rows:
    try:
        with np.load(path, allow_pickle=False) as file:
            rows = Rows(*(file[name] for name in Rows._fields))
    except (OSError, ValueError, KeyError, BadZipFile) as error:
        raise ConfigError(
            f"output: {path} of the store cannot be read ({error}); remove the folder"
        ) from None
    tokens = sum(len(answer["tokens"]) for answer in batch["answers"])
    if len(rows.counts) != tokens or len(rows.ids) != rows.counts.sum():
        raise ConfigError(f"output: {path} holds {len(rows.counts)} positions, and the log says {tokens}")
    return rows
