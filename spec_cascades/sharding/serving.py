"""A checkpoint's parameters as decoding under a mesh wants them: every kernel of a role its own."""

from typing import Any

from spec_cascades.models.gemma import Gemma
from spec_cascades.models.gemma.params import stack
from spec_cascades.models.subset import Subset
from spec_cascades.typing import Params

PARTS = {"qkv_einsum": ("q_einsum", "k_einsum", "v_einsum"), "kv_einsum": ("k_einsum", "v_einsum")}
"""What a kernel of several roles falls into: joined on one axis, a shard would hold part of one role only."""


def serving(lm: Any, params: Params) -> Params:
    """What `lm.serving` gives, but no kernels joined; params: as checkpoints hold them, read or not."""
    if isinstance(lm, Subset):
        return params | {"model": serving(lm.lm, params["model"])}
    if isinstance(lm, Gemma):
        names = [f"layer_{i}" for i in range(lm.config.layers)]
        flat = params | {name: _apart(params[name], name) for name in names}
        return stack(flat, lm.config) if lm.scan else flat
    return serving(lm.lm, params) if hasattr(lm, "lm") else lm.serving(params)


def _apart(layer: Params, name: str) -> Params:
    """A layer's kernels [in, out], one of each role."""
    attn, mlp = {}, dict(layer["mlp"])
    for kernel, leaf in layer["attn"].items():
        if "einsum" not in kernel:
            attn[kernel] = leaf
        elif kernel not in PARTS:
            attn[kernel] = {"w": _flat(leaf["w"], kernel == "attn_vec_einsum")}
        elif leaf["w"].ndim == 2:
            raise ValueError(f"{name}/attn/{kernel}: is joined already; give a checkpoint's parameters")
        else:
            attn |= {role: {"w": _flat(leaf["w"][i])} for i, role in enumerate(PARTS[kernel])}
    if "gating_einsum" in mlp:
        both = mlp.pop("gating_einsum")
        mlp |= {role: both[i].T for i, role in enumerate(("gate", "up"))}
    return layer | {"attn": attn, "mlp": mlp}


def _flat(w: Any, out: bool = False) -> Any:
    """An official kernel of one role, [heads, m, d] or (out) [heads, d, m], as [in, out]."""
    if w.ndim == 2:
        return w
    h, a, b = w.shape
    return w.reshape(h * a, b) if out else w.transpose(1, 0, 2).reshape(a, h * b)
