"""T5X checkpoints in each generation's layout, and a real one."""

import os
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.serialization import msgpack_serialize
from tiny_t5 import LAYOUTS, inline, placeholders, same_tree, scanned, write_t5x

from spec_cascades.checkpoints import save, t5x
from spec_cascades.checkpoints.families import t5 as t5_family
from spec_cascades.checkpoints.tree import CheckpointError, flatten, unflatten
from spec_cascades.models import t5

DATA = Path(os.environ.get("SPEC_CASCADES_DATA") or Path(__file__).parents[3] / "shared" / "data")
REAL = DATA / "t5x_tiny.checkpoint_0"
NAME = "decoder/layers_1/mlp/wo/kernel"
BIAS = "encoder/relpos_bias/rel_embedding"


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_every_layout_gives_the_same_tree(model, tmp_path, layout):
    config, params = model
    folder = LAYOUTS[layout](tmp_path / "checkpoint_1000", params)
    _, got, read = t5x.read(t5x.local(folder), "float32")
    assert got == replace(config, vocab=config.embeddings)
    same_tree(read, params)


def test_the_file_itself_may_be_named(gated, tmp_path):
    params = gated[1]
    file = inline(tmp_path, params) / t5x.CHECKPOINT
    same_tree(t5x.read(t5x.local(file), "float32")[2], params)


@pytest.mark.parametrize("layout", ["inline", "placeholders"])
def test_bfloat16_both_ways(gated, tmp_path, layout):
    narrow = {name: value.astype(jnp.bfloat16) for name, value in flatten(gated[1]).items()}
    folder = LAYOUTS[layout](tmp_path, unflatten(narrow))
    same_tree(t5x.read(t5x.local(folder), "bfloat16")[2], unflatten(narrow))
    wide = unflatten({name: value.astype(np.float32) for name, value in narrow.items()})
    same_tree(t5x.read(t5x.local(folder), "float32")[2], wide)


def test_float16_is_refused_before_anything_is_read(tmp_path):
    with pytest.raises(ValueError, match="overflows"):
        t5x.read(t5x.local(tmp_path / "absent"), "float16")


def changed(params, change):
    flat = flatten(params)
    change(flat)
    return unflatten(flat)


@pytest.mark.parametrize("layout", sorted(LAYOUTS.keys() - {k for k in LAYOUTS if "scanned" in k}))
@pytest.mark.parametrize(("change", "match"), [
    (lambda flat: flat.pop(NAME), f"missing: {NAME}"),
    (lambda flat: flat.update(stray=np.zeros((2, 2), np.float32)), "unused: stray"),
    (lambda flat: flat.update({NAME: flat[NAME].T}), rf"wrong shape: {NAME} is \(8, 16\)"),
    (lambda flat: flat.pop(BIAS), f"{BIAS} is missing"),
])  # fmt: skip
def test_faults_are_named(gated, tmp_path, layout, change, match):
    folder = LAYOUTS[layout](tmp_path, changed(gated[1], change))
    with pytest.raises(CheckpointError, match=match):
        t5x.read(t5x.local(folder), "float32")


def test_a_missing_array_folder_is_named(gated, tmp_path):
    folder = placeholders(tmp_path, gated[1])
    (folder / "target.decoder.decoder_norm.scale" / ".zarray").unlink()
    with pytest.raises(CheckpointError, match="decoder/decoder_norm/scale"):
        t5x.read(t5x.local(folder), "float32")


@pytest.mark.parametrize("path", ["../elsewhere", "a/../../elsewhere", ""])
def test_array_paths_stay_in_the_folder(gated, tmp_path, path):
    change = lambda flat: flat.update({NAME: f"PLACEHOLDER://{path}"})
    folder = write_t5x(tmp_path / "inner", {"target": changed(gated[1], change)})
    with pytest.raises(CheckpointError, match="leaves the checkpoint's folder"):
        t5x.read(t5x.local(folder), "float32")


@pytest.mark.parametrize("same", [True, False])
def test_a_scanned_bias_must_be_one_for_all_layers(gated, tmp_path, same):
    config, params = gated

    def change(flat):
        for stack, n in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
            bias = np.stack([flat.pop(f"{stack}/relpos_bias/rel_embedding")] * n, axis=1)
            bias[0, 1, 0] += not same
            flat[f"{stack}/layers/relpos_bias/rel_embedding"] = bias

    folder = scanned(tmp_path, params)
    tree = t5x._restore(t5x.local(folder))["optimizer"]["target"]
    inline(tmp_path, changed(tree, change))
    if same:
        same_tree(t5x.read(t5x.local(folder), "float32")[2], params)
    else:
        with pytest.raises(CheckpointError, match="differs from layer to layer"):
            t5x.read(t5x.local(folder), "float32")


@pytest.mark.parametrize(("data", "match"), [
    (b"\x80\x04\x95 a pickle", "not flax msgpack|not a T5X checkpoint"),
    (msgpack_serialize({"optimizer": {"state": {}}}), "no parameters"),
    (msgpack_serialize({"params": {}}), "no parameters"),
])  # fmt: skip
def test_other_files_are_refused(tmp_path, data, match):
    (tmp_path / t5x.CHECKPOINT).write_bytes(data)
    with pytest.raises(CheckpointError, match=match):
        t5x.read(t5x.local(tmp_path), "float32")


def test_an_absent_file_is_named(tmp_path):
    with pytest.raises(CheckpointError, match="no T5X file 'checkpoint'"):
        t5x.read(t5x.local(tmp_path), "float32")


@pytest.mark.parametrize("name", sorted(t5.PRESETS))
def test_published_sizes_are_inferred_from_shapes(name):
    preset = t5.PRESETS[name]
    assert t5_family.infer(flatten(t5.shapes_of(preset))) == replace(preset, vocab=preset.embeddings)


@pytest.mark.skipif(not REAL.is_file(), reason="t5x_tiny.checkpoint_0 is not here (set SPEC_CASCADES_DATA)")
def test_a_real_checkpoint():
    _, config, params = t5x.read(t5x.local(REAL), "float32")
    sizes = dict(embeddings=32_128, d_model=8, d_kv=3, d_ff=16, heads=4, encoder_layers=2, decoder_layers=2)
    assert config == t5.Config(vocab=32_128, **sizes)
    assert {leaf.dtype for leaf in flatten(params).values()} == {jnp.float32.dtype}


@pytest.mark.parity
@pytest.mark.skipif(not REAL.is_file(), reason="t5x_tiny.checkpoint_0 is not here (set SPEC_CASCADES_DATA)")
def test_transformers_agrees_on_the_real_checkpoint(tmp_path):
    torch = pytest.importorskip("torch", reason="parity needs torch (extra [parity])")
    transformers = pytest.importorskip("transformers", reason="parity needs transformers (extra [parity])")
    _, config, params = t5x.read(t5x.local(REAL), "float32")
    save(tmp_path, config, params, "float32")
    theirs = transformers.T5ForConditionalGeneration.from_pretrained(tmp_path).eval()
    prompt, decoder = np.arange(2, 9)[None], np.array([[0, 31_999, 5, 77]])
    with torch.no_grad():
        expected = theirs(input_ids=torch.tensor(prompt), decoder_input_ids=torch.tensor(decoder)).logits
    ones = np.ones_like(prompt), np.ones_like(decoder)
    batch = t5.Batch(*map(jnp.array, (prompt, decoder, *ones, decoder)))
    got = jax.jit(t5.forward, static_argnums=1)(params, config, batch)
    np.testing.assert_allclose(got, expected.numpy(), atol=1e-5, rtol=0)
