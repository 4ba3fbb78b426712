"""Leaves onto devices: one leaf after another, and of each no more than the devices of this process hold."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Sharding

from spec_cascades.checkpoints.tree import blank, flatten, unflatten
from spec_cascades.typing import Params

Index = tuple[slice, ...]
"""A part of an array: one slice an axis, its start and stop given, its step 1."""

Placement = Callable[[str, tuple[int, ...]], Sharding]
"""A leaf's slash-joined path and its shape -> where it lies."""


class Leaf(NamedTuple):
    """An array not read yet; `fill` writes a part of it into an array of the part's shape and any dtype."""

    shape: tuple[int, ...]
    fill: Callable[[np.ndarray, Index], None]


def whole(shape: tuple[int, ...]) -> Index:
    """The part that is all."""
    return tuple(slice(0, n) for n in shape)


def build(leaves: Mapping[str, Leaf], dtype: str, place: Placement | None = None) -> Params:
    """The tree of leaves by path, in `dtype`: global arrays where `place` says, or whole on one device.

    Raises ValueError, before anything is read, for a leaf that its sharding does not divide.
    """
    if place is None:
        return unflatten({path: _alone(leaf, dtype) for path, leaf in leaves.items()})
    shardings = {path: _checked(path, leaf.shape, place) for path, leaf in leaves.items()}
    return unflatten({path: _spread(leaf, dtype, shardings[path]) for path, leaf in leaves.items()})


def spread(params: Params, place: Placement) -> Params:
    """Parameters that are there already, moved leaf by leaf; every process must hold the same."""
    flat = flatten(params)
    shardings = {path: _checked(path, leaf.shape, place) for path, leaf in flat.items()}
    return unflatten({path: _moved(leaf, shardings[path]) for path, leaf in flat.items()})


def _moved(value: Any, sharding: Sharding) -> jax.Array:
    host = np.asarray(value)
    return _spread(Leaf(host.shape, lambda out, i: np.copyto(out, host[i])), str(host.dtype), sharding)


def _checked(path: str, shape: tuple[int, ...], place: Placement) -> Sharding:
    sharding = place(path, shape)
    try:
        sharding.shard_shape(shape)
    except ValueError as error:
        raise ValueError(f"{path} of shape {shape} cannot be laid out as {sharding}: {error}") from error
    return sharding


def _alone(leaf: Leaf, dtype: str) -> jax.Array:
    host = blank(leaf.shape, dtype)
    leaf.fill(host, whole(leaf.shape))
    return jax.device_put(host)


def _spread(leaf: Leaf, dtype: str, sharding: Sharding) -> jax.Array:
    """A global array: each part that this process needs is read once, however many devices hold it."""
    read: dict[tuple[tuple[int, int, int], ...], np.ndarray] = {}

    def part(given: Index | None) -> np.ndarray:
        key = tuple(s.indices(n) for s, n in zip(given or (), leaf.shape, strict=True))
        if key not in read:
            read[key] = blank(tuple(stop - start for start, stop, _ in key), dtype)
            leaf.fill(read[key], tuple(slice(start, stop) for start, stop, _ in key))
        return read[key]

    array = jax.make_array_from_callback(leaf.shape, sharding, part, dtype=jnp.dtype(dtype))
    # A copy to an accelerator runs on by itself, and would keep this leaf's parts while the next are read.
    return jax.block_until_ready(array)


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
