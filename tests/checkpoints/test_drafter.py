"""Distilled drafters: of their target only what they share is read, and nothing to say what they are."""

import jax
import numpy as np
import pytest
from counted import counting
from tiny_orbax import OTHERS, random_params

from spec_cascades.checkpoints import drafter, load, peek, save
from spec_cascades.distill import student
from spec_cascades.distill.settings import Drafter

CONFIG = OTHERS["llama"]


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    folder = tmp_path_factory.mktemp("target")
    save(folder, CONFIG, random_params(CONFIG), "float32")
    return folder


@pytest.fixture(params=["all ids", "some ids"])
def folder(request, target, tmp_path):
    """A drafter of the target's first layer."""
    ids = None if request.param == "all ids" else np.arange(0, 28, 2, dtype=np.int32)
    own = Drafter(layers=1, vocabulary=None if ids is None else len(ids))
    trunk = student.trunk(load(str(target), "float32").params, CONFIG, own, jax.random.key(0))
    drafter.save(tmp_path, str(target), own, trunk, ids)
    return tmp_path


def test_only_the_table_and_the_head_of_the_target_are_read(folder, target):
    with counting() as seen:
        loaded = load(str(folder), "float32")
    matrix, own = 4 * CONFIG.embeddings * CONFIG.d_model, sum(peek(str(folder)).stored.values())
    # Both are compared first, to tell whether the head is tied.
    assert seen.bytes == 4 * matrix + own
    params = loaded.params.get("model", loaded.params)
    np.testing.assert_array_equal(params["embedder"]["embedding"], load_table(target))


def load_table(target):
    return load(str(target), "float32").params["embedder"]["embedding"]


def test_headers_say_what_it_is(folder):
    loaded = load(str(folder), "float32")
    with counting() as seen:
        header = peek(str(folder))
    ids = header.stored.get("int32", 0)
    assert seen.bytes == 2 * 4 * CONFIG.embeddings * CONFIG.d_model + ids
    assert (header.lm, header.config) == (loaded.lm, loaded.config)
    assert header.parameters == sum(leaf.size for leaf in jax.tree.leaves(loaded.params))
    assert set(header.stored) <= {"bfloat16", "int32"}
