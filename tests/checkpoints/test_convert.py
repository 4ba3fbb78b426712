"""Converting: there and back bit for bit, tokenizers, and an output that is whole or not there."""

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file
from tiny_t5 import SIZES, inline, random_params, same_tree

from spec_cascades.checkpoints import CheckpointError, convert, drafter, load, orbax, safetensors, save
from spec_cascades.checkpoints.families import by_config
from spec_cascades.models import gemma, llama, t5

SMALL = dict(vocab=30, embeddings=32, d_model=12, head_dim=8, d_ff=20, heads=4, layers=3)
CONFIGS = {
    "t5": t5.Config(**SIZES | {"vocab": 96}),
    "gemma": gemma.Config(**SMALL, generation=3, kv_heads=1, pattern=2, window=5),
    "llama": llama.Config(**SMALL, kv_heads=2, tied=False, scaling=llama.Linear(2.0), bos=1, eos=(2, 5)),
}


def params_of(config, dtype):
    rng = np.random.default_rng(3)
    draw = lambda shape: rng.normal(size=shape).astype(jnp.dtype(dtype))
    is_shape = lambda x: isinstance(x, tuple)
    return jax.tree.map(draw, by_config(config).shapes_of(config), is_leaf=is_shape)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", CONFIGS)
def test_there_and_back_is_equal_bit_for_bit(tmp_path, name, dtype):
    config = CONFIGS[name]
    save(tmp_path / "a", config, params_of(config, dtype), dtype)
    assert convert.convert(str(tmp_path / "a"), tmp_path / "b", "orbax") == tmp_path / "b"
    convert.convert(str(tmp_path / "b"), tmp_path / "c")
    before, after = (load_file(tmp_path / x / safetensors.SINGLE) for x in "ac")
    assert before.keys() == after.keys()
    for key, value in before.items():
        assert value.dtype == after[key].dtype == jnp.dtype(dtype)
        assert value.tobytes() == after[key].tobytes(), key
    assert (tmp_path / "a" / "config.json").read_text() == (tmp_path / "c" / "config.json").read_text()
    loaded = [load(str(tmp_path / x), dtype) for x in "ab"]
    same_tree(loaded[0].params, loaded[1].params)
    assert loaded[0].config == loaded[1].config


def test_dtypes(tmp_path):
    config = CONFIGS["llama"]
    params = params_of(config, "float32")
    save(tmp_path / "a", config, params, "float32")
    for to, module in (("orbax", orbax), ("safetensors", safetensors)):
        convert.convert(str(tmp_path / "a"), tmp_path / to, to, "bfloat16")
        assert set(module.open_model(tmp_path / to).stored) == {"bfloat16"}
        same_tree(load(str(tmp_path / to)).params, load(str(tmp_path / "a")).params)


def test_a_t5x_checkpoint_becomes_a_folder_with_its_tokenizer(gated, spiece, tmp_path):
    inline(tmp_path / "run" / "checkpoint_1000", gated[1])
    shutil.copy(spiece, tmp_path / "run" / "spiece.model")
    (tmp_path / "run" / "LICENSE.txt").write_text("terms")
    (tmp_path / "run" / "notes.md").write_text("mine")
    convert.convert(str(tmp_path / "run" / "checkpoint_1000"), tmp_path / "new" / "out")
    files = {p.name for p in (tmp_path / "new" / "out").iterdir()}
    assert files == {"config.json", "model.safetensors", "spiece.model", "LICENSE.txt"}
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["out"]
    ours, theirs = (
        load(str(p), "float32") for p in (tmp_path / "new" / "out", tmp_path / "run/checkpoint_1000")
    )
    same_tree(ours.params, theirs.params)
    assert ours.tokenizer.fingerprint == theirs.tokenizer.fingerprint
    assert ours.config == theirs.config


def test_a_tokenizer_inside_a_gguf_file_is_written_out(tmp_path):
    import tiny_llama

    config = tiny_llama.config()
    params = tiny_llama.params(config)
    tiny_llama.write(tmp_path / "m.gguf", tiny_llama.keys(config), tiny_llama.tensors(config, params), "F32")
    convert.convert(str(tmp_path / "m.gguf"), tmp_path / "out")
    ours, theirs = load(str(tmp_path / "out"), "float32"), load(str(tmp_path / "m.gguf"), "float32")
    same_tree(ours.params, theirs.params)
    assert ours.tokenizer.fingerprint == theirs.tokenizer.fingerprint
    assert ours.tokenizer.stops == theirs.tokenizer.stops
    assert ours.tokenizer.encode("a b 12") == theirs.tokenizer.encode("a b 12")


def test_what_is_there_is_not_overwritten(gated, tmp_path):
    save(tmp_path / "a", *gated, "float32")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious").write_text("data")
    (tmp_path / "file").write_text("data")
    for out in ("full", "file", "a"):
        with pytest.raises(ValueError, match=rf"{out} is already there and not empty"):
            convert.convert(str(tmp_path / "a"), tmp_path / out)
    assert [p.name for p in (tmp_path / "full").iterdir()] == ["precious"]
    (tmp_path / "empty").mkdir()
    convert.convert(str(tmp_path / "a"), tmp_path / "empty")
    same_tree(load(str(tmp_path / "empty"), "float32").params, gated[1])


@pytest.mark.parametrize("to", ["safetensors", "orbax"])
def test_a_conversion_that_fails_leaves_nothing(gated, tmp_path, monkeypatch, to):
    save(tmp_path / "a", *gated, "float32")

    def half_way(directory, config, params, dtype):
        (directory / "part").write_text("half")
        raise OSError("no space left")

    monkeypatch.setitem(convert.FORMATS, to, half_way)
    with pytest.raises(OSError, match="no space"):
        convert.convert(str(tmp_path / "a"), tmp_path / "out", to)
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_bad_arguments(gated, tmp_path):
    save(tmp_path / "a", *gated, "float32")
    with pytest.raises(ValueError, match=r"'gguf' is not one of \['orbax', 'safetensors'\]"):
        convert.convert(str(tmp_path / "a"), tmp_path / "b", "gguf")
    with pytest.raises(ValueError, match=r"'float16' is not one of \['bfloat16', 'float32'\]"):
        convert.convert(str(tmp_path / "a"), tmp_path / "b", dtype="float16")
    broken = random_params(gated[0])
    del broken["encoder"]
    inline(tmp_path / "t5x", broken)
    with pytest.raises(CheckpointError):
        convert.convert(str(tmp_path / "t5x"), tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_a_distilled_drafter_is_no_model_of_its_own(gated, tmp_path, monkeypatch):
    save(tmp_path / "d", *gated, "float32")
    header = convert.peek(str(tmp_path / "d"))
    monkeypatch.setattr(convert, "peek", lambda ref: header)
    monkeypatch.setattr(drafter, "target_of", lambda path: {tmp_path / "d": "pypi:x"}[path])
    with pytest.raises(ValueError, match="rest of it is pypi:x"):
        convert.convert(str(tmp_path / "d"), tmp_path / "out")
    assert not (tmp_path / "out").exists()
