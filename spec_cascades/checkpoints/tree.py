"""Parameter trees as flat `a/b/c` tables, and the one strict comparison every format uses."""

import math
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

Shapes = Mapping[str, tuple[int, ...]]

SHOWN = 20
"""Names listed per kind of fault; a wrong file would otherwise print hundreds."""


ALIGNMENT = 64
FLOATING = ("float64", "float32", "float16", "bfloat16")


class CheckpointError(ValueError):
    """A checkpoint that cannot be read, or that does not hold exactly the expected tensors."""


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one table keyed by slash-joined paths; None leaves are dropped."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}/")
        elif value is not None:
            flat[f"{prefix}{key}"] = value
    return flat


def unflatten(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The nested dictionaries of a table keyed by slash-joined paths."""
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        *parents, name = path.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = value
    return tree


def check_exact(expected: Shapes, found: Shapes, where: str) -> None:
    """Raises CheckpointError naming every missing, unused and wrongly shaped tensor of `where`."""
    wrong = [
        f"{name} is {tuple(found[name])}, expected {tuple(expected[name])}"
        for name in expected
        if name in found and tuple(found[name]) != tuple(expected[name])
    ]
    faults = {
        "missing": [name for name in expected if name not in found],
        "unused": [name for name in found if name not in expected],
        "wrong shape": wrong,
    }
    lines = [f"{kind}: {_some(names)}" for kind, names in faults.items() if names]
    if lines:
        raise CheckpointError(f"{where} does not fit the model; " + "; ".join(lines))


def as_weight(name: str, value: np.ndarray, dtype: str) -> jnp.ndarray:
    """A device array of `value` in `dtype`; CheckpointError for integers, which would need a scale."""
    check_floating(name, value.dtype)
    return jnp.asarray(value.astype(jnp.dtype(dtype), order="C"))


def blank(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """An array to be filled, at an address that lets a CPU's jax.device_put take it over without a copy."""
    size = math.prod(shape) * jnp.dtype(dtype).itemsize
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size].view(jnp.dtype(dtype)).reshape(shape)


def check_floating(name: str, dtype: Any) -> None:
    """Raises CheckpointError for integers, which would need a scale."""
    if str(dtype) not in FLOATING:
        raise CheckpointError(f"{name} is {dtype}, expected floating point (quantised files are not read)")


def _some(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(sorted(names)[:SHOWN]) + more
