"""Arrays not read yet: turned, joined, split and stacked first, and each part then filled in place."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Index = tuple[slice, ...]
"""A part of an array: one slice an axis, its start and stop given, its step 1."""

PIECE = 2**22
"""Bytes, of float32, of an array of which scattered entries are wanted that are read at a time."""


@dataclass(frozen=True, eq=False)
class Leaf:
    """An array not read yet; `fill` writes a part of it into an array of the part's shape and any dtype.

    dtype: its own, where it is not to be read in the weights' (ids); layers: the leaves that it stacks; at:
    when it is read among others, so that what is stored together is read together. Its methods are those of
    arrays and give leaves again: a model's `serving` takes either.
    """

    shape: tuple[int, ...]
    fill: Callable[[np.ndarray, Index], None]
    dtype: str | None = None
    layers: tuple["Leaf", ...] = ()
    at: int = 0

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def T(self) -> "Leaf":
        return self.transpose(*reversed(range(self.ndim)))

    def transpose(self, *axes: int) -> "Leaf":
        """The axes in another order."""
        back = tuple(int(i) for i in np.argsort(axes))
        fill = lambda out, index: self.fill(out.transpose(back), tuple(index[i] for i in back))
        return self._made(tuple(self.shape[i] for i in axes), fill)

    def __getitem__(self, i: int) -> "Leaf":
        """One entry of the first axis."""
        fill = lambda out, index: self.fill(out[None], (slice(i, i + 1), *index))
        return self._made(self.shape[1:], fill)

    def reshape(self, *shape: int) -> "Leaf":
        """Neighbouring axes joined."""

        def fill(out: np.ndarray, index: Index) -> None:
            cover, block, inside = apart_cover(index, self.shape, shape)
            apart = tuple(own.stop - own.start for own in cover)
            if block == out.shape:
                return self.fill(out.reshape(apart), cover)  # a view: axes are only told apart
            held = np.empty(apart, out.dtype)
            self.fill(held, cover)
            out[...] = held.reshape(block)[inside]

        return self._made(shape, fill)

    def take(self, ids: np.ndarray, axis: int) -> "Leaf":
        """Some entries of an axis; of what is between them no more than PIECE is held."""
        ids, n = np.asarray(ids), self.shape[axis]

        def fill(out: np.ndarray, index: Index) -> None:
            own = ids[index[axis]]
            step = max(1, PIECE * out.shape[axis] // (4 * out.size))
            for start in range(0, n, step):
                there = np.flatnonzero((start <= own) & (own < start + step))
                if there.size:
                    cover = (*index[:axis], slice(start, min(start + step, n)), *index[axis + 1 :])
                    held = np.empty([own.stop - own.start for own in cover], out.dtype)
                    self.fill(held, cover)
                    out[(*[slice(None)] * axis, there)] = held.take(own[there] - start, axis)

        return self._made((*self.shape[:axis], len(ids), *self.shape[axis + 1 :]), fill)

    def stack(self, *others: "Leaf") -> "Leaf":
        """This and others alike on a new first axis."""
        layers = (self, *others)

        def fill(out: np.ndarray, index: Index) -> None:
            first, *rest = index
            for i in range(first.start, first.stop):
                layers[i].fill(out[i - first.start], tuple(rest))

        shape, at = (len(layers), *self.shape), min(layer.at for layer in layers)
        return Leaf(shape, fill, self.dtype, layers, at)

    def layer(self, i: int) -> "Leaf":
        """One of the stacked leaves, as a stack of one."""
        return self.layers[i].stack()

    def _made(self, shape: tuple[int, ...], fill: Callable[[np.ndarray, Index], None]) -> "Leaf":
        return Leaf(shape, fill, self.dtype, at=self.at)


def of(value: Any) -> Leaf:
    """An array that is there already."""
    host = np.asarray(value)
    return Leaf(host.shape, lambda out, index: np.copyto(out, host[index]), str(host.dtype))


def fill(leaf: Leaf, wanted: Sequence[tuple[np.ndarray, Index]]) -> None:
    """Fills several parts of a leaf; stacked layers one after another, since each may be one stored chunk."""
    for i, layer in enumerate(leaf.layers):
        met = [(out, *index) for out, index in wanted if index[0].start <= i < index[0].stop]
        fill(layer, [(out[i - first.start], tuple(rest)) for out, first, *rest in met])
    if not leaf.layers:
        for out, index in wanted:
            leaf.fill(out, index)


def whole(shape: tuple[int, ...]) -> Index:
    """The part that is all."""
    return tuple(slice(0, n) for n in shape)


# ----------------------------------------------------------------------------------------------------
# Parts of arrays that are stored in another shape: neighbouring axes joined, or told apart


def joined_cover(
    index: Index, apart: tuple[int, ...], joined: tuple[int, ...]
) -> tuple[Index, tuple[int, ...], Index]:
    """A part of an array by axes told apart, as a part of the same array with neighbouring axes joined.

    Returns (the smallest part of the joined array that covers it, that part's shape with the axes apart,
    where in it the wanted part lies).
    """
    cover, block, inside, at = [], [], [], 0
    for group in groups(apart, joined):
        first, rest = index[at], apart[at + 1 : at + group]
        size = math.prod(rest)
        cover.append(slice(first.start * size, first.stop * size))
        block += [first.stop - first.start, *rest]
        inside += [slice(0, first.stop - first.start), *index[at + 1 : at + group]]
        at += group
    return tuple(cover), tuple(block), tuple(inside)


def apart_cover(
    index: Index, apart: tuple[int, ...], joined: tuple[int, ...]
) -> tuple[Index, tuple[int, ...], Index]:
    """A part of an array with neighbouring axes joined, as a part of the same array by axes told apart.

    Returns (the smallest part along the first axis of each group that covers it, that part's shape with the
    axes joined, where in it the wanted part lies).
    """
    cover, block, inside, at = [], [], [], 0
    for own, group in zip(index, groups(apart, joined), strict=True):
        rest = apart[at + 1 : at + group]
        size = math.prod(rest)
        start, stop = own.start // size, -(-own.stop // size)
        cover += [slice(start, stop), *whole(rest)]
        block.append((stop - start) * size)
        inside.append(slice(own.start - start * size, own.stop - start * size))
        at += group
    return tuple(cover), tuple(block), tuple(inside)


def groups(apart: tuple[int, ...], joined: tuple[int, ...]) -> list[int]:
    """How many neighbouring axes of `apart` each axis of `joined` is the product of."""
    counts, at = [], 0
    for size in joined:
        end = at + 1
        while math.prod(apart[at:end]) < size:
            end += 1
        counts.append(end - at)
        at = end
    counts[-1] += len(apart) - at  # axes of size 1
    return counts
