"""Pallas kernels for TPUs, each beside a plain reference that it equals."""

from dataclasses import replace
from typing import Any

import jax


def _check(what: str, mesh: bool = False) -> None:
    if (backend := jax.default_backend()) != "tpu":
        raise ValueError(f"{what} 'kernel' is for TPUs, and this is a {backend}: take 'dense'")
    if mesh:
        raise ValueError(f"{what} 'kernel' runs on one device, not on a mesh: take 'dense'")


def attached(lm: Any, role: str | None = None) -> Any:
    """The model with the kernel that reads its cache up to each row's length; a wrapped model inside.

    role: what it plays where a mesh divides its heads; None on one device. Raises ValueError where there is
    no kernel: off a TPU, and for a family that has no place for it (llama-like ones and Gemma have).
    """
    _check("attention")
    inner = getattr(lm, "lm", None)
    if inner is not None:
        return replace(lm, lm=attached(inner, role))
    if not hasattr(lm, "attention"):
        family = type(lm).__name__
        raise ValueError(f"attention 'kernel' is for llama-like models and Gemma, and this is a {family}")
    from spec_cascades.kernels.attention import OnMesh, decode_attention

    return replace(lm, attention=decode_attention if role is None else OnMesh(role))


def verified(method: Any, mesh: bool = False) -> Any:
    """The decoding method with the kernel that verifies from logits; as it is where no drafts are verified.

    Raises ValueError where there is none: off a TPU, on a mesh of devices, for a rule, a drafter or a
    vocabulary that it does not serve, and for a sequence cascade that verifies.
    """
    _check("verification", mesh)
    if getattr(method, "verify", False):
        raise ValueError("verification 'kernel' does not serve method 'hybrid': take 'dense'")
    if not hasattr(method, "judge"):
        return method
    from spec_cascades.kernels import verification

    verification.check(method.rule, method.target.vocab)
    return replace(method, judge=verification.judge)
