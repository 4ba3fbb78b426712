"""Gemma against itself: blocks, steps and no cache; rewinding over a window's edge; rows; scanned layers."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_cascades import cache as kv
from spec_cascades.models import gemma
from spec_cascades.models.gemma import PRESETS, Config, Gemma

TOLERANCE = 1e-5
B, T, WINDOW, PROMPT, CAPACITY = 3, 24, 5, 13, 40

PREFILL = jax.jit(Gemma.prefill, static_argnums=(0, 4))
EXTEND = jax.jit(Gemma.extend, static_argnums=0)
FORWARD = jax.jit(gemma.forward, static_argnums=1)

TINY = dict(vocab=90, embeddings=96, d_model=32, head_dim=12, d_ff=48, heads=4, kv_heads=2, window=WINDOW)
CONFIGS = {
    "1": Config(generation=1, layers=2, **TINY | {"kv_heads": 4}),
    "2": Config(generation=2, layers=5, pattern=2, attention_softcap=2.0, final_softcap=1.5, **TINY),
    "3": Config(generation=3, layers=4, pattern=2, rope_base=1e6, rope_scale=8.0, query_scalar=20, **TINY),
}


@pytest.fixture(scope="module", params=sorted(CONFIGS))
def model(request):
    """(LM, official parameters, served parameters)."""
    lm = Gemma(CONFIGS[request.param])
    params = random_params(lm.config)
    return lm, params, lm.serving(params)


def random_params(config):
    """Norms away from zero; a table that makes logits of about 0.1, so that float32 ends at 1e-7."""
    rng = np.random.default_rng(0)
    draw = lambda s: jnp.asarray(rng.normal(size=s) * (0.2 if len(s) == 1 else 32**-0.5), jnp.float32)
    params = jax.tree.map(draw, gemma.shapes_of(config), is_leaf=lambda x: isinstance(x, tuple))
    return params | {"embedder": {"input_embedding": params["embedder"]["input_embedding"] * 0.1}}


def text(seed=0, t=T):
    """Tokens [B, t]; few shapes, so that little compiles."""
    return jnp.asarray(np.random.default_rng(seed).integers(1, 90, (B, t)))


def uncached(lm, params, tokens):
    return np.asarray(FORWARD(params, lm.config, tokens, jnp.ones_like(tokens)))


def read(lm, params, tokens, cache, blocks):
    """Logits of consecutive blocks of the tokens, and the cache after them."""
    out, at = [], 0
    for n in blocks:
        logits, cache = EXTEND(lm, params, tokens[:, at : at + n], cache)
        out.append(logits)
        at += n
    return np.concatenate(out, axis=1), cache


def used(lm, params):
    """A cache that has read something and is rewound to the start."""
    _, cache = PREFILL(lm, params, text(9, PROMPT), jnp.full(B, PROMPT), CAPACITY)
    return kv.rewind(cache, jnp.zeros(B, jnp.int32))


def furthest(a, b):
    """The largest difference; infinities must be the same."""
    a, b = np.asarray(a), np.asarray(b)
    np.testing.assert_array_equal(np.isneginf(a), np.isneginf(b))
    return float(np.max(np.abs(np.where(np.isneginf(a), 0, a) - np.where(np.isneginf(b), 0, b))))


def test_block_equals_single_steps_equals_uncached(model):
    lm, params, served = model
    expected = uncached(lm, params, text())
    for blocks in ([8] * 3, [1] * T, [8, 1, 4, 1, 1, 8, 1]):
        got, cache = read(lm, served, text(), used(lm, served), blocks)
        assert furthest(got, expected) < TOLERANCE
        assert cache.length.tolist() == [T] * B


@pytest.mark.parametrize("kept", [1, WINDOW - 1, WINDOW, 2 * WINDOW + 1])
def test_rewind_then_extend_equals_fresh_across_the_windows_edge(model, kept):
    lm, params, served = model
    mixed = jnp.concatenate([text()[:, :kept], text(7)], axis=1)
    _, cache = read(lm, served, mixed, used(lm, served), [8, 8, 8])
    cache = kv.rewind(cache, jnp.full(B, kept))
    got, _ = read(lm, served, text()[:, kept:], cache, [4, 8])
    assert furthest(got, uncached(lm, params, text())[:, kept : kept + 12]) < TOLERANCE


def test_rows_of_unequal_length_equal_each_alone(model):
    """Each row's own text without cache; neither padding nor neighbours matter."""
    lm, params, served = model
    lengths, rows = np.array([PROMPT, 6, 1]), np.arange(B)[:, None]
    at = lengths[:, None] - 1 + np.arange(9)
    expected = uncached(lm, params, text())[rows, at]
    for stray in (0, 77):
        padded = jnp.where(jnp.arange(PROMPT) < lengths[:, None], text()[:, :PROMPT], stray)
        last, cache = PREFILL(lm, served, padded, jnp.array(lengths), CAPACITY)
        assert last.tolist() == text()[rows[:, 0], lengths - 1].tolist()
        assert cache.length.tolist() == [12, 5, 0]
        got, _ = read(lm, served, text()[rows, at], cache, [1, 8])
        assert furthest(got, expected) < TOLERANCE


def test_segments_do_not_see_each_other(model):
    lm, params, _ = model
    got = FORWARD(params, lm.config, text(), jnp.where(jnp.arange(T) < 9, 1, 2)[None].repeat(B, 0))
    second = uncached(lm, params, jnp.roll(text(), -9, axis=1))[:, : T - 9]
    alone = np.concatenate([uncached(lm, params, text())[:, :9], second], axis=1)
    assert furthest(got, alone) < TOLERANCE


def test_gradients_reach_every_weight():
    config = replace(CONFIGS["3"], layers=2)
    params, tokens = random_params(config), text(t=12)
    loss = lambda p: jnp.sum(gemma.forward(p, config, tokens, jnp.ones_like(tokens))[..., :90] ** 2)
    for path, slope in jax.tree_util.tree_leaves_with_path(jax.jit(jax.grad(loss))(params)):
        assert np.isfinite(slope).all(), path
        assert (slope != 0).any(), path


def test_scanned_layers_equal_unrolled_ones(model):
    """With a remainder of the pattern, rows of unequal length, a rewind and blocks of one and of more."""
    lm, params, _ = model
    lengths, out = jnp.array([PROMPT, 6, 1]), []
    for each in (lm, replace(lm, scan=True)):
        served = each.serving(params)
        _, cache = PREFILL(each, served, text(2, PROMPT), lengths, CAPACITY)
        a, cache = read(each, served, text(3), cache, [1, 8])
        cache = kv.rewind(cache, cache.length - jnp.array([3, 0, 9]))
        b, cache = read(each, served, text(4), cache, [8, 1])
        out.append(np.concatenate([a, b], axis=1))
    assert np.std(out[0][..., :90]) > 0.05
    assert furthest(*out) < 1e-6
    stacked = gemma.stack(params, lm.config)
    assert furthest(uncached(lm, stacked, text()), uncached(lm, params, text())) < 1e-6


def test_entries_beyond_a_stacked_caches_end_are_dropped():
    old = jnp.arange(2 * 3 * 2 * 4 * 5, dtype=jnp.float32).reshape(3, 2, 2, 4, 5)
    new = -jnp.ones((3, 2, 3, 5))
    length = jnp.array([0, 2, 4])
    (whole,), (own,) = kv.store((old,), (new,), length[:, None] + jnp.arange(3), jnp.int32(1))
    np.testing.assert_array_equal(whole[:, 0], old[:, 0])
    np.testing.assert_array_equal(whole[:, 1], kv.write(old[:, 1], new, length))
    np.testing.assert_array_equal(own, whole[:, 1])


@pytest.mark.parametrize("t", [1, 4])
def test_no_cache_is_copied_where_layers_are_scanned(t):
    lm = Gemma(replace(CONFIGS["2"]), scan=True)
    served, tokens = lm.serving(random_params(lm.config)), jnp.ones((B, t), jnp.int32)
    cache = jax.eval_shape(lambda: lm.prefill(served, tokens, jnp.full(B, t), 600))[1]

    def loop(tokens, cache):
        def step(carry):
            logits, cache = lm.extend(served, *carry)
            return logits.argmax(-1).astype(jnp.int32), cache

        return jax.lax.while_loop(lambda carry: carry[1].length[0] < 500, step, (tokens, cache))

    hlo = jax.jit(loop, donate_argnums=1).lower(tokens, cache).compile().as_text()
    shapes = {",".join(map(str, leaf.shape)) for leaf in jax.tree.leaves(cache.layers)}
    assert shapes == {f"{B},2,2,600,12", f"{B},2,600,12"}
    assert all(f"f32[{shape}]" in hlo for shape in shapes)
    copies = [line for line in hlo.splitlines() if " copy(" in line and any(f"[{s}]" in line for s in shapes)]
    assert not copies


def test_parameters_must_be_stacked_as_the_model_says(model):
    lm, params, served = model
    with pytest.raises(ValueError, match="not stacked, but scan is True"):
        replace(lm, scan=True).prefill(served, text(), jnp.full(B, T), CAPACITY)
    with pytest.raises(ValueError, match="parameters are stacked, but scan is False"):
        lm.prefill(gemma.stack(params, lm.config), text(), jnp.full(B, T), CAPACITY)


def test_fewer_layers_than_the_pattern_are_never_stacked():
    config = replace(CONFIGS["3"], layers=1)
    assert gemma.stack(random_params(config), config).keys() == gemma.shapes_of(config).keys()


def test_bfloat16_serving_computes_what_the_official_tree_does(model):
    lm, params, _ = model
    params = jax.tree.map(lambda w: w.astype(jnp.bfloat16), params)
    served = lm.serving(params)
    kernels = served["layer_0"]["attn"]
    assert {kernels[name]["w"].ndim for name in kernels if name.endswith("einsum")} == {2}
    assert furthest(uncached(lm, served, text()), uncached(lm, params, text())) < 1e-2


def test_ids_beyond_the_tokenizer_are_never_likely(model):
    lm, params, _ = model
    logits = uncached(lm, params, text())
    assert np.isneginf(logits[..., 90:]).all()
    assert np.isfinite(logits[..., :90]).all()


def test_random_parameters_have_the_scale_of_their_inputs():
    config = replace(CONFIGS["3"], d_model=256, d_ff=192, head_dim=64, layers=1)
    flat = jax.tree_util.tree_leaves_with_path(
        jax.jit(gemma.init, static_argnums=1)(jax.random.key(0), config)
    )
    fan_in = dict(input_embedding=256, q_einsum=256, kv_einsum=256, attn_vec=256, gating=256, linear=192)
    for path, leaf in flat:
        name = jax.tree_util.keystr(path)
        kind = next((kind for kind in fan_in if kind in name), None)
        expected = 0.0 if kind is None else fan_in[kind] ** -0.5
        np.testing.assert_allclose(np.std(leaf), expected, rtol=0.05, err_msg=name)


TOWER = 416_866_032
"""Parameters of the part of Gemma 3 that sees images, but for the projection and its norm."""
PUBLISHED = {
    "gemma-2b": 2_506_172_416,
    "gemma-7b": 8_537_680_896,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2-27b": 27_227_128_320,
    "gemma-3-270m": 268_098_176,
    "gemma-3-1b": 999_885_952,
    "gemma-3-4b": 4_300_079_472 - TOWER - 1152 * 2561,
    "gemma-3-12b": 12_187_325_040 - TOWER - 1152 * 3841,
    "gemma-3-27b": 27_432_406_640 - TOWER - 1152 * 5377,
}


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_presets_have_the_published_sizes(name):
    leaves = jax.tree.leaves(gemma.shapes_of(PRESETS[name]), is_leaf=lambda x: isinstance(x, tuple))
    assert sum(int(np.prod(shape)) for shape in leaves) == PUBLISHED[name]


def test_flops_count_the_weights():
    config = PRESETS["gemma-2-2b"]
    norms = sum(int(np.prod(w.shape)) for p, w in _leaves(config) if "scale" in str(p))
    assert Gemma(config).flops_per_token() == 2 * (PUBLISHED["gemma-2-2b"] - norms)


def _leaves(config):
    tree = jax.eval_shape(lambda: gemma.init(jax.random.key(0), config, jnp.bfloat16))
    return jax.tree_util.tree_leaves_with_path(tree)


@pytest.mark.parametrize(("keys", "match"), [
    (dict(generation=4), r"generation 4 is not one of \[1, 2, 3\]"),
    (dict(vocab=97), r"vocab 97 must lie in 1\.\.embeddings \(96\)"),
    (dict(heads=3), r"heads 3 must be a multiple of kv_heads \(4\)"),
])  # fmt: skip
def test_sizes_that_cannot_be(keys, match):
    with pytest.raises(ValueError, match=match):
        replace(CONFIGS["1"], **keys)
