"""Layers one after another, or stacked and scanned, so that more of them take no longer to compile."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from spec_cascades.typing import Array, Params

STACKED = "stacked_layers"
"""Where a tree keeps layers joined on a new first axis."""

CHOICES = ("scanned", "unrolled")
DEEP = 8
"""Layers from which on a model is scanned where no CPU runs it and nothing else was asked for."""


def stack(params: Params, names: Sequence[str]) -> Params:
    """The tree with its layers, alike and named in order, joined under `STACKED`."""
    rest = {name: w for name, w in params.items() if name not in set(names)}
    layers = [params[name] for name in names]
    return rest | ({STACKED: jax.tree.map(joined, *layers)} if layers else {})


def joined(*layers: Any) -> Any:
    """Arrays alike on a new first axis; those of a checkpoint not read yet join by a method of their own."""
    return layers[0].stack(*layers[1:]) if hasattr(layers[0], "stack") else jnp.stack(layers)


def check(params: Params, scan: bool) -> None:
    """Raises ValueError unless the tree's layers are stacked where `scan` says so."""
    if (STACKED in params) != scan:
        found = "" if STACKED in params else "not "
        raise ValueError(f"parameters are {found}stacked, but scan is {scan}")


def through(
    params: Params,
    names: Sequence[str],
    block: Callable[[Params, Array, Any, Any], tuple[Array, Any]],
    x: Array,
    caches: Any = None,
) -> tuple[Array, Any]:
    """x behind all layers, and their caches.

    block(w, x, cache, i) -> (x, cache) is layer i. caches: one a layer; where the parameters are stacked all
    layers' in one, [b, n, ...], from which block i takes its own; None where nothing is kept.
    """
    if STACKED in params:
        # The caches travel in the carry: as inputs and outputs of a scan a CPU copies them.
        body = lambda carry, step: (block(step[1], *carry, step[0]), None)
        return lax.scan(body, (x, caches), (jnp.arange(len(names)), params[STACKED]))[0]
    kept = []
    for i, name in enumerate(names):
        x, cache = block(params[name], x, None if caches is None else caches[i], i)
        kept.append(cache)
    return x, None if caches is None else tuple(kept)


# ------------------------------------------------------------------------------------------------------------
# Which of the two


def depth(lm: Any) -> int:
    """How many layers a call of the model runs; 0 for a model that has none to scan."""
    inner = _inner(lm)
    if inner is not None:
        return depth(inner)
    config = getattr(lm, "config", None)
    return getattr(config, "decoder_layers", getattr(config, "layers", 0)) if hasattr(lm, "scan") else 0


def arranged(lm: Any, layers: str | None, cut: bool = False) -> Any:
    """The model with its layers "scanned" or "unrolled"; None: as the backend and the depth want it.

    That is unrolled on a CPU, where a scan copies each layer's weights and keys, and scanned elsewhere from
    `DEEP` layers on. cut: a drafter is to share the first layers' arrays, which a stack would copy. A wrapped
    model is arranged inside. Raises ValueError for another name, and for scanned layers that are to be cut.
    """
    if layers not in (None, *CHOICES):
        raise ValueError(f"layers {layers!r} is not one of {list(CHOICES)}, or null for the backend's own")
    if layers == "scanned" and cut:
        raise ValueError("layers 'scanned' does not go with an exit:K drafter, which shares the first layers")
    inner = _inner(lm)
    if inner is not None:
        return replace(lm, lm=arranged(inner, layers, cut))
    usual = jax.default_backend() != "cpu" and depth(lm) >= DEEP and not cut
    scan = usual if layers is None else layers == "scanned"
    return replace(lm, scan=scan) if hasattr(lm, "scan") else lm


def _inner(lm: Any) -> Any:
    """What a wrapper (`Subset`, `Widened`, `Copying`) wraps, else None."""
    return getattr(lm, "lm", None)
