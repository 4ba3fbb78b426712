"""Placed parameters as decoding under a mesh wants them, one tensor at a time."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from spec_cascades.models.gemma import Gemma
from spec_cascades.models.gemma.params import stack
from spec_cascades.models.stacking import STACKED
from spec_cascades.models.subset import Subset
from spec_cascades.sharding.tables import Place, path_of
from spec_cascades.typing import Array, Params

PARTS = {"qkv_einsum": ("q_einsum", "k_einsum", "v_einsum"), "kv_einsum": ("k_einsum", "v_einsum")}
"""What a kernel of several roles falls into: joined on one axis, a shard would hold part of one role only."""


def serving(lm: Any, params: Params, place: Place) -> Params:
    """What `lm.serving` gives, every array where `place` wants it and every kernel of a role its own.

    params: as checkpoints hold them, placed. A tensor is transformed where it lies, and gone once what
    replaces it is there: no device holds more than its share and one tensor.
    """
    if isinstance(lm, Subset):
        below = lambda path, shape: place(f"model/{path}", shape)
        return params | {"model": serving(lm.lm, params["model"], below)}
    if isinstance(lm, Gemma):
        return _gemma(params, lm, place)
    if hasattr(lm, "lm"):
        return serving(lm.lm, params, place)
    if not getattr(lm, "scan", False):
        return lm.serving(params)
    return jax.tree_util.tree_map_with_path(
        lambda path, x: jax.device_put(x, place(path_of(path), x.shape)), lm.serving(params)
    )


def _gemma(params: Params, lm: Gemma, place: Place) -> Params:
    names = [f"layer_{i}" for i in range(lm.config.layers)]
    flat = params | {name: _apart(params[name], name, place) for name in names}
    return stack(flat, lm.config, partial(_join, place)) if lm.scan else flat


def _apart(layer: Params, name: str, place: Place) -> Params:
    """A layer's kernels [in, out], one of each role."""
    attn, mlp = {}, dict(layer["mlp"])
    for kernel, leaf in layer["attn"].items():
        if "einsum" not in kernel:
            attn[kernel] = leaf
            continue
        for part, role in enumerate(PARTS.get(kernel, (kernel,))):
            one, path = part if kernel in PARTS else None, f"{name}/attn/{role}/w"
            attn[role] = {"w": _flat(leaf["w"], one, kernel == "attn_vec_einsum", place, path)}
        if attn[role]["w"] is not leaf["w"]:
            _drop(leaf["w"])
    if "gating_einsum" in mlp:
        both = mlp.pop("gating_einsum")
        for part, role in enumerate(("gate", "up")):
            mlp[role] = _moved(lambda w, i: w[i].T, both, part, place, f"{name}/mlp/{role}")
        _drop(both)
    return layer | {"attn": attn, "mlp": mlp}


def _flat(w: Array, part: int | None, out: bool, place: Place, path: str) -> Array:
    """An official kernel of one role, [heads, m, d] or (out) [heads, d, m], as [in, out]."""
    if w.ndim == 2:
        if part is not None:
            raise ValueError(f"{path}: its kernel is joined with others; give a checkpoint's parameters")
        return w

    def flat(w: Array, part: int | None) -> Array:
        w = w if part is None else w[part]
        h, a, b = w.shape
        return w.reshape(h * a, b) if out else jnp.swapaxes(w, 0, 1).reshape(a, h * b)

    return _moved(flat, w, part, place, path)


def _moved(change: Any, w: Array, part: int | None, place: Place, path: str) -> Array:
    shape = jax.eval_shape(partial(change, w, part)).shape
    return jax.jit(change, static_argnums=1, out_shardings=place(path, shape))(w, part)


def _join(place: Place, path: Any, *layers: Array) -> Array:
    """One path's leaves of several layers, stacked where they belong, and gone themselves."""
    where = place(f"{STACKED}/{path_of(path)}", (len(layers), *layers[0].shape))
    joined = jax.jit(lambda *w: jnp.stack(w), out_shardings=where)(*layers)
    for layer in layers:
        _drop(layer)
    return joined


def _drop(x: Array) -> None:
    """Frees an array that has been replaced; in a trace, where only shapes matter, there is none."""
    if not isinstance(x, jax.core.Tracer):
        x.delete()
