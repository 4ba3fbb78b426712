"""Orbax: our own folders, and the layouts in which Gemma is published, written by Orbax itself."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_orbax import GEMMAS, LAYOUTS, OTHERS, flat, put, random_params, stacked
from tiny_t5 import same_tree

from spec_cascades.checkpoints import CheckpointError, load, orbax, safetensors
from spec_cascades.checkpoints.families import by_config
from spec_cascades.models import gemma


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
