"""Hugging Face folders: round trips, shards, strictness, tied heads, dtypes."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tiny_t5 import random_params, same_tree

from spec_cascades.checkpoints import safetensors
from spec_cascades.checkpoints.tree import CheckpointError
from spec_cascades.models import t5

Q = "decoder.block.2.layer.0.SelfAttention.q.weight"


def edit(folder, change):
    """Rewrites model.safetensors after `change` has altered its table of tensors."""
    file = folder / safetensors.SINGLE
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, {"format": "pt"})


def edit_config(folder, **keys):
    """Sets keys of config.json; None deletes."""
    file = folder / safetensors.CONFIG
    settings = json.loads(file.read_text()) | keys
    file.write_text(json.dumps({k: v for k, v in settings.items() if v is not None}))


@pytest.fixture
def folder(model, tmp_path):
    safetensors.save(tmp_path, *model, "float32")
    return tmp_path


@pytest.fixture
def gated_folder(gated, tmp_path):
    safetensors.save(tmp_path, *gated, "float32")
    return tmp_path


def test_round_trip(model, folder):
    family, config, params = safetensors.read(folder, "float32")
    assert family.model_type == "t5"
    assert config == model[0]
    same_tree(params, model[1])


def test_every_field_of_the_config_survives(tmp_path):
    config = t5.Config(
        vocab=50, embeddings=64, d_model=8, d_kv=2, d_ff=12, heads=2, encoder_layers=1, decoder_layers=2
    )
    config = replace(
        config, activation="relu", buckets=8, max_distance=20, epsilon=1e-5, pad=3, eos=4, start=5
    )
    safetensors.save(tmp_path, config, random_params(config), "float32")
    assert safetensors.read(tmp_path, "float32")[1] == config


@pytest.mark.parametrize("stored", ["float32", "bfloat16"])
@pytest.mark.parametrize("wanted", ["float32", "bfloat16"])
def test_dtypes(gated, tmp_path, stored, wanted):
    safetensors.save(tmp_path, *gated, stored)
    _, _, params = safetensors.read(tmp_path, wanted)
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype(wanted)}
    narrow = stored if stored == "bfloat16" else wanted
    same_tree(params, jax.tree.map(lambda x: x.astype(jnp.dtype(narrow)).astype(jnp.dtype(wanted)), gated[1]))


def test_shards_equal_the_single_file(gated, gated_folder, tmp_path):
    single = safetensors.read(gated_folder, "float32")
    sharded = tmp_path / "sharded"
    safetensors.save(sharded, *gated, "float32", shard_bytes=4000)
    assert len(list(sharded.glob("model-*.safetensors"))) > 2
    assert not (sharded / safetensors.SINGLE).exists()
    assert safetensors.read(sharded, "float32")[1] == single[1]
    same_tree(safetensors.read(sharded, "float32")[2], single[2])


def test_saving_again_leaves_no_old_shards(gated, tmp_path):
    safetensors.save(tmp_path, *gated, "float32", shard_bytes=4000)
    safetensors.save(tmp_path, *gated, "float32")
    assert [p.name for p in tmp_path.glob("*safetensors*")] == [safetensors.SINGLE]


@pytest.mark.parametrize("fault", ["absent tensor", "unlisted tensor", "absent shard"])
def test_an_index_that_lies_is_an_error(gated, tmp_path, fault):
    safetensors.save(tmp_path, *gated, "float32", shard_bytes=4000)
    file = tmp_path / safetensors.INDEX
    index = json.loads(file.read_text())
    victim = index["weight_map"][Q]
    if fault == "absent tensor":
        index["weight_map"]["ghost.weight"] = victim
    elif fault == "unlisted tensor":
        del index["weight_map"][Q]
    else:
        (tmp_path / victim).unlink()
    file.write_text(json.dumps(index))
    named = {
        "absent tensor": "ghost.weight",
        "unlisted tensor": rf"not listed: \['{Q}",
        "absent shard": victim,
    }[fault]
    with pytest.raises(CheckpointError, match=named):
        safetensors.read(tmp_path, "float32")


def test_a_missing_tensor_is_named(folder):
    edit(folder, lambda t: t.pop(Q))
    with pytest.raises(CheckpointError, match=f"missing: {Q}"):
        safetensors.read(folder, "float32")


def test_an_unused_tensor_is_named(folder):
    edit(folder, lambda t: t.update(stray=np.zeros(3, np.float32)))
    with pytest.raises(CheckpointError, match="unused: stray"):
        safetensors.read(folder, "float32")


def test_a_wrong_shape_is_named(folder):
    edit(folder, lambda t: t.update({Q: t[Q].T.copy()}))
    with pytest.raises(CheckpointError, match=rf"wrong shape: {Q} is \(8, 12\), expected \(12, 8\)"):
        safetensors.read(folder, "float32")


def test_integer_tensors_are_refused(folder):
    edit(folder, lambda t: t.update({Q: t[Q].astype(np.int8)}))
    with pytest.raises(CheckpointError, match=f"{Q} is int8"):
        safetensors.read(folder, "float32")


def test_copies_of_the_table_are_accepted_only_if_equal(model, folder):
    names = ["encoder.embed_tokens.weight", "decoder.embed_tokens.weight"]
    names += ["lm_head.weight"] * model[0].tied
    edit(folder, lambda t: t.update({name: t["shared.weight"] for name in names}))
    same_tree(safetensors.read(folder, "float32")[2], model[1])
    for name in names:
        edit(folder, lambda t, name=name: t.update({name: t["shared.weight"] + 1}))
        with pytest.raises(CheckpointError, match=name):
            safetensors.read(folder, "float32")
        edit(folder, lambda t, name=name: t.update({name: t["shared.weight"]}))


def test_the_first_releases_cross_attention_bias_is_ignored(model, folder):
    name = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    edit(folder, lambda t: t.update({name: np.ones((32, 4), np.float32)}))
    same_tree(safetensors.read(folder, "float32")[2], model[1])


def test_a_head_of_its_own_means_untied_and_unscaled(gated, gated_folder):
    # Flan-T5's published form: tie_word_embeddings alone says it.
    edit_config(gated_folder, scale_decoder_outputs=None, vocab_in_use=None)
    _, config, params = safetensors.read(gated_folder, "float32")
    assert not config.tied
    same_tree(params, gated[1])


def test_newer_writers_say_tied_of_every_model(gated, gated_folder):
    edit_config(gated_folder, tie_word_embeddings=True, scale_decoder_outputs=False)
    assert safetensors.read(gated_folder, "float32")[1] == gated[0]


def test_head_and_scaling_that_contradict_each_other_are_refused(gated_folder):
    edit_config(gated_folder, tie_word_embeddings=True, scale_decoder_outputs=None)
    with pytest.raises(CheckpointError, match="differs from shared"):
        safetensors.read(gated_folder, "float32")
    edit_config(gated_folder, tie_word_embeddings=False)
    edit(gated_folder, lambda t: t.pop("lm_head.weight"))
    with pytest.raises(CheckpointError, match=r"lm_head\.weight is missing"):
        safetensors.read(gated_folder, "float32")


def test_decoder_layers_default_to_the_encoders(gated, gated_folder):
    edit_config(gated_folder, num_decoder_layers=None)
    with pytest.raises(CheckpointError, match=r"unused: decoder\.block\.2"):
        safetensors.read(gated_folder, "float32")


@pytest.mark.parametrize(("key", "value", "match"), [
    ("model_type", "mamba", "'mamba' is not one of"),
    ("feed_forward_proj", "gelu", "'gelu' is not one of"),
    ("d_kv", None, "config.json lacks d_kv"),
])  # fmt: skip
def test_configs_that_cannot_be_represented(gated_folder, key, value, match):
    edit_config(gated_folder, **{key: value})
    with pytest.raises(ValueError, match=match):
        safetensors.read(gated_folder, "float32")


def test_float16_files_are_read_into_wider_types_only(gated, gated_folder):
    edit(gated_folder, lambda t: t.update({name: value.astype(np.float16) for name, value in t.items()}))
    params = safetensors.read(gated_folder, "float32")[2]
    same_tree(params, jax.tree.map(lambda x: x.astype(np.float16).astype(np.float32), gated[1]))
    with pytest.raises(ValueError, match="overflows"):
        safetensors.read(gated_folder, "float16")
    with pytest.raises(ValueError, match="overflows"):
        safetensors.save(gated_folder, *gated, "float16")
    with pytest.raises(ValueError, match="'int8' is not one of"):
        safetensors.read(gated_folder, "int8")


def test_pickles_are_not_read(gated_folder):
    (gated_folder / safetensors.SINGLE).rename(gated_folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="pickles"):
        safetensors.read(gated_folder, "float32")


def test_a_broken_file_is_named(gated_folder):
    (gated_folder / safetensors.SINGLE).write_bytes(b"\x08" + bytes(20))
    with pytest.raises(CheckpointError, match=safetensors.SINGLE):
        safetensors.read(gated_folder, "float32")


def test_save_refuses_a_tree_of_another_model(gated, tmp_path):
    config, params = gated
    with pytest.raises(CheckpointError, match=r"unused: decoder/logits_dense/kernel"):
        safetensors.save(tmp_path, replace(config, tied=True), params, "float32")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("text", "match"), [("{", "cannot be read"), ("[]", "is a list")])
def test_a_broken_config_is_named(gated_folder, text, match):
    (gated_folder / safetensors.CONFIG).write_text(text)
    with pytest.raises(CheckpointError, match=rf"config\.json {match}"):
        safetensors.read(gated_folder, "float32")
