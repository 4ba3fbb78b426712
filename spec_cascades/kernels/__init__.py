"""Pallas kernels for TPUs, each beside a plain reference that it equals."""

from dataclasses import replace
from typing import Any

import jax


def attached(lm: Any, mesh: bool = False) -> Any:
    """The model with the kernel that reads its cache up to each row's length; a wrapped model inside.

    Raises ValueError where there is none: off a TPU, on a mesh of devices, and for a family that has no place
    for it (only the llama-like ones have).
    """
    if (backend := jax.default_backend()) != "tpu":
        raise ValueError(f"attention 'kernel' is for TPUs, and this is a {backend}: take 'dense'")
    if mesh:
        raise ValueError("attention 'kernel' runs on one device, not on a mesh: take 'dense'")
    inner = getattr(lm, "lm", None)
    if inner is not None:
        return replace(lm, lm=attached(inner))
    if not hasattr(lm, "attention"):
        raise ValueError(f"attention 'kernel' is for llama-like models, and this is a {type(lm).__name__}")
    from spec_cascades.kernels.attention import decode_attention

    return replace(lm, attention=decode_attention)
