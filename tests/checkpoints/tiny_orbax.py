"""Tiny models of every family, and Gemmas in every layout in which Orbax folders of them are published."""

import jax
import numpy as np
import orbax.checkpoint as ocp

from spec_cascades.checkpoints.families import by_config
from spec_cascades.checkpoints.tree import flatten
from spec_cascades.models import gemma, llama, t5

SIZES = dict(vocab=30, embeddings=32, d_model=12, head_dim=8, d_ff=20, heads=4, layers=7)
GEMMAS = {
    "gemma-1": gemma.Config(**SIZES, kv_heads=4, query_scalar=8),
    "gemma-2": gemma.Config(
        **SIZES, generation=2, kv_heads=2, pattern=2, window=6, attention_softcap=50.0, final_softcap=30.0
    ),
    "gemma-3": gemma.Config(**SIZES, generation=3, kv_heads=1, pattern=3, window=5, rope_base=1e6),
}
"""Seven layers: neither pattern divides them."""

OTHERS = {
    "t5": t5.Config(
        **{k: SIZES[k] for k in ("vocab", "embeddings", "d_model", "d_ff", "heads")},
        d_kv=4,
        encoder_layers=1,
        decoder_layers=2,
    ),
    "llama": llama.Config(
        **SIZES, kv_heads=2, tied=False, scaling=llama.Llama3(8.0), bos=1, eos=(2, 5), pad=None
    ),
}


def random_params(config):
    """A tree of the model's shapes, float32 numpy."""
    rng = np.random.default_rng(0)
    draw = lambda shape: rng.normal(size=shape).astype(np.float32)
    is_shape = lambda x: isinstance(x, tuple)
    return jax.tree.map(draw, by_config(config).shapes_of(config), is_leaf=is_shape)


def put(path, tree):
    """Writes a tree as the gemma package does."""
    with ocp.StandardCheckpointer() as writer:
        writer.save(path, tree)
    return path


def flat(params, transposed=False):
    """The oldest layout: one key a module, `w` where the tree has the array itself."""
    tree = {}
    for name, value in flatten(params).items():
        name = f"{name}/w" if "/mlp/" in name else name
        module, _, leaf = name.rpartition("/")
        turn = transposed and module.endswith("gating_einsum")
        tree.setdefault(f"transformer/{module}", {})[leaf] = value.swapaxes(1, 2) if turn else value
    return tree


def stacked(params, pattern):
    """Layers j, j + pattern, ... as one array under attention_type_j; an incomplete last pattern too."""
    tree, groups = {}, {}
    for module, leaves in flat(params).items():
        head, _, rest = module.removeprefix("transformer/").partition("/")
        if not head.startswith("layer_"):
            tree[module] = leaves
            continue
        i = int(head.removeprefix("layer_"))
        for leaf, value in leaves.items():
            place = (f"transformer/stacked_layers/attention_type_{i % pattern}/{rest}", leaf)
            groups.setdefault(place, []).append((i, value))
    for (module, leaf), parts in groups.items():
        tree.setdefault(module, {})[leaf] = np.stack([v for _, v in sorted(parts, key=lambda p: p[0])])
    return tree


LAYOUTS = {
    "flat": lambda params, config: flat(params),
    "flat, gates turned": lambda params, config: flat(params, transposed=True),
    "stacked": lambda params, config: stacked(params, config.pattern),
    "nested": lambda params, config: params,
    "run": lambda params, config: {
        "params": params,
        "opt_state": {"mu": {"a": np.zeros(3, np.int32)}},
        "step": np.asarray(3),
        "collections": {"b": np.ones(2, np.float32)},
    },
    "seeing": lambda params, config: (
        flat(params)
        | {
            "SigLiPFromPatches_0/siglip_encoder/Transformer/encoder_norm": {"scale": np.ones(3, np.float32)},
            "transformer/embedder": params["embedder"] | {"mm_output_embedding": np.ones(3, np.float32)},
            "transformer/embedder/mm_input_projection": {"w": np.ones((2, 12), np.float32)},
        }
    ),
}
