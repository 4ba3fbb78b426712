"""Tiny T5s with random weights, and T5X folders of them in every layout."""

import jax
import numpy as np
import tensorstore as ts
from flax.serialization import msgpack_serialize

from spec_cascades.checkpoints.tree import flatten, unflatten
from spec_cascades.models import t5

SIZES = dict(vocab=90, embeddings=96, d_model=8, d_kv=3, d_ff=16, heads=4, encoder_layers=2, decoder_layers=3)


def random_params(config, seed=0):
    """A tree of the model's shapes, float32 numpy."""
    rng = np.random.default_rng(seed)
    draw = lambda shape: rng.normal(size=shape).astype(np.float32)
    return jax.tree.map(draw, t5.shapes_of(config), is_leaf=lambda x: isinstance(x, tuple))


def same_tree(got, expected):
    """Asserts equal structure and equal values."""
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, got, expected)


def write_t5x(folder, tree):
    """A T5X folder whose msgpack file holds `tree`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "checkpoint").write_bytes(msgpack_serialize(tree))
    return folder


def inline(folder, params):
    """A T5X folder of the oldest kind, arrays in the file."""
    return write_t5x(folder, {"version": 3, "optimizer": {"state": {"step": np.int32(7)}, "target": params}})


def zarr(folder, name, value):
    """One array as a zarr folder; the spec that T5X leaves in the msgpack."""
    spec = {"driver": "zarr", "kvstore": {"driver": "file", "path": f"{folder}/{name}"}}
    store = ts.open(spec, create=True, dtype=value.dtype, shape=value.shape).result()
    store.write(value).result()
    kept = {"driver": "gfile", "path": name}
    return {"driver": "zarr", "dtype": "float32", "kvstore": kept, "metadata": {"shape": list(value.shape)}}


def specs(folder, params):
    """Small arrays inline, kernels as zarr, some of them wrapped in a cast."""
    flat = flatten(params)
    for name, value in flat.items():
        if "kernel" in name:
            spec = zarr(folder, f"target.{name.replace('/', '.')}", value)
            flat[name] = {"driver": "cast", "dtype": "bfloat16", "base": spec} if "wi" in name else spec
    return write_t5x(folder, {"version": 3, "optimizer": {"state": {}, "target": unflatten(flat)}})


def placeholders(folder, params):
    flat = {}
    for name, value in flatten(params).items():
        dotted = f"target.{name.replace('/', '.')}"
        zarr(folder, dotted, value)
        flat[name] = f"PLACEHOLDER://{dotted}"
    return write_t5x(
        folder,
        {"flax_mutables": None, "target": unflatten(flat), "state": {"step": "PLACEHOLDER://state.step"}},
    )


def scanned(folder, params, inner="layers", write_leaves=inline):
    """Layers stacked on axis 1 under `inner`, else under their stack's own name, with heads apart."""
    flat, stacks = {}, {}
    for name, value in flatten(params).items():
        stack, _, rest = name.partition("/layers_")
        if rest:
            index, _, leaf = rest.partition("/")
            stacks.setdefault(f"{stack}/{inner or stack}/{leaf}", {})[int(index)] = apart(leaf, value)
        else:
            flat[name] = value
    flat |= {name: np.stack([layers[i] for i in sorted(layers)], axis=1) for name, layers in stacks.items()}
    return write_leaves(folder, unflatten(flat))


def apart(leaf, value, heads=4):
    if "attention" not in leaf or "kernel" not in leaf:
        return value
    if leaf.endswith("out/kernel"):
        return value.reshape(heads, -1, value.shape[1])
    return value.reshape(value.shape[0], heads, -1)


LAYOUTS = {
    "inline": inline,
    "specs": specs,
    "placeholders": placeholders,
    "scanned": scanned,
    "scanned, named after the stack": lambda folder, params: scanned(folder, params, inner=None),
    "scanned zarr": lambda folder, params: scanned(folder, params, write_leaves=specs),
}
