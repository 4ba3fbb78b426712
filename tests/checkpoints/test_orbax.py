"""Orbax: our own folders, and the layouts in which Gemma is published, written by Orbax itself."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from tiny_t5 import same_tree

from spec_cascades.checkpoints import CheckpointError, load, orbax, safetensors
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


@pytest.fixture(params=GEMMAS)
def tiny(request, monkeypatch):
    """(Config, params) of a Gemma that is published as far as `infer` knows."""
    config = GEMMAS[request.param]
    monkeypatch.setitem(gemma.PRESETS, "tiny", replace(config, vocab=config.embeddings))
    return replace(config, vocab=config.embeddings), random_params(config)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gemma_in_every_published_layout(tiny, tmp_path, layout):
    config, params = tiny
    put(tmp_path / "it", LAYOUTS[layout](params, config))
    safetensors.save(tmp_path / "hf", config, params, "float32")
    loaded = load(str(tmp_path / "it"), "float32")
    assert loaded.config == config
    same_tree(loaded.params, safetensors.read(tmp_path / "hf", "float32")[2])


def test_the_stacked_tree_is_the_models_own_where_patterns_are_whole(tmp_path, monkeypatch):
    """The published grouping is the one that scanned layers use."""
    config = replace(GEMMAS["gemma-3"], layers=6, vocab=32)
    monkeypatch.setitem(gemma.PRESETS, "tiny", config)
    params = random_params(config)
    theirs = stacked(params, 3)
    ours = gemma.stack(params, config)[gemma.STACKED]
    for j in range(3):
        module = f"transformer/stacked_layers/attention_type_{j}/attn/q_einsum"
        np.testing.assert_array_equal(
            theirs[module]["w"], ours[f"attention_type_{j}"]["attn"]["q_einsum"]["w"]
        )
    put(tmp_path / "x", theirs)
    same_tree(load(str(tmp_path / "x"), "float32").params, params)


def test_a_download_holds_the_tree_in_a_folder_beside_the_tokenizer(tiny, tmp_path):
    _, params = tiny
    put(tmp_path / "gemma-it" / "default", flat(params))
    same_tree(load(str(tmp_path / "gemma-it"), "float32").params, params)
    put(tmp_path / "other", flat(params))
    assert orbax.find(tmp_path) == tmp_path / "other"


def test_published_layouts_are_strict(tiny, tmp_path):
    _, params = tiny
    tree = flat(params)
    del tree["transformer/final_norm"]
    put(tmp_path / "missing", tree)
    with pytest.raises(CheckpointError, match="missing: final_norm/scale"):
        load(str(tmp_path / "missing"))
    put(tmp_path / "unused", flat(params) | {"transformer/lora": {"w": np.zeros(2, np.float32)}})
    with pytest.raises(CheckpointError, match="unused: lora/w"):
        load(str(tmp_path / "unused"))
    tree = flat(params)
    tree["transformer/layer_3/attn/attn_vec_einsum"]["w"] = np.zeros((1, 2, 3), np.float32)
    put(tmp_path / "shape", tree)
    with pytest.raises(CheckpointError, match="layer_3/attn/attn_vec_einsum/w is"):
        load(str(tmp_path / "shape"))


@pytest.mark.parametrize("name", [*GEMMAS, *OTHERS])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_our_own_folders_round_trip(tmp_path, name, dtype):
    config = (GEMMAS | OTHERS)[name]
    params = random_params(config)
    orbax.save(tmp_path, config, params, dtype)
    family, read, got = orbax.read(tmp_path, "float32")
    assert family is by_config(config)
    assert read == config
    same_tree(got, jax.tree.map(lambda x: x.astype(jnp.dtype(dtype)).astype(np.float32), params))
    orbax.save(tmp_path, config, jax.tree.map(lambda x: 2 * x, got), dtype)
    same_tree(orbax.read(tmp_path, "float32")[2], jax.tree.map(lambda x: 2 * x, got))
    assert {x.dtype for x in jax.tree.leaves(load(str(tmp_path)).params)} == {jnp.bfloat16.dtype}


@pytest.fixture
def own(tmp_path):
    """A llama of ours, and what to do to its description."""
    orbax.save(tmp_path, OTHERS["llama"], random_params(OTHERS["llama"]), "float32")

    def edit(change):
        file = tmp_path / orbax.MODEL
        settings = json.loads(file.read_text())
        change(settings)
        file.write_text(json.dumps(settings))

    return tmp_path, edit


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda s: s.update(model_type="mamba"), "'mamba' is not one of"),
        (lambda s: s["config"].update(colour=3), r"\['colour'\] are no fields of Config"),
        (
            lambda s: s["config"].update(scaling={"type": "Yarn"}),
            r"'Yarn', not one of \['Linear', 'Llama3'\]",
        ),
        (lambda s: s["config"].update(layers=8), "missing: layers_7/"),
        (lambda s: s["config"].update(layers=6), "unused: layers_6/"),
        (lambda s: s["config"].update(d_ff=21), r"mlp/gate/kernel is \(12, 20\), expected \(12, 21\)"),
        (lambda s: s.pop("config"), "cannot be read as a model's description"),
    ],
)
def test_our_own_folders_are_strict(own, change, match):
    path, edit = own
    edit(change)
    with pytest.raises(CheckpointError if "mamba" not in match else ValueError, match=match):
        orbax.read(path, "float32")


def test_a_broken_folder_is_one_clear_error(own):
    path, _ = own
    (path / "params" / "manifest.ocdbt").unlink()
    with pytest.raises(CheckpointError, match="cannot be read as Orbax"):
        orbax.read(path, "float32")


def test_saving_checks_the_tree(tmp_path):
    config = OTHERS["t5"]
    params = random_params(config)
    del params["encoder"]
    with pytest.raises(CheckpointError, match="missing: encoder/"):
        orbax.save(tmp_path / "x", config, params, "float32")
    assert not (tmp_path / "x").exists()


def test_integers_are_refused(tiny, tmp_path):
    _, params = tiny
    put(tmp_path / "x", flat(jax.tree.map(lambda x: x.astype(np.int8), params)))
    with pytest.raises(CheckpointError, match="is int8, expected floating point"):
        load(str(tmp_path / "x"))
