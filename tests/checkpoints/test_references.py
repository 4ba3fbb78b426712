"""References that are downloaded, with stand-ins for what downloads: Kaggle, and Orbax folders in buckets."""

import shutil
import sys
from dataclasses import replace
from types import SimpleNamespace

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
import tensorstore as ts
from tiny_t5 import random_params, same_tree

from spec_cascades.checkpoints import CheckpointError, load, orbax, references, save, t5x
from spec_cascades.models import gemma, t5


def kaggle(monkeypatch, model_download):
    monkeypatch.setitem(sys.modules, "kagglehub", SimpleNamespace(model_download=model_download))


@pytest.mark.parametrize("handle", ["google/gemma-3/flax/gemma3-1b-it", "google/gemma-3/flax/gemma3-1b-it/2"])
def test_kaggle_is_asked_for_the_handle(gated, tmp_path, monkeypatch, handle):
    save(tmp_path, *gated, "float32")
    asked = []
    kaggle(monkeypatch, lambda handle: asked.append(handle) or str(tmp_path))
    loaded = load(f"kaggle://{handle}", "float32")
    same_tree(loaded.params, gated[1])
    assert asked == [handle]
    assert loaded.ref == f"kaggle://{handle}"


@pytest.mark.parametrize(
    "ref", ["kaggle://a/b/c", "kaggle://a/b/c/d/e", "kaggle://a/b/c/d/1/2", "kaggle://a//c/d", "kaggle://"]
)
def test_malformed_kaggle_references(ref):
    with pytest.raises(ValueError, match=r"kaggle://OWNER/MODEL/FRAMEWORK/VARIATION\[/VERSION\]"):
        load(ref)


def test_kaggle_out_of_reach_says_what_to_download(monkeypatch):
    def download(handle):
        raise ConnectionError("no route\nand a traceback")

    kaggle(monkeypatch, download)
    with pytest.raises(ValueError, match=r"no route\)\. Without it, download .*com/models/a/b/c/d") as caught:
        load("kaggle://a/b/c/d")
    assert "\n" not in str(caught.value)
    monkeypatch.setitem(sys.modules, "kagglehub", None)
    with pytest.raises(
        ValueError, match=r"needs kagglehub: pip install 'spec-cascades\[hub\]'.*pass its path"
    ):
        load("kaggle://a/b/c/d")


# ----------------------------------------------------------------------------------------------------
# Buckets


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """A folder that stands for the bucket gs://b, read by the same code; and a cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    where = lambda url: t5x.local(tmp_path / url.removeprefix("gs://"))
    monkeypatch.setattr(t5x, "bucket", where)
    return tmp_path / "b"


def run_of(folder, params):
    """An Orbax folder as training writes it: a tree and no description."""
    with ocp.StandardCheckpointer() as writer:
        writer.save(folder, params)


def test_an_orbax_folder_in_a_bucket_is_copied_once(gated, bucket):
    orbax.save(bucket / "own", *gated, "float32")
    same_tree(load("gs://b/own", "float32").params, gated[1])
    shutil.rmtree(bucket)
    same_tree(load("gs://b/own/", "float32").params, gated[1])


@pytest.mark.parametrize("inside", ["", "default"])
def test_a_published_tree_in_a_bucket(bucket, monkeypatch, inside):
    sizes = dict(d_model=12, head_dim=8, d_ff=20, heads=4, kv_heads=4, layers=2, query_scalar=8)
    config = gemma.Config(vocab=32, embeddings=32, **sizes)
    monkeypatch.setitem(gemma.PRESETS, "tiny", config)
    params = jax.tree.map(np.asarray, gemma.init(jax.random.key(0), config))
    run_of(bucket / "it" / inside, {"transformer/" + k: v for k, v in params.items()})
    loaded = load("gs://b/it", "float32")
    same_tree(loaded.params, params)
    assert loaded.tokenizer is None


def test_a_copy_that_fails_leaves_nothing(gated, bucket, tmp_path, monkeypatch):
    run_of(bucket / "x", gated[1])
    opened = ts.KvStore.open

    class Broken:
        def __init__(self, store):
            self.store = store

        def list(self):
            return self.store.list()

        def read(self, key):
            if key in references.MARKS:
                return self.store.read(key)
            raise ValueError("connection lost")

    monkeypatch.setattr(
        ts.KvStore,
        "open",
        lambda *a, **k: SimpleNamespace(result=lambda: Broken(opened(*a, **k).result())),
    )
    with pytest.raises(ValueError, match=r"connection lost\)\. Without it, copy that folder"):
        load("gs://b/x")
    assert not [p for p in (tmp_path / "cache").rglob("*") if p.is_file() or p.name.startswith(".x")]


def test_names_in_a_bucket_stay_in_their_folder(gated, bucket, tmp_path, monkeypatch):
    run_of(bucket / "x", gated[1])
    opened = ts.KvStore.open

    def with_a_climber(*arguments, **options):
        store = opened(*arguments, **options).result()
        listed = SimpleNamespace(result=lambda: [b"../../evil"])
        return SimpleNamespace(result=lambda: SimpleNamespace(read=store.read, list=lambda: listed))

    monkeypatch.setattr(ts.KvStore, "open", with_a_climber)
    with pytest.raises(ValueError, match=r"'\.\./\.\./evil' leaves the checkpoint's folder"):
        load("gs://b/x")
    assert not list((tmp_path / "cache").rglob("evil"))


def test_the_orbax_of_another_program_is_told_from_t5x(gated, tmp_path):
    """Late T5X folders hold Orbax's metadata too, of a tree under `target`."""
    run_of(tmp_path / "t5x", {"target": gated[1]})
    assert orbax.find(tmp_path / "t5x") is None
    run_of(tmp_path / "x", gated[1])
    assert orbax.find(tmp_path / "x") == tmp_path / "x"
    with pytest.raises(CheckpointError, match="cannot tell the model's size"):
        load(str(tmp_path / "x"))


def test_own_folders_are_found_beside_their_tokenizer(gated, spiece, tmp_path):
    pieces = replace(gated[0], vocab=80)
    orbax.save(tmp_path / "model", pieces, random_params(pieces), "float32")
    shutil.copy(spiece, tmp_path / "spiece.model")
    for ref in (tmp_path / "model", tmp_path):
        loaded = load(str(ref), "float32")
        assert loaded.config == pieces
        assert loaded.tokenizer.size == 80
        assert isinstance(loaded.lm, t5.T5)
