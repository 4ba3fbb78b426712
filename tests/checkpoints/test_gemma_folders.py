"""Gemma's Hugging Face folders: layouts of config.json, prefixes, the part that sees images, strictness."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tiny_t5 import same_tree

from spec_cascades import checkpoints
from spec_cascades.checkpoints import families, safetensors
from spec_cascades.checkpoints.families import gemma as family
from spec_cascades.checkpoints.tree import CheckpointError, flatten
from spec_cascades.models import gemma
from spec_cascades.models.gemma import PRESETS, Config

TINY = dict(vocab=40, embeddings=48, d_model=8, head_dim=4, d_ff=12, heads=4, kv_heads=2, layers=3)
LATER = TINY | dict(window=5, query_scalar=6, eos=(1, 7), pad=3, bos=4, epsilon=1e-5)
CONFIGS = {
    "gemma": Config(**TINY | dict(kv_heads=4, query_scalar=4)),
    "gemma2": Config(2, pattern=2, attention_softcap=9.0, final_softcap=8.0, **LATER),
    "gemma3_text": Config(
        3, pattern=3, final_softcap=8.0, rope_base=5e5, rope_scale=4.0, local_rope_base=2e4, **LATER
    ),
}


def random_params(config, seed=0):
    rng = np.random.default_rng(seed)
    draw = lambda shape: rng.normal(size=shape).astype(np.float32)
    return jax.tree.map(draw, gemma.shapes_of(config), is_leaf=lambda x: isinstance(x, tuple))


@pytest.fixture(params=sorted(CONFIGS))
def model(request):
    return CONFIGS[request.param], random_params(CONFIGS[request.param])


@pytest.fixture
def third(tmp_path):
    """(folder, Config, params) of a saved Gemma 3."""
    config = CONFIGS["gemma3_text"]
    params = random_params(config)
    safetensors.save(tmp_path, config, params, "float32")
    return tmp_path, config, params


def edit(folder, change):
    file = folder / safetensors.SINGLE
    tensors = load_file(file)
    changed = change(tensors)
    save_file(tensors if changed is None else changed, file, {"format": "pt"})


def rewrite(folder, change):
    file = folder / safetensors.CONFIG
    file.write_text(json.dumps(change(json.loads(file.read_text()))))


def without(settings, *keys):
    return {k: v for k, v in settings.items() if k not in keys}


def test_round_trip(model, tmp_path):
    """Every field that config.json can hold survives."""
    config, params = model
    safetensors.save(tmp_path, config, params, "float32")
    found, read, tree = safetensors.read(tmp_path, "float32")
    assert found is family.FAMILY
    assert read == config
    same_tree(tree, params)


def test_load_gives_the_language_model(model, tmp_path):
    config, params = model
    checkpoints.save(tmp_path, config, params, "bfloat16")
    loaded = checkpoints.load(str(tmp_path))
    assert loaded.lm == gemma.Gemma(config)
    assert {leaf.dtype for leaf in jax.tree.leaves(loaded.params)} == {jnp.bfloat16.dtype}


def test_every_model_type_is_found():
    assert {families.by_model_type(t) for t in ("gemma", "gemma2", "gemma3", "gemma3_text")} == {
        family.FAMILY
    }
    assert families.by_config(Config()) is family.FAMILY
    with pytest.raises(ValueError, match=r"'gemma4' is not one of .*'gemma', 'gemma2', 'gemma3'"):
        families.by_model_type("gemma4")


def test_the_keys_before_rope_parameters(third):
    folder, config, _ = third
    rewrite(folder, lambda s: without(s, "rope_parameters", "layer_types"))
    assert safetensors.read(folder, "float32")[1] == config
    rewrite(folder, lambda s: s | {"rope_scaling": {"type": "linear", "factor": 4.0}})
    assert safetensors.read(folder, "float32")[1] == config


def test_the_keys_of_transformers_5_alone(third):
    folder, config, _ = third
    old = ("rope_theta", "rope_scaling", "rope_local_base_freq", "sliding_window_pattern")
    rewrite(folder, lambda s: without(s, *old))
    assert safetensors.read(folder, "float32")[1] == config


@pytest.mark.parametrize("key", ["rope_theta", "rope_parameters"])
def test_either_rope_layout_of_the_first_gemmas(tmp_path, key):
    config = replace(CONFIGS["gemma"], rope_base=3e4, local_rope_base=3e4)
    safetensors.save(tmp_path, config, random_params(config), "float32")
    rewrite(tmp_path, lambda s: without(s, "rope_theta", "rope_parameters") | {key: s[key]})
    assert safetensors.read(tmp_path, "float32")[1] == config


PREFIXES = {
    "older": lambda name: f"language_model.{name}",
    "newer": lambda name: name.replace("model.", "model.language_model.", 1),
}


@pytest.mark.parametrize("prefix", sorted(PREFIXES))
def test_a_model_that_sees_is_read_without_its_eyes(third, prefix):
    folder, config, params = third
    inner = "model." if prefix == "newer" else ""
    eyes = {
        f"{inner}vision_tower.encoder.layers.0.mlp.fc1.weight": np.zeros((2, 2), np.float32),
        f"{inner}multi_modal_projector.mm_soft_emb_norm.weight": np.zeros(2, np.float32),
    }
    edit(folder, lambda t: {PREFIXES[prefix](name): value for name, value in t.items()} | eyes)
    rewrite(folder, lambda s: {"model_type": "gemma3", "text_config": s, "vision_config": {}})
    _, read, tree = safetensors.read(folder, "float32")
    assert read == config
    same_tree(tree, params)
    edit(folder, lambda t: t | {"audio_tower.weight": np.zeros(2, np.float32)})
    with pytest.raises(CheckpointError, match=r"unused: audio_tower\.weight"):
        safetensors.read(folder, "float32")


def test_two_tensors_of_one_name_are_an_error(third):
    folder = third[0]
    name = "model.norm.weight"
    edit(folder, lambda t: t | {f"language_model.{name}": t[name]})
    with pytest.raises(CheckpointError, match=rf"{name} twice"):
        safetensors.read(folder, "float32")


def test_published_text_configs_leave_out_what_is_usual():
    """The whole of what the 4B, 12B and 27B models state of their text."""
    usual = {"model_type": "gemma3_text", "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}
    usual |= {"sliding_window": 1024}
    four = dict(hidden_size=2560, intermediate_size=10_240, num_hidden_layers=34)
    twelve = dict(hidden_size=3840, intermediate_size=15_360, num_hidden_layers=48)
    twelve |= dict(num_attention_heads=16, num_key_value_heads=8)
    big = dict(hidden_size=5376, intermediate_size=21_504, num_hidden_layers=62, num_attention_heads=32)
    big |= dict(num_key_value_heads=16, head_dim=128, query_pre_attn_scalar=168)
    for name, stated in {"4b": four, "12b": twelve, "27b": big}.items():
        read = family.read_config({"model_type": "gemma3", "text_config": stated | usual}, None)
        preset = PRESETS[f"gemma-3-{name}"]
        assert replace(read, vocab=family.USED_OF[read.embeddings]) == preset


def test_the_second_gemmas_soft_caps_are_on_unless_null():
    read = lambda **keys: family.read_config({"model_type": "gemma2"} | keys, None)
    assert read() == PRESETS["gemma-2-2b"]
    assert read(attn_logit_softcapping=None).attention_softcap is None
    assert read(final_logit_softcapping=None).final_softcap is None


def test_the_first_configs_say_gelu_and_mean_tanh():
    assert family.read_config({"model_type": "gemma", "hidden_act": "gelu"}, None) == PRESETS["gemma-7b"]


SLIDING, FULL = family.LOCAL, family.GLOBAL


@pytest.mark.parametrize(("keys", "match"), [
    (dict(hidden_activation="gelu"), "activation 'gelu' is not one of"),
    (dict(attention_bias=True), "sets attention_bias"),
    (dict(use_bidirectional_attention=True), "sets use_bidirectional_attention"),
    (dict(attn_logit_softcapping=50.0), "sets attn_logit_softcapping"),
    (dict(layer_types=[FULL, SLIDING, FULL]), "do not repeat"),
    (dict(layer_types=[SLIDING]), "over 3 layers"),
    (dict(rope_parameters={FULL: {"rope_type": "yarn"}}), "rope type 'yarn' is not one of"),
    (dict(rope_parameters={SLIDING: {"rope_type": "linear", "factor": 2.0}}), "only the global layers"),
])  # fmt: skip
def test_configs_that_cannot_be_represented(third, keys, match):
    folder = third[0]
    rewrite(folder, lambda s: s | keys)
    with pytest.raises(CheckpointError, match=match):
        safetensors.read(folder, "float32")


@pytest.mark.parametrize("kinds", [[SLIDING] * 3, [FULL] * 3, [SLIDING, FULL, SLIDING]])
def test_kinds_of_layers_give_the_pattern(third, kinds):
    folder = third[0]
    rewrite(folder, lambda s: s | {"layer_types": kinds})
    config = safetensors.read(folder, "float32")[1]
    assert [config.local(i) for i in range(3)] == [kind == SLIDING for kind in kinds]


@pytest.mark.parametrize(("name", "keys", "match"), [
    ("gemma", dict(final_softcap=3.0), "Gemma 1 whose final_softcap is 3.0, not None"),
    ("gemma", dict(query_scalar=9), "query_scalar is 9, not 4"),
    ("gemma2", dict(rope_scale=2.0), "rope_scale is 2.0"),
    ("gemma2", dict(local_rope_base=9.0), "local_rope_base is 9.0"),
    ("gemma3_text", dict(attention_softcap=3.0), "attention_softcap is 3.0"),
])  # fmt: skip
def test_what_transformers_cannot_say_is_not_written(tmp_path, name, keys, match):
    config = replace(CONFIGS[name], **keys)
    with pytest.raises(CheckpointError, match=match):
        safetensors.save(tmp_path, config, random_params(config), "float32")


def test_a_head_may_only_repeat_the_table(model, tmp_path):
    config, params = model
    safetensors.save(tmp_path, config, params, "float32")
    edit(tmp_path, lambda t: t | {"lm_head.weight": t["model.embed_tokens.weight"]})
    same_tree(safetensors.read(tmp_path, "float32")[2], params)
    edit(tmp_path, lambda t: t | {"lm_head.weight": t["lm_head.weight"] + 1})
    with pytest.raises(CheckpointError, match=r"lm_head\.weight should repeat"):
        safetensors.read(tmp_path, "float32")


def test_missing_and_unused_tensors_are_named(third):
    folder = third[0]
    name = "model.layers.1.self_attn.k_proj.weight"
    edit(folder, lambda t: {k: v for k, v in t.items() if k != name} | {"stray": np.zeros(2, np.float32)})
    with pytest.raises(CheckpointError, match=rf"missing: {name}; unused: stray"):
        safetensors.read(folder, "float32")


def test_float16_is_refused_with_the_reason(third):
    with pytest.raises(ValueError, match="Gemma in float16 overflows"):
        checkpoints.load(str(third[0]), "float16")
    with pytest.raises(ValueError, match="'int8' is not one of"):
        checkpoints.load(str(third[0]), "int8")


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_published_sizes_are_inferred_from_an_official_tree(name):
    preset = PRESETS[name]
    shapes = flatten(gemma.shapes_of(preset))
    assert family.infer(shapes) == preset
    padded = shapes | {"embedder/input_embedding": (256_128, preset.d_model)}
    assert family.infer(padded) == replace(preset, embeddings=256_128, vocab=min(preset.vocab, 256_128))


def test_sizes_of_no_published_model_are_not_guessed():
    with pytest.raises(CheckpointError, match=r"no published Gemma .*'d_ff': 12.*gemma-2-27b"):
        family.infer(flatten(gemma.shapes_of(CONFIGS["gemma2"])))
    shapes = flatten(gemma.shapes_of(PRESETS["gemma-2b"]))
    with pytest.raises(CheckpointError, match="layer_0/mlp/linear is missing"):
        family.infer({k: v for k, v in shapes.items() if k != "layer_0/mlp/linear"})
