"""Gemma's parameters: the official tree, drawn at random, flattened for serving, stacked for a scan."""

import math
from typing import Any

import jax
import jax.numpy as jnp

from spec_cascades.models.gemma.config import Config
from spec_cascades.models.stacking import STACKED, joined
from spec_cascades.typing import Array, Params, PRNGKeyArray


def init(key: PRNGKeyArray, config: Config, dtype: Any = jnp.float32) -> Params:
    """Random parameters: kernels and table fan-in normal; norms, which multiply by 1 + scale, 0."""
    leaves, tree = jax.tree_util.tree_flatten_with_path(shapes_of(config), is_leaf=lambda x: type(x) is tuple)

    def draw(key: PRNGKeyArray, path: Any, shape: tuple[int, ...]) -> Array:
        name = jax.tree_util.keystr(path)
        if "scale" in name:
            return jnp.zeros(shape, dtype)
        last = "embedding" in name or "gating" in name
        fan_in = shape[-1] if last else math.prod(shape[:-1]) if "attn_vec" in name else shape[-2]
        return (fan_in**-0.5 * jax.random.normal(key, shape)).astype(dtype)

    keys = jax.random.split(key, len(leaves))
    return jax.tree.unflatten(tree, [draw(k, *leaf) for k, leaf in zip(keys, leaves, strict=True)])


def shapes_of(config: Config) -> dict[str, Any]:
    """The parameter tree with a shape at every leaf: what a checkpoint must hold, no more and no less."""
    c, m, d, norm = config, config.d_model, config.head_dim, {"scale": (config.d_model,)}
    attn = {"attn_vec_einsum": {"w": (c.heads, d, m)}}
    if c.heads == c.kv_heads:
        attn["qkv_einsum"] = {"w": (3, c.heads, m, d)}
    else:
        attn |= {"q_einsum": {"w": (c.heads, m, d)}, "kv_einsum": {"w": (2, c.kv_heads, m, d)}}
    if c.generation == 3:
        attn |= {"_query_norm": {"scale": (d,)}, "_key_norm": {"scale": (d,)}}
    mlp = {"gating_einsum": (2, c.d_ff, m), "linear": (c.d_ff, m)}
    layer = {"pre_attention_norm": norm, "attn": attn, "pre_ffw_norm": norm, "mlp": mlp}
    if c.generation > 1:
        layer |= {"post_attention_norm": norm, "post_ffw_norm": norm}
    table = {"embedder": {"input_embedding": (c.embeddings, m)}, "final_norm": norm}
    return table | {f"layer_{i}": layer for i in range(c.layers)}


def kernel_of(w: Any, *inputs: int) -> Any:
    """An official einsum as [in, out], given the axes summed over; what has two axes is one already.

    w: [...], an array, one held as int8, or one of a checkpoint not read yet.
    """
    if w.ndim == 2:
        return w
    summed = [i % w.ndim for i in inputs]
    order = (*summed, *(i for i in range(w.ndim) if i not in summed))
    size = math.prod(w.shape[i] for i in summed)
    return w.transpose(*order).reshape(size, math.prod(w.shape) // size)


def serving(params: Params, config: Config) -> Params:
    """The parameters as decoding wants them: the layers' kernels two-dimensional."""
    return params | {f"layer_{i}": _flat_layer(params[f"layer_{i}"]) for i in range(config.layers)}


def _flat_layer(layer: Params) -> Params:
    attn, mlp = layer["attn"], layer["mlp"]
    inputs = {"q_einsum": (-2,), "kv_einsum": (-2,), "qkv_einsum": (-2,), "attn_vec_einsum": (0, 1)}
    flat = {n: {"w": kernel_of(attn[n]["w"], *axes)} for n, axes in inputs.items() if n in attn}
    return layer | {"attn": attn | flat, "mlp": mlp | {"gating_einsum": kernel_of(mlp["gating_einsum"], -1)}}


def stack(params: Params, config: Config) -> Params:
    """The parameters with layers of equal place in the pattern joined on a new first axis, for a scan.

    `stacked_layers/attention_type_j` holds layers j, j + pattern, ...; those of a last, incomplete pattern
    stay as they are.
    """
    n, p = config.layers // config.pattern, config.pattern
    layers = lambda j: [params[f"layer_{i}"] for i in range(j, n * p, p)]
    group = lambda j: jax.tree.map(joined, *layers(j))
    rest = {name: w for name, w in params.items() if not name.startswith("layer_")}
    rest |= {f"layer_{i}": params[f"layer_{i}"] for i in range(n * p, config.layers)}
    return rest | ({STACKED: {f"attention_type_{j}": group(j) for j in range(p)}} if n else {})
