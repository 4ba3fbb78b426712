"""Which tensors become int8, what goes on the way, and what a configuration may ask for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from spec_cascades import storing
from spec_cascades.checkpoints.tree import flatten
from spec_cascades.config import ConfigError, Generate, Models, load
from spec_cascades.engine import Engine
from spec_cascades.int8 import Int8, widened
from spec_cascades.models.copying import Copying
from spec_cascades.models.gemma import Gemma
from spec_cascades.models.subset import Subset
from spec_cascades.models.widened import Widened

FAMILIES = pytest.mark.parametrize("family", ["gemma", "llama", "t5"])


def served(family):
    """A family's target with dictionaries of its own."""
    model = tiny.FAMILIES[family]
    return model.target, model.target.serving(jax.tree.map(lambda x: x, model.params["target"]))


@FAMILIES
def test_every_matrix_but_a_bias_becomes_int8(family):
    _, params = served(family)
    before = flatten(params)
    after = flatten(storing.as_int8(params))
    assert list(before) == list(after)
    assert params == {}, "what was taken over is gone"
    for path, leaf in after.items():
        stays = "scale" in path or "rel_embedding" in path
        assert isinstance(leaf, Int8) != stays, path
        if not stays:
            top = np.abs(before[path]).max(-1 if "embedding" in path else -2, keepdims=True)
            np.testing.assert_allclose(leaf.scale, top / 127, rtol=1e-6)
            assert (np.abs(widened(leaf) - before[path]) <= 0.51 * np.asarray(leaf.scale)).all()
            assert leaf.dtype == jnp.float32


def test_layers_joined_for_a_scan_keep_a_scale_a_layer_and_channel():
    lm = tiny.FAMILIES["gemma"].target
    lm, params = (
        Gemma(lm.config, scan=True),
        jax.tree.map(lambda x: x, tiny.FAMILIES["gemma"].params["target"]),
    )
    stacked = storing.as_int8(lm.serving(params))["stacked_layers"]["attention_type_0"]
    assert stacked["mlp"]["linear"].scale.shape == (1, 1, 16)
    assert stacked["pre_ffw_norm"]["scale"].dtype == jnp.float32


def test_wrapped_models_are_reached():
    lm, params = served("llama")
    wrapped = Copying(Widened(Subset(lm, 48), 60))
    assert storing.cached_as(wrapped, "int8").lm.lm.lm.cache_dtype == jnp.int8
    subset = storing.as_int8({"model": params, "place": jnp.arange(48)})
    assert isinstance(subset["model"]["embedder"]["embedding"], Int8)
    assert subset["place"].dtype == jnp.int32


def test_what_a_weight_takes():
    _, params = served("llama")
    assert storing.bytes_a_weight(params) == 4
    # The largest tensor is the table, [48, 16]: a byte a weight and a scale a row.
    assert storing.bytes_a_weight(storing.as_int8(params)) == 1 + 4 / 16


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("weights=int4", ["models.weights", "'int4'", "dtype, int8"]),
        ("cache=fp8", ["models.cache", "'fp8'", "float32, bfloat16, int8"]),
        ("drafter_weights=bf16", ["models.drafter_weights", "'bf16'", "dtype, int8"]),
        ("drafter_cache=int4", ["models.drafter_cache", "'int4'", "int8"]),
    ],
)
def test_other_values_are_told_the_choices(setting, said):
    with pytest.raises(ConfigError) as error:
        load(Generate, None, [f"models.{setting}"])
    assert all(text in str(error.value) for text in said)


def test_a_drafter_is_held_as_the_target_is_unless_it_says_otherwise():
    assert Models().held("drafter") == ("dtype", "float32")
    models = Models(weights="int8", cache="int8", drafter_cache="float32")
    assert (models.held("target"), models.held("drafter")) == (("int8", "int8"), ("int8", "float32"))


def test_an_early_exit_shares_the_targets_arrays():
    engine = Engine("embedded:en-de-target", "exit:1", weights="int8", drafter_weights="dtype")
    with pytest.raises(ValueError, match=r"drafter_weights: 'dtype' must be the target's 'int8'"):
        engine.model("drafter")
