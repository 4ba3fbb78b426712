"""Models held as int8 are models like any other: the loop is exact for them and widens no cache of theirs."""

from dataclasses import replace
from functools import cache, partial

import jax
import jax.numpy as jnp
import laws
import numpy as np
import pytest
import tiny
from laws import Setting

from spec_cascades import cache as kv
from spec_cascades.decode import loop
from spec_cascades.decode.autoregressive import Autoregressive
from spec_cascades.decode.speculative import Speculative
from spec_cascades.int8 import Int8
from spec_cascades.models import t5
from spec_cascades.rules import RULES
from spec_cascades.storing import as_int8, cached_as

FAMILIES = pytest.mark.parametrize("family", ["gemma", "llama", "t5"])
N = 16


@cache
def held(family):
    """A family's pair with int8 weights and caches."""
    model = tiny.FAMILIES[family]
    lms = {role: cached_as(getattr(model, role), "int8") for role in ("target", "drafter")}
    own = lambda role: jax.tree.map(lambda x: x, model.params[role])
    params = {role: as_int8(lm.serving(own(role))) for role, lm in lms.items()}
    return model._replace(**lms, params=params)


def greedy(model, method, rows=slice(None)):
    prompts, lengths = model.prompts[rows], model.lengths[rows]
    request = laws.request([Setting(temperature=0.0)], len(lengths))
    return loop.generate(method, model.params, prompts, lengths, request, N)


@pytest.mark.parametrize("family", ["gemma", "t5"])
def test_lossless_greedy_is_the_int8_target_and_a_row_is_the_row_alone(family):
    model = held(family)
    alone = greedy(model, Autoregressive(model.target))
    method = Speculative(model.drafter, model.target, RULES["lossless"], 3)
    got = greedy(model, method)
    np.testing.assert_array_equal(got.tokens, alone.tokens)
    assert 0 < got.ledger.accepted.sum() < got.ledger.judged.sum()
    if family == "gemma":
        one = greedy(model, method, slice(1, 2))
        np.testing.assert_array_equal(one.tokens, got.tokens[1:2])


@FAMILIES
def test_chunks_equal_one_shot_and_a_rewind_leaves_nothing(family):
    model = held(family)
    lm, params = model.target, model.params["target"]
    tokens = jax.random.randint(jax.random.key(0), (4, 9), 2, 5)
    _, start = jax.jit(partial(lm.prefill, params), static_argnums=(2, 3))(
        model.prompts, model.lengths, 24, 9
    )
    extend = jax.jit(partial(lm.extend, params))
    whole, _ = extend(tokens, start)
    first, read = extend(tokens[:, :4], start)
    back = jnp.asarray([0, 1, 3, 4])
    # Other tokens are read and taken back before the true ones are.
    _, wrong = extend(tokens[:, 4:] + 1, read)
    rewound = kv.rewind(wrong, read.length - back)
    for row, n in enumerate(4 - back):
        again, _ = extend(jnp.roll(tokens, -int(n), axis=1)[:, :5], rewound)
        np.testing.assert_allclose(again[row], whole[row, n : n + 5], atol=2e-5)
    np.testing.assert_allclose(first, whole[:, :4], atol=2e-5)
    leaves = jax.tree.leaves(read.layers, is_leaf=lambda x: isinstance(x, Int8))
    assert all(isinstance(x, Int8) and x.scale.shape[-1] == 1 for x in leaves)


def test_scanned_layers_that_read_prompts_in_chunks_keep_the_same_int8_rings():
    model = held("gemma")
    scanning = replace(model.target, scan=True, chunk=3)
    params = as_int8(scanning.serving(jax.tree.map(lambda x: x, tiny.FAMILIES["gemma"].params["target"])))
    got = []
    for lm, own in ((model.target, model.params["target"]), (scanning, params)):
        _, start = jax.jit(lm.prefill, static_argnums=(3, 4))(own, model.prompts, model.lengths, 16, 4)
        got.append(jax.jit(lm.extend)(own, model.prompts[:, :3], start)[0])
    np.testing.assert_allclose(*got, atol=2e-5)


SIZES = dict(vocab=40, embeddings=48, d_model=32, d_kv=16, d_ff=512, heads=2, encoder_layers=1, tied=True)
LAYERS, WIDE = (1, 3), 12
"""More rows than a CPU reads int8 values one by one for."""


@pytest.fixture(scope="module")
def compiled():
    """For a few layers and more: the compiled loop of a T5 alone, weights and caches int8, and its caches."""

    def one(layers):
        lm = t5.T5(t5.Config(**SIZES, decoder_layers=layers), jnp.int8)
        params = {"target": as_int8(t5.init(jax.random.key(0), lm.config, jnp.bfloat16))}
        method, prompts = Autoregressive(lm), jnp.ones((WIDE, 100), jnp.int32)
        request = laws.request([Setting(0.5)], WIDE)
        state = jax.eval_shape(lambda: loop.start(method, params, prompts, jnp.full(WIDE, 100), request, 100))
        return loop.run.lower(method, params, state, request).compile(), state.caches["target"]

    return [one(layers) for layers in LAYERS]


def test_no_kernel_and_no_cache_is_widened_before_the_step_that_reads_it(compiled):
    """Temporaries do not grow with the layers; a layer's kernels in bfloat16 are a quarter of them."""
    few, more = (done.memory_analysis().temp_size_in_bytes for done, _ in compiled)
    assert more < 1.1 * few


def test_the_int8_caches_are_donated_and_not_copied(compiled):
    done, caches = compiled[-1]
    keys, text = caches.layers[0][0], done.as_text()
    shape = ",".join(map(str, keys.shape))
    assert f"s8[{shape}]" in text
    assert not [x for x in text.splitlines() if " copy(" in x and f"s8[{shape}]" in x]
    whole = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves((caches.layers, caches.memory)))
    assert done.memory_analysis().alias_size_in_bytes >= whole
