"""GGUF: the same model as from its weights directly, in every type; strictness; metadata to Config."""

from types import MappingProxyType

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_llama
from safetensors.numpy import save_file
from tiny_llama import HEADS, KV, SIZE, WIDTH
from tiny_t5 import same_tree

from spec_cascades import checkpoints
from spec_cascades.checkpoints import CheckpointError, gguf, load
from spec_cascades.checkpoints.families import llama as family
from spec_cascades.models import llama

KINDS = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1"]
Q = "blk.1.attn_q.weight"


@pytest.fixture(params=["tied", "untied"])
def model(request):
    """(Config, params)."""
    config = tiny_llama.config(tied=request.param == "tied")
    return config, tiny_llama.params(config)


@pytest.fixture
def tied():
    config = tiny_llama.config()
    return config, tiny_llama.params(config)


def written(path, model, kind="F32", keys=(), tensors=(), **others):
    """A GGUF file of the model with other keys and tensors (None deletes); returns what it stores."""
    edited = tiny_llama.keys(model[0]) | dict(keys)
    table = tiny_llama.tensors(*model) | dict(tensors)
    present = lambda table: {k: v for k, v in table.items() if v is not None}
    return tiny_llama.write(path, present(edited), present(table), kind, **others)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_model_as_from_its_weights_directly(model, tmp_path, kind):
    """A Hugging Face folder of the stored values, q and k in Hugging Face's order, loads to the same tree."""
    config, params = model
    stored = written(tmp_path / "m.gguf", model, kind)
    folder = tmp_path / "direct"
    checkpoints.save(folder, config, params, "float32")
    direct = {}
    for name, value in tiny_llama.theirs(config, params).items():
        value = np.ascontiguousarray(value)
        # Quantisation is row by row, so that it commutes with the order of rows.
        exact = kind == "F32" or value.ndim == 1
        direct[name] = value if exact else roundtrip(value, kind)
        if "q_proj" not in name and "k_proj" not in name:
            np.testing.assert_array_equal(direct[name], stored[tiny_llama.gguf_name(name)])
    save_file(direct, folder / "model.safetensors", {"format": "pt"})
    ours, theirs = load(str(tmp_path / "m.gguf"), "float32"), load(str(folder), "float32")
    same_tree(ours.params, theirs.params)
    assert ours.config == theirs.config == config
    tokens = jnp.arange(12)[None]
    logits = [llama.forward(m.params, m.config, tokens, jnp.ones_like(tokens)) for m in (ours, theirs)]
    np.testing.assert_array_equal(*logits)


def roundtrip(value, kind):
    from gguf import GGMLQuantizationType, dequantize, quantize

    own = GGMLQuantizationType[kind]
    return dequantize(quantize(value, own), own).astype(np.float32)


def test_rotated_pairs_are_put_back_where_they_were(tied, tmp_path):
    """One row of q in the file, and the column of our kernel it must be."""
    _, params = tied
    stored = written(tmp_path / "m.gguf", tied)
    _, _, got, _ = gguf.read(tmp_path / "m.gguf", "float32")
    # Head 2's pair 3: the neighbours 6 and 7 of its rows are halves 3 and 3 + 8.
    column = np.asarray(got["layers_1"]["attention"]["query"]["kernel"])[:, 2 * SIZE + 3 + SIZE // 2]
    np.testing.assert_array_equal(column, stored[Q][2 * SIZE + 7])
    same_tree(got, params)


def test_bfloat16_is_rounded_once(tied, tmp_path):
    written(tmp_path / "m.gguf", tied)
    _, _, got, _ = gguf.read(tmp_path / "m.gguf", "bfloat16")
    assert {leaf.dtype for leaf in jax.tree.leaves(got)} == {jnp.bfloat16.dtype}
    same_tree(got, jax.tree.map(lambda x: x.astype(jnp.bfloat16), tied[1]))


def test_parts_of_a_tensor_are_joined(tied, tmp_path, monkeypatch):
    monkeypatch.setattr(gguf, "ROWS", 7)
    written(tmp_path / "m.gguf", tied)
    same_tree(gguf.read(tmp_path / "m.gguf", "float32")[2], tied[1])


def test_the_tokenizer_comes_with_it(tied, tmp_path):
    written(tmp_path / "m.gguf", tied)
    loaded = load(str(tmp_path / "m.gguf"))
    assert isinstance(loaded.lm, llama.Llama)
    assert loaded.tokenizer.size == loaded.config.vocab == tiny_llama.VOCAB
    assert loaded.tokenizer.decode(loaded.tokenizer.encode("two 10 birds")) == "two 10 birds"
    assert loaded.tokenizer.stops == loaded.config.eos == (0,)


def test_headers_alone_are_looked_at(tied, tmp_path, monkeypatch):
    written(tmp_path / "m.gguf", tied, "Q8_0")
    loaded = load(str(tmp_path / "m.gguf"))
    monkeypatch.setattr(gguf, "_dequantised", None)
    header = checkpoints.peek(str(tmp_path / "m.gguf"))
    assert (header.lm, header.config) == (loaded.lm, loaded.config)
    assert header.parameters == sum(leaf.size for leaf in jax.tree.leaves(loaded.params))
    assert set(header.stored) == {"Q8_0", "F32"}
    assert header.tokenizer.size == loaded.tokenizer.size


def test_padding_rows_are_masked_and_a_small_table_is_refused(tmp_path):
    wide = tiny_llama.config(embeddings=tiny_llama.VOCAB + 6)
    written(tmp_path / "m.gguf", (wide, tiny_llama.params(wide)))
    assert load(str(tmp_path / "m.gguf"), "float32").config == wide
    small = tiny_llama.config(vocab=64, embeddings=64)
    written(tmp_path / "m.gguf", (small, tiny_llama.params(small)))
    with pytest.raises(CheckpointError, match="table 64 rows"):
        load(str(tmp_path / "m.gguf"))


@pytest.mark.parametrize(("tensors", "match"), [
    ({Q: None}, f"missing: {Q}"),
    ({"blk.1.attn_q.bias": np.ones(WIDTH, np.float32)}, r"unused: blk\.1\.attn_q\.bias"),
    ({"blk.2.attn_norm.weight": np.ones(WIDTH, np.float32)}, r"unused: blk\.2\.attn_norm"),
    ({Q: np.ones((WIDTH, 32), np.float32)}, rf"wrong shape: {Q} is \(64, 32\), expected \(64, 64\)"),
    ({"token_embd.weight": None}, r"lacks token_embd\.weight"),
    ({"rope_freqs.weight": np.ones(SIZE // 2, np.float32)}, r"rope_freqs\.weight is none of the published"),
    ({Q: np.ones((WIDTH, HEADS * SIZE), np.float64)}, "is of type F64, which cannot be dequantised"),
])  # fmt: skip
def test_strict_both_ways(tied, tmp_path, tensors, match):
    written(tmp_path / "m.gguf", tied, tensors=tensors)
    with pytest.raises(CheckpointError, match=match):
        gguf.read(tmp_path / "m.gguf", "float32")


@pytest.mark.parametrize(("keys", "match"), [
    ({"llama.block_count": None}, r"lacks llama\.block_count"),
    ({"llama.rope.dimension_count": 8}, "dimension_count 8 is not the head size 16"),
    ({"llama.rope.scaling.type": "yarn"}, r"'yarn' is not one of \['linear', 'none'\]"),
])  # fmt: skip
def test_metadata_that_cannot_be_represented(tied, tmp_path, keys, match):
    written(tmp_path / "m.gguf", tied, keys=keys)
    with pytest.raises(CheckpointError, match=match):
        gguf.read(tmp_path / "m.gguf", "float32")


def test_scaled_positions(tied, tmp_path):
    linear = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    written(tmp_path / "m.gguf", tied, keys=linear)
    assert gguf.read(tmp_path / "m.gguf", "float32")[1].scaling == llama.Linear(4.0)
    long = {"llama.rope.freq_base": 500_000.0}
    plain = 500_000.0 ** (-np.arange(0, SIZE, 2) / SIZE)
    divisors = (plain / llama.Llama3(32.0)(plain)).astype(np.float32)
    assert divisors.max() > 8
    written(tmp_path / "m.gguf", tied, keys=long, tensors={"rope_freqs.weight": divisors})
    assert gguf.read(tmp_path / "m.gguf", "float32")[1].scaling == llama.Llama3(32.0)


def test_heads_of_another_size(tmp_path):
    config = tiny_llama.config(head_dim=32)
    model = (config, tiny_llama.params(config))
    written(tmp_path / "m.gguf", model, keys={"llama.attention.key_length": 32})
    _, got, params, _ = gguf.read(tmp_path / "m.gguf", "float32")
    assert got == config
    same_tree(params, model[1])


def test_files_that_are_not_read(tied, tmp_path):
    (tmp_path / "x.gguf").write_bytes(b"not a model at all")
    with pytest.raises(CheckpointError, match=r"x\.gguf cannot be read as GGUF"):
        load(str(tmp_path / "x.gguf"))
    written(tmp_path / "m.gguf", tied, architecture="mamba")
    with pytest.raises(CheckpointError, match=r"'mamba', not one of \['llama'\]"):
        load(str(tmp_path / "m.gguf"))
    written(tmp_path / "m.gguf", tied)
    with pytest.raises(ValueError, match=r"'float16' is not one of"):
        load(str(tmp_path / "m.gguf"), "float16")


CONFIG = dict(
    vocab_size=96,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    rms_norm_eps=1e-5,
    tie_word_embeddings=True,
)


class Nothing:
    """A file without tensors."""

    shapes = MappingProxyType({})


@pytest.mark.parametrize(("keys", "match"), [
    (dict(attention_bias=True), "attention_bias True is not one of"),
    (dict(mlp_bias=True), "mlp_bias True is not one of"),
    (dict(hidden_act="gelu"), "hidden_act 'gelu' is not one of"),
    (dict(rope_scaling=dict(rope_type="yarn", factor=4.0)), r"'yarn' is not one of .*linear.*llama3"),
    (dict(rope_scaling=dict(type="llama3", factor=4.0)), "lack low_freq_factor"),
    (dict(partial_rotary_factor=0.5), r"partial_rotary_factor 0\.5"),
    (dict(rms_norm_eps=None), "lacks rms_norm_eps"),
])  # fmt: skip
def test_configs_that_cannot_be_represented(keys, match):
    json = {k: v for k, v in (CONFIG | keys).items() if v is not None}
    with pytest.raises(CheckpointError, match=match):
        family.read_config(json, Nothing)


def test_defaults_of_a_config():
    got = family.read_config(CONFIG | dict(eos_token_id=[2, 3], hidden_act="silu", mlp_bias=False), Nothing)
    assert (got.kv_heads, got.head_dim, got.theta, got.scaling) == (4, 8, 10_000.0, None)
    assert (got.eos, got.bos, got.tied) == ((2, 3), None, True)
    promised = CONFIG | dict(tie_word_embeddings=False)
    assert not family.read_config(promised, Nothing).tied, "a promised head must be missed"
    assert KV == 2
