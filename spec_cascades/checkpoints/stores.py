"""Arrays that tensorstore reads, part by part, a chunk's copy at a time.

With tensorstore rather than Orbax, which reads all at once and keeps another 100 MB of what it has read.
"""

import itertools
import math
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from spec_cascades.checkpoints.leaves import Index, Leaf
from spec_cascades.checkpoints.tree import CheckpointError

CHUNK = 2**22
"""Bytes that our own writer packs together: what reading needs beside an array's own place."""
ENTRY = 2**16
"""What a cache may count for a chunk besides its bytes (about 1,000): with less it keeps none."""


class Array(NamedTuple):
    """A stored array: its name in messages, shape and dtype in the file, and how tensorstore opens it."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    spec: dict[str, Any]


class Stores:
    """Stored arrays as leaves; the one that was read last stays open, with the chunk that was read last.

    A stored chunk may hold many layers or many devices' parts, which come one after another.
    """

    def __init__(self) -> None:
        self._open: tuple[Array, Any] | None = None

    def leaf(self, array: Array, layer: int | None = None, turned: bool = False) -> Leaf:
        """An array, or a layer of those stacked on its first axis; turned: its last two axes swap."""
        shape = array.shape if layer is None else array.shape[1:]
        shape = (*shape[:-2], shape[-1], shape[-2]) if turned else shape
        return Leaf(shape, partial(self._fill, array, layer, turned))

    def _fill(self, array: Array, layer: int | None, turned: bool, out: np.ndarray, index: Index) -> None:
        import tensorstore as ts

        try:
            source = self._source(array)
            view = source if layer is None else source[layer]
            axes = list(range(view.rank))
            view = view[ts.d[axes].transpose[[*axes[:-2], axes[-1], axes[-2]]]] if turned else view
            copy(out, view, index)
        except ValueError as error:
            raise CheckpointError(f"{array.name} cannot be read: {error}") from error

    def _source(self, array: Array) -> Any:
        import tensorstore as ts

        if self._open is None or self._open[0] is not array:
            self._open = None  # what it holds goes first
            opened = ts.open(array.spec, read=True, open=True, context=_context(0)).result()
            kept = math.prod(opened.chunk_layout.read_chunk.shape) * opened.dtype.numpy_dtype.itemsize
            if kept > CHUNK:
                spec = array.spec | {"recheck_cached_data": False}
                opened = ts.open(spec, read=True, open=True, context=_context(kept + ENTRY)).result()
            self._open = array, opened
        return self._open[1]


def _context(kept: int) -> Any:
    import tensorstore as ts

    return ts.Context({"cache_pool": {"total_bytes_limit": kept}})


def copy(out: np.ndarray, source: Any, index: Index) -> None:
    """Writes a part of a tensorstore into `out`, cast to its dtype."""
    import tensorstore as ts

    # A quarter keeps many readers busy, and what they hold well below the array's size.
    budget = math.prod(source.shape) * source.dtype.numpy_dtype.itemsize // 4
    axes = list(range(out.ndim))
    place = ts.array(out)[ts.d[axes].translate_to[[own.start for own in index]]]
    cast = ts.cast(source, out.dtype)
    for part in _parts(source, index, max(CHUNK, budget)):
        place[part].write(cast[part]).result()


def _parts(source: Any, index: Index, budget: int) -> Iterator[Index]:
    """`index` in parts that end where chunks do, of at most `budget` bytes unless one chunk is more."""
    steps, chunk = [], source.chunk_layout.read_chunk.shape
    size = math.prod(chunk) * source.dtype.numpy_dtype.itemsize
    for length, own in zip(source.shape, chunk, strict=True):
        count = max(1, min(budget // size, -(-length // own)))
        steps.append(count * own)
        size *= count
    return itertools.product(*map(_cut, index, steps))


def _cut(own: slice, step: int) -> list[slice]:
    at = range(own.start // step * step, own.stop, step)
    return [slice(max(i, own.start), min(i + step, own.stop)) for i in at]
