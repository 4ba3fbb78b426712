"""References: each form, what it loads, and what it says when it cannot."""

import shutil
import sys
from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest
from tiny_t5 import SIZES, inline, random_params, same_tree

from spec_cascades.checkpoints import CheckpointError, load, references, save, t5x
from spec_cascades.models import t5
from spec_cascades.tokenizers import SentencePiece


@pytest.fixture
def folder(gated, spiece, tmp_path):
    """A Hugging Face folder with its tokenizer."""
    save(tmp_path / "model", *gated, "float32")
    shutil.copy(spiece, tmp_path / "model" / "spiece.model")
    return tmp_path / "model"


def test_a_local_folder(gated, folder):
    loaded = load(str(folder), "float32")
    assert loaded.ref == str(folder)
    assert isinstance(loaded.lm, t5.T5)
    assert loaded.lm.config == loaded.config
    same_tree(loaded.params, gated[1])
    assert loaded.tokenizer.encode("a cat")[-1] == loaded.config.eos


def test_bfloat16_is_the_default(folder):
    assert {leaf.dtype for leaf in jax.tree.leaves(load(str(folder)).params)} == {jnp.bfloat16.dtype}


def test_the_tokenizer_decides_which_rows_are_ids(gated, folder, spiece):
    pieces = SentencePiece(spiece, extra_ids=0).size
    # 96 rows hold the pieces and as many of the 100 sentinels as fit.
    loaded = load(str(folder))
    assert loaded.config.vocab == loaded.tokenizer.size == 96
    wide = replace(gated[0], vocab=160, embeddings=160)
    save(folder, wide, random_params(wide), "float32")
    loaded = load(str(folder))
    assert loaded.config.vocab == loaded.tokenizer.size == pieces + 100
    assert loaded.tokenizer.decode([pieces + 99]) == "<extra_id_0>"


def test_a_stated_vocabulary_is_followed(gated, folder, spiece):
    pieces = SentencePiece(spiece, extra_ids=0).size
    own = replace(gated[0], vocab=pieces)
    save(folder, own, gated[1], "float32")
    loaded = load(str(folder))
    assert loaded.config == own
    assert loaded.tokenizer.size == pieces


def test_a_tokenizer_larger_than_the_table_is_refused(folder, spiece):
    small = t5.Config(**SIZES | dict(vocab=20, embeddings=20))
    save(folder, small, random_params(small), "float32")
    with pytest.raises(CheckpointError, match="table 20 rows"):
        load(str(folder))


def test_special_ids_must_agree(gated, folder):
    save(folder, replace(gated[0], eos=5), gated[1], "float32")
    with pytest.raises(CheckpointError, match=r"ends with id 1.*expects 5"):
        load(str(folder))


def test_published_padding_is_masked_without_a_tokenizer(tmp_path):
    config = t5.Config(vocab=32_128, d_model=2, d_kv=1, d_ff=2, heads=1, encoder_layers=1, decoder_layers=1)
    save(tmp_path, config, random_params(config), "float32")
    loaded = load(str(tmp_path))
    assert loaded.tokenizer is None
    assert loaded.config.vocab == 32_100


@pytest.mark.parametrize("named", ["folder", "file"])
def test_local_t5x(gated, spiece, tmp_path, named):
    folder = inline(tmp_path / "checkpoint_1000", gated[1])
    shutil.copy(spiece, tmp_path / "spiece.model")
    loaded = load(str(folder if named == "folder" else folder / "checkpoint"), "float32")
    same_tree(loaded.params, gated[1])
    assert loaded.config.vocab == loaded.tokenizer.size


def test_a_folder_of_checkpoints_names_them(gated, tmp_path):
    inline(tmp_path / "checkpoint_1000", gated[1])
    with pytest.raises(CheckpointError, match=r"did you mean one of .*checkpoint_1000"):
        load(str(tmp_path))


def test_embedded_models_share_a_tokenizer(gated, spiece, tmp_path, monkeypatch):
    monkeypatch.setattr(references, "EMBEDDED", tmp_path)
    for name in ("en-de-drafter", "en-de-target"):
        save(tmp_path / name, *gated, "bfloat16")
    shutil.copy(spiece, tmp_path / "spiece.model")
    loaded = load("embedded:en-de-target")
    assert loaded.config.vocab == loaded.tokenizer.size
    with pytest.raises(ValueError, match=r"'fr' is not one of .*en-de-drafter.*en-de-target"):
        load("embedded:fr")
    with pytest.raises(ValueError, match=r"'\.\./x' is not one of"):
        load("embedded:../x")


def hub(monkeypatch, snapshot_download):
    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(snapshot_download=snapshot_download))


@pytest.mark.parametrize(("ref", "revision"), [
    ("hf://org/name", None),
    ("hf://org/name@v1", "v1"),
    ("hf://org/name@refs/pr/2", "refs/pr/2"),
])  # fmt: skip
def test_the_hub_is_asked_for_safetensors_only(gated, folder, monkeypatch, ref, revision):
    asked = []

    def download(name, revision, allow_patterns):
        asked.append((name, revision, allow_patterns))
        return str(folder)

    hub(monkeypatch, download)
    same_tree(load(ref, "float32").params, gated[1])
    assert asked == [("org/name", revision, ["*.safetensors", "*.json", "spiece.model", "tokenizer*"])]


def test_an_unreachable_hub_says_what_to_fetch(monkeypatch):
    def download(name, revision, allow_patterns):
        raise ConnectionError("no route\nand a traceback")

    hub(monkeypatch, download)
    with pytest.raises(ValueError, match=r"no route\)\. Without it, fetch .*co/org/name") as caught:
        load("hf://org/name")
    assert "\n" not in str(caught.value)


def test_a_missing_hub_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ValueError, match=r"pip install 'spec-cascades\[hub\]'"):
        load("hf://org/name")


@pytest.mark.parametrize("ref", ["hf://name", "hf://a/b/c", "hf:///name", "hf://org/"])
def test_malformed_hub_references(ref):
    with pytest.raises(ValueError, match="hf://ORG/NAME"):
        load(ref)


def test_a_bucket_is_read_as_t5x(gated, tmp_path, monkeypatch):
    folder = inline(tmp_path, gated[1])
    assert t5x.bucket("gs://b/models/x/").folder == {"driver": "gcs", "bucket": "b", "path": "models/x/"}
    monkeypatch.setattr(t5x, "bucket", lambda url: t5x.local(folder))
    same_tree(load("gs://b/models/x", "float32").params, gated[1])


def test_an_unreachable_bucket_says_what_to_copy(monkeypatch):
    def unreachable(folder, kept):
        raise ValueError("could not resolve host")

    monkeypatch.setattr(references, "_copy", unreachable)
    with pytest.raises(ValueError, match=r"could not resolve host.*copy that folder"):
        load("gs://b/models/x")


@pytest.mark.parametrize("ref", ["s3://b/x", "https://example.org/x", "/no/such/place"])
def test_other_references_list_the_forms(ref):
    with pytest.raises(ValueError, match=r"embedded:NAME, hf://ORG/NAME.*gs://BUCKET/PATH.*local path"):
        load(ref)


def test_float16_is_refused_with_the_reason(folder):
    with pytest.raises(ValueError, match="overflows"):
        load(str(folder), "float16")


def test_an_unknown_dtype_lists_the_choices(folder):
    with pytest.raises(ValueError, match=r"'float64' is not one of .*float32.*bfloat16"):
        load(str(folder), "float64")
