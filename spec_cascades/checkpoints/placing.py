"""Leaves onto devices: one leaf after another, and of each no more than the devices of this process hold."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Sharding

from spec_cascades.checkpoints.leaves import Index, Leaf, fill, whole
from spec_cascades.checkpoints.tree import blank, flatten, unflatten
from spec_cascades.typing import Params

Placement = Callable[[str, tuple[int, ...]], Sharding]
"""A leaf's slash-joined path and its shape -> where it lies."""

Hold = Callable[[str, Leaf, str, Sharding | None], Any]
"""A leaf's path, the leaf, a dtype and where it lies -> what stands for it in the tree."""


def served(leaves: Mapping[str, Leaf], serve: Callable[[Params], Params]) -> dict[str, Leaf]:
    """The leaves by path of a tree as `serve` makes it of theirs; none is read."""
    numbered = {path: replace(leaf, at=i) for i, (path, leaf) in enumerate(leaves.items())}
    return flatten(serve(unflatten(numbered)))


def array(path: str, leaf: Leaf, dtype: str, sharding: Sharding | None) -> jax.Array:
    """A leaf as an array, global where there is a sharding, or whole on one device."""
    dtype = leaf.dtype or dtype
    # A copy to an accelerator runs on by itself, and would keep this leaf's parts while the next are read.
    return jax.block_until_ready(_alone(leaf, dtype) if sharding is None else _spread(leaf, dtype, sharding))


def build(
    leaves: Mapping[str, Leaf], dtype: str, place: Placement | None = None, hold: Hold = array
) -> Params:
    """The tree of leaves by path, in `dtype`: global arrays where `place` says, or whole on one device.

    hold: what each becomes as soon as it is read. Raises ValueError, before anything is read, for a leaf that
    its sharding does not divide.
    """
    shardings = {path: _checked(path, leaf.shape, place) for path, leaf in leaves.items()}
    order = sorted(leaves, key=lambda path: leaves[path].at)
    made = {path: hold(path, leaves[path], dtype, shardings[path]) for path in order}
    return unflatten({path: made[path] for path in leaves})


def _checked(path: str, shape: tuple[int, ...], place: Placement | None) -> Sharding | None:
    if place is None:
        return None
    sharding = place(path, shape)
    try:
        sharding.shard_shape(shape)
    except ValueError as error:
        raise ValueError(f"{path} of shape {shape} cannot be laid out as {sharding}: {error}") from error
    return sharding


def _alone(leaf: Leaf, dtype: str) -> jax.Array:
    host = blank(leaf.shape, dtype)
    fill(leaf, [(host, whole(leaf.shape))])
    return jax.device_put(host)


def _spread(leaf: Leaf, dtype: str, sharding: Sharding) -> jax.Array:
    """A global array: each part that this process needs is read once, however many devices hold it."""
    key = lambda given: tuple(s.indices(n)[:2] for s, n in zip(given, leaf.shape, strict=True))
    own = {key(index) for index in sharding.addressable_devices_indices_map(leaf.shape).values()}
    parts = {ends: blank(tuple(stop - start for start, stop in ends), dtype) for ends in sorted(own)}
    fill(leaf, [(part, tuple(slice(*one) for one in ends)) for ends, part in parts.items()])
    found: Callable[[Index], np.ndarray] = lambda given: parts[key(given)]
    return jax.make_array_from_callback(leaf.shape, sharding, found, dtype=jnp.dtype(dtype))
