"""Early exit: a decoder-only model's first k layers under its own final norm and head, as its drafter."""

from dataclasses import replace
from typing import Any

from spec_cascades.models.gemma import Gemma
from spec_cascades.models.llama import Llama
from spec_cascades.models.stacking import STACKED
from spec_cascades.typing import Params

LAYER = {Llama: "layers_{}", Gemma: "layer_{}"}
"""The families that can exit, and the name of a layer in their parameters."""


def exited(lm: Any, params: Params, k: int) -> tuple[Any, Params]:
    """The model that stops after layer k, and its parameters: the very arrays of `params`, none copied.

    Raises ValueError for a family not in `LAYER`, for k outside 1..layers - 1, and where the layers are
    stacked (`scan`), since a part of a stack would be a copy.
    """
    if type(lm) not in LAYER:
        choices = ", ".join(sorted(family.__name__ for family in LAYER))
        raise ValueError(f"{type(lm).__name__} cannot exit early: only decoder-only models do ({choices})")
    layers = lm.config.layers
    if not 1 <= k < layers:
        raise ValueError(f"exit after {k} layers: must lie in 1..{layers - 1}, the model has {layers}")
    if STACKED in params:
        raise ValueError(f"{type(lm).__name__}'s layers are stacked: exit before they are, or without scan")
    dropped = {LAYER[type(lm)].format(i) for i in range(k, layers)}
    kept = {name: leaf for name, leaf in params.items() if name not in dropped}
    short = replace(lm, config=replace(lm.config, layers=k))
    return replace(short, scan=False), kept
