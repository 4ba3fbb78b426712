"""Speculative cascades in JAX: a small model drafts, a large one defers, exactly.

The names below are imported when they are first used, so that the command line answers at once.
"""

from importlib import import_module
from typing import Any

_HOME = {
    "Decoding": "config",
    "Engine": "engine",
    "Pair": "probs",
    "RULES": "rules",
    "Sampling": "probs",
    "deferral": "rules",
    "generate": "decode.loop",
    "load": "checkpoints",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no {name!r}; it exports {', '.join(__all__)}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
