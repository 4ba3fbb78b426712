"""Tiny T5s with random weights, and a T5X file of them."""

import jax
import numpy as np
from flax.serialization import msgpack_serialize

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
