"""The axes of the mesh that a compiled function runs under, as the decode loop and the models see them.

A mesh (`sharding.Layout`) has an axis `data`, over which rows are divided, and one axis for each prime factor
of its model part: `model0`, `model1`, ... divide both models, `target2`, ... the target alone. What has n
parts lies over the leading axes whose product divides n, and is repeated over the rest. Without a mesh
nothing here does anything.
"""

import math
from typing import Any

import jax
from jax.sharding import PartitionSpec as P

from spec_cascades.typing import Array

ROWS, BOTH, TARGET = "data", "model", "target"
"""The axis of rows, and what the names of the others begin with."""


def names(n: int, role: str = "target", sizes: Any = None) -> tuple[str, ...]:
    """The axes over which n parts of a model in this role ("target" or "drafter") are divided.

    sizes: {axis: devices} in the mesh's order, by default of the mesh around; () where there is none.
    """
    found, product = [], 1
    for name, size in (_around() if sizes is None else sizes).items():
        if name == ROWS or (role == "drafter" and not name.startswith(BOTH)):
            continue
        if n % (product * size):
            break
        found.append(name)
        product *= size
    return tuple(found)


def around() -> bool:
    """Whether there is a mesh."""
    return bool(_around())


def divided() -> bool:
    """Whether some model is divided: there is a mesh, and not of rows alone."""
    return bool(names(0))


def rows(b: int, sizes: Any = None) -> str | None:
    """The axis over which b rows are divided; None where they do not divide."""
    sizes = _around() if sizes is None else sizes
    return ROWS if ROWS in sizes and b % sizes[ROWS] == 0 else None


def share(b: int) -> int:
    """How many of b rows a device holds."""
    return b // _around()[ROWS] if rows(b) else b


def shards(v: int) -> int:
    """In how many parts a vocabulary of v lies."""
    return parts(names(v))


def parts(found: tuple[str, ...]) -> int:
    """How many devices these axes of the mesh have."""
    return math.prod(_around()[name] for name in found)


def cached(shape: tuple[int, ...], role: str, sizes: Any = None) -> P:
    """Where an array of a cache lies: [b, ..., h, l, d] by rows and heads, any other [b, ...] by rows."""
    if len(shape) < 4:
        return P(*[rows(n, sizes) for n in shape[:1]])
    b, *between, h, _, _ = shape
    return P(rows(b, sizes), *[None] * len(between), names(h, role, sizes) or None)


def by_rows(x: Array, b: int = 0) -> Array:
    """x with its axis number `b` divided over the rows' axis, and no other."""
    if not _around():
        return x
    return _constrained(x, P(*[None] * b, rows(x.shape[b])))


def by_vocabulary(x: Array, b: int = 0) -> Array:
    """x [..., v], whose axis number `b` counts rows, with its rows and its vocabulary divided."""
    if not _around():
        return x
    spec = [None] * x.ndim
    spec[-1] = names(x.shape[-1]) or None
    if x.ndim > 1:
        spec[b] = rows(x.shape[b])
    return _constrained(x, P(*spec))


def by_heads(tree: Any, role: str) -> Any:
    """A model's cache with every array where `cached` puts it."""
    if not _around():
        return tree
    return jax.tree.map(lambda x: _constrained(x, cached(x.shape, role)), tree)


def spread(tree: Any) -> Any:
    """Arrays [b, ...] that lie anywhere with their rows divided: for the host, outside compiled functions."""
    return jax.jit(lambda x: jax.tree.map(by_rows, x))(tree) if _around() else tree


def whole(tree: Any) -> Any:
    """Every array repeated on all devices, so that each process can read all of it."""
    if not _around():
        return tree
    return jax.tree.map(lambda x: _constrained(x, P()), tree)


def _around() -> Any:
    return jax.sharding.get_abstract_mesh().shape


def _constrained(x: Array, spec: P) -> Array:
    return jax.lax.with_sharding_constraint(x, spec)
