"""Where every family's parameters and caches lie, by name and shape alone: one device is enough."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from spec_cascades import axes, sharding
from spec_cascades.config import ConfigError, Mesh
from spec_cascades.models import gemma, llama, markov, t5
from spec_cascades.models.copying import Copying
from spec_cascades.models.subset import Subset
from spec_cascades.models.widened import Widened
from spec_cascades.sharding.layout import factors
from spec_cascades.sharding.serving import serving
from spec_cascades.sharding.tables import TABLES, check, path_of, spec_of

SIZES = {"data": 2, "model0": 2, "target1": 2, "target2": 2}
ALL = ("model0", "target1", "target2")
GEMMA = gemma.Gemma(gemma.Config(heads=8, kv_heads=2, d_ff=32, embeddings=96, vocab=90, d_model=16, layers=2))
LLAMA = llama.Llama(llama.Config(heads=8, kv_heads=4, d_ff=32, embeddings=96, vocab=90, tied=False))
T5 = t5.T5(t5.Config(heads=8, d_ff=32, embeddings=100, vocab=90))


@pytest.mark.parametrize(
    ("lm", "role", "path", "shape", "spec"),
    [
        (GEMMA, "target", "embedder/input_embedding", (96, 16), P(ALL, None)),
        (GEMMA, "drafter", "embedder/input_embedding", (96, 16), P(("model0",), None)),
        (GEMMA, "target", "layer_0/attn/q_einsum/w", (8, 16, 4), P(ALL, None, None)),
        (GEMMA, "target", "layer_0/attn/q_einsum/w", (16, 32), P(None, ALL)),
        (GEMMA, "target", "stacked_layers/attention_type_0/attn/q_einsum/w", (3, 16, 32), P(None, None, ALL)),
        (GEMMA, "target", "layer_0/attn/kv_einsum/w", (2, 2, 16, 4), P(None, ("model0",), None, None)),
        (GEMMA, "target", "layer_0/attn/k_einsum/w", (16, 8), P(None, ("model0",))),
        (GEMMA, "target", "layer_0/attn/attn_vec_einsum/w", (8, 4, 16), P(ALL, None, None)),
        (GEMMA, "target", "layer_0/attn/attn_vec_einsum/w", (32, 16), P(ALL, None)),
        (GEMMA, "target", "layer_0/mlp/gating_einsum", (2, 32, 16), P(None, ALL, None)),
        (GEMMA, "target", "layer_0/mlp/gate", (16, 32), P(None, ALL)),
        (GEMMA, "target", "layer_0/mlp/gate/q", (16, 32), P(None, ALL)),
        (GEMMA, "target", "layer_0/mlp/gate/scale", (1, 32), P(None, ALL)),
        (GEMMA, "target", "layer_0/mlp/gate/scale", (32,), P(ALL)),
        (GEMMA, "target", "layer_0/mlp/linear/scale", (1, 16), P(None, None)),
        (GEMMA, "target", "layer_0/pre_ffw_norm/scale", (16,), P(None)),
        (LLAMA, "target", "layers_0/attention/key/kernel", (16, 16), P(None, ("model0", "target1"))),
        (LLAMA, "target", "layers/attention/out/kernel", (5, 32, 16), P(None, ALL, None)),
        (Copying(LLAMA), "target", "logits_dense/kernel", (16, 96), P(None, ALL)),
        (Widened(LLAMA, 100), "drafter", "layers_0/mlp/down/kernel", (32, 16), P(("model0",), None)),
        (Subset(LLAMA, 96), "target", "model/layers_0/mlp/up/kernel", (16, 32), P(None, ALL)),
        (Subset(LLAMA, 96), "target", "place", (96,), P(ALL)),
        (T5, "target", "token_embedder/embedding", (100, 16), P(("model0", "target1"), None)),
        (T5, "target", "decoder/relpos_bias/rel_embedding", (8, 32), P(ALL, None)),
        (T5, "target", "decoder/layers_0/encoder_decoder_attention/out/kernel", (32, 16), P(ALL, None)),
        (T5, "target", "encoder/layers_0/mlp/wi_1/kernel", (16, 32), P(None, ALL)),
        (T5, "target", "encoder/layers_0/mlp/wi/kernel", (16, 32), P(None, ALL)),
        (markov.Markov(8), "target", "", (3, 8, 8), P(None, None, ALL)),
    ],
)
def test_a_parameter_lies_where_its_table_says(lm, role, path, shape, spec):
    found = spec_of(lm, role, path, shape, SIZES)
    plain = lambda spec: [x if isinstance(x, str) else tuple(x or ()) for x in spec]
    assert plain(found) == plain(spec)


@pytest.mark.parametrize(
    ("lm", "shapes"),
    [
        (GEMMA, gemma.shapes_of(GEMMA.config)),
        (LLAMA, llama.shapes_of(LLAMA.config)),
        (T5, t5.shapes_of(T5.config)),
    ],
    ids=["gemma", "llama", "t5"],
)
def test_all_but_norms_are_divided(lm, shapes):
    """A name that no regex knows would be repeated on every device, silently."""
    leaves = jax.tree_util.tree_leaves_with_path(shapes, is_leaf=lambda x: isinstance(x, tuple))
    assert type(lm) in TABLES
    for path, shape in leaves:
        divided = any(spec_of(lm, "target", path_of(path), shape, SIZES))
        assert divided != ("norm" in path_of(path)), path_of(path)


def test_published_models_divide_by_eight_or_say_why():
    sizes = {"data": 1, "model0": 2, "model1": 2, "model2": 2}
    check(llama.Llama(llama.PRESETS["llama-3-8b"]), "target", sizes)
    check(gemma.Gemma(gemma.PRESETS["gemma-2b"]), "target", sizes)
    with pytest.raises(ValueError, match=r"drafter's heads, 4, .* in 8 parts; mesh.drafter may be smaller"):
        check(gemma.Gemma(gemma.PRESETS["gemma-3-1b"]), "drafter", sizes)
    with pytest.raises(ValueError, match=r"target's heads, 9, .* in 8 parts$"):
        check(llama.Llama(llama.PRESETS["smollm2-135m"]), "target", sizes)
    with pytest.raises(ValueError, match=r"kv_heads, 6, "):
        check(llama.Llama(llama.Config(heads=24, kv_heads=6, d_ff=32)), "target", sizes)
    check(gemma.Gemma(gemma.PRESETS["gemma-3-1b"]), "drafter", {"data": 1, "model0": 2, "target1": 4})


@pytest.mark.parametrize(
    ("model", "drafter", "names"),
    [
        (8, None, {"model0": 2, "model1": 2, "model2": 2}),
        (8, 2, {"model0": 2, "target1": 2, "target2": 2}),
        (6, 3, {"model0": 3, "target1": 2}),
        (4, 1, {"target0": 2, "target1": 2}),
        (1, None, {}),
    ],
)
def test_the_drafters_axes_come_first(model, drafter, names):
    assert factors(Mesh(1, model, drafter)) == names


def test_caches_lie_by_rows_and_heads():
    sizes = {"data": 2, "model0": 2, "target1": 2}
    assert axes.cached((4, 8, 30, 16), "target", sizes) == P("data", ("model0", "target1"))
    assert axes.cached((4, 3, 2, 30, 16), "target", sizes) == P("data", None, ("model0",))
    assert axes.cached((4, 8, 30, 16), "drafter", sizes) == P("data", ("model0",))
    assert axes.cached((3, 1, 30, 1), "target", sizes) == P(None, None)
    assert axes.cached((4,), "target", sizes) == P("data")
    assert axes.cached((), "target", sizes) == P()


def test_bad_meshes_are_refused():
    with pytest.raises(ConfigError, match="data: 0 must be 1 or more"):
        Mesh(0)
    with pytest.raises(ConfigError, match="drafter: 3 must be a divisor of model, 8"):
        Mesh(1, 8, 3)
    n = jax.device_count() + 1
    with pytest.raises(ValueError, match=rf"data={n} x model=1 wants {n} devices, and there are {n - 1}"):
        sharding.of(Mesh(n))
    with pytest.raises(ValueError, match="int has no table of shardings; the families: Gemma, Llama"):
        check(3, "target", SIZES)
    assert sharding.of(None) is None


def test_what_is_served_can_be_traced():
    lm = replace(GEMMA, scan=True)
    kernel = lambda shape: jax.ShapeDtypeStruct(shape, jnp.bfloat16)
    whole = jax.tree.map(kernel, gemma.shapes_of(lm.config), is_leaf=lambda x: type(x) is tuple)
    made = jax.eval_shape(lambda p: serving(lm, p), whole)
    layer = made["stacked_layers"]["attention_type_0"]
    assert layer["attn"]["q_einsum"]["w"].shape == (2, 16, 8 * lm.config.head_dim)
    assert layer["mlp"]["gate"].shape == (2, 16, 32)
