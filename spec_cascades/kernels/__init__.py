"""Pallas kernels for TPUs, each beside a plain reference that it equals."""

from dataclasses import replace
from typing import Any

import jax


def attached(lm: Any, role: str | None = None) -> Any:
    """The model with the kernel that reads its cache up to each row's length; a wrapped model inside.

    role: what it plays where a mesh divides its heads; None on one device. Raises ValueError where there is
    no kernel: off a TPU, and for a family that has no place for it (llama-like ones and Gemma have).
    """
    if (backend := jax.default_backend()) != "tpu":
        raise ValueError(f"attention 'kernel' is for TPUs, and this is a {backend}: take 'dense'")
    inner = getattr(lm, "lm", None)
    if inner is not None:
        return replace(lm, lm=attached(inner, role))
    if not hasattr(lm, "attention"):
        family = type(lm).__name__
        raise ValueError(f"attention 'kernel' is for llama-like models and Gemma, and this is a {family}")
    from spec_cascades.kernels.attention import OnMesh, decode_attention

    return replace(lm, attention=decode_attention if role is None else OnMesh(role))
