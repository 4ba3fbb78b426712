"""Rings hold what a query may see, whatever was appended and taken back; prompts read in chunks fill them."""

import itertools
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_gemma import CONFIGS, EXTEND, TOLERANCE, furthest, random_params, uncached

from spec_cascades import cache as kv
from spec_cascades.checks import ConfigError
from spec_cascades.config import Models
from spec_cascades.models import chunks, gemma, llama, rings, t5
from spec_cascades.models.gemma import Gemma
from spec_cascades.models.rings import Ring

STORE = jax.jit(rings.store)
PREFILL = jax.jit(Gemma.prefill, static_argnums=(0, 4, 5))


@pytest.fixture(autouse=True, scope="module")
def compiling_is_quick():
    """What is compiled here runs once."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def walk(window, width, slots, appended, steps=14):
    """Rows that append `appended` tokens a turn and go back by 0, 1, ..., `width`, each by its own pattern.

    True if at every turn each slot in a query's sight holds the very entry that the row's text has there.
    """
    backs = list(itertools.product(range(appended + 1), repeat=2))
    b, n = len(backs), np.zeros(len(backs), int)
    texts = [[] for _ in backs]
    pair = Ring(*[jnp.zeros((b, 1, slots, 1))] * 2)
    for turn in range(steps):
        new = 1.0 + turn * 1000 + np.arange(b)[:, None] * 10 + np.arange(appended)
        pair, own = STORE(pair, (jnp.asarray(new)[:, None, :, None],) * 2, jnp.asarray(n))
        held = np.asarray(rings.positions(jnp.asarray(n + appended), pair))
        for row, text in enumerate(texts):
            text[n[row] :] = new[row].tolist()
            for query in range(n[row], n[row] + appended):
                seen = (held[row] >= 0) & (held[row] <= query) & (query - held[row] < window)
                wanted = range(max(0, query - window + 1), query + 1)
                if sorted(held[row][seen]) != list(wanted):
                    return False
                if (np.asarray(own.keys)[row, 0, seen, 0] != np.asarray(text)[held[row][seen]]).any():
                    return False
            n[row] += appended - min(backs[row][turn % 2], width)
            del text[n[row] :]
    return True


@pytest.mark.parametrize(("window", "width"), [(1, 1), (3, 1), (4, 3), (2, 5)])
def test_every_rewind_across_the_wrap_is_exact(window, width):
    """The slots that are needed suffice, and with one less an entry that is still seen is lost."""
    needed = window + width - 1
    assert rings.size(window, width, 1000) == needed + 1
    for slots in (needed, needed + 1):
        assert walk(window, width, slots, width)
    if needed > width:
        assert not walk(window, width, needed - 1, width)


def test_rings_are_kept_where_they_are_smaller_only():
    assert rings.size(8, 3, 12) == 11
    assert rings.size(8, 3, 11) is None
    assert rings.size(8, None, 1000) is None


def test_a_block_longer_than_the_ring_is_refused():
    pair = Ring(*[jnp.zeros((1, 1, 3, 1))] * 2)
    with pytest.raises(ValueError, match="a block of 4 tokens does not fit a ring of 3 slots"):
        rings.store(pair, (jnp.zeros((1, 1, 4, 1)),) * 2, jnp.zeros(1, jnp.int32))


# ------------------------------------------------------------------------------------------------------------
# Gemma

B, LONG, WIDTH, ROOM = 3, 38, 4, 60
LENGTHS = np.array([LONG, 17, 1])
TAKES = [np.array(x) for x in ([0, 3, 1], [4, 0, 2], [1, 4, 3], [2, 1, 0], [3, 2, 4], [0, 0, 0])]


@pytest.fixture(scope="module", params=["2", "3"])
def model(request):
    """(LM, official parameters): local layers of window 5, a remainder of the pattern in generation 2."""
    lm = Gemma(CONFIGS[request.param], chunk=16)
    return lm, random_params(lm.config)


def tokens(t, seed=0):
    return np.random.default_rng(seed).integers(1, 90, (B, t))


def told(lm, params, width):
    """Blocks of 4 with rewinds by TAKES behind prompts of LENGTHS: their logits and texts, and the cache."""
    served = lm.serving(params)
    prompts = tokens(LONG)
    _, cache = PREFILL(lm, served, jnp.asarray(prompts), jnp.asarray(LENGTHS), ROOM, width)
    texts = [prompts[row, : n - 1].tolist() for row, n in enumerate(LENGTHS)]
    out = []
    for turn, back in enumerate(TAKES):
        block = tokens(WIDTH, 50 + turn)
        logits, cache = EXTEND(lm, served, jnp.asarray(block), cache)
        out.append((np.asarray(logits), [text + block[row].tolist() for row, text in enumerate(texts)]))
        cache = kv.rewind(cache, cache.length - jnp.asarray(back))
        texts = [whole[: len(whole) - back[row]] for row, whole in enumerate(out[-1][1])]
    return out, cache


@pytest.mark.parametrize("scan", [False, True], ids=["unrolled", "scanned"])
def test_blocks_and_rewinds_over_the_wrap_equal_the_text_without_a_cache(model, scan):
    lm, params = model
    got, cache = told(replace(lm, scan=scan), params, WIDTH)
    pairs = [*cache.layers[0], *cache.layers[1]] if scan else cache.layers
    sizes = {type(pair): pair[0].shape[-2] for pair in pairs}
    assert sizes == {Ring: 5 + WIDTH, tuple: ROOM}
    texts = np.zeros((len(got), B, ROOM), int)
    for i, (_, rows) in enumerate(got):
        for row, text in enumerate(rows):
            texts[i, row, : len(text)] = text
    expected = uncached(lm, params, jnp.asarray(texts.reshape(-1, ROOM))).reshape(*texts.shape, -1)
    for i, (logits, rows) in enumerate(got):
        for row, text in enumerate(rows):
            assert furthest(logits[row], expected[i, row, len(text) - WIDTH : len(text)]) < TOLERANCE


def test_prompts_in_chunks_leave_the_cache_of_one_piece(model):
    """38 tokens as 13, 13 and 12, of which a ring holds 9; whole caches, too."""
    lm, params = model
    for scan, width in ((False, WIDTH), (True, WIDTH), (False, None)):
        pieces, whole = (replace(lm, scan=scan, chunk=chunk) for chunk in (16, 64))
        served, args = pieces.serving(params), (jnp.asarray(tokens(LONG)), jnp.asarray(LENGTHS), ROOM, width)
        (last, cache), (expected, one) = PREFILL(pieces, served, *args), PREFILL(whole, served, *args)
        np.testing.assert_array_equal(last, expected)
        np.testing.assert_array_equal(cache.length, LENGTHS - 1)
        for pair, other in zip(*map(flat, (cache.layers, one.layers)), strict=True):
            for row, n in enumerate(LENGTHS - 1):
                there = slice(None) if isinstance(pair, Ring) else slice(n)
                for x, y in zip(pair, other, strict=True):
                    np.testing.assert_allclose(x[row][..., there, :], y[row][..., there, :], atol=1e-5)


def is_pair(x):
    return isinstance(x, tuple) and bool(x) and not isinstance(x[0], tuple)


def flat(layers):
    """The pairs of a cache, scanned or not."""
    return jax.tree.leaves(layers, is_leaf=is_pair)


# ------------------------------------------------------------------------------------------------------------
# Memory and shapes


def cache_bytes(lm, capacity, width, s=32):
    """Bytes of the layers' caches, from shapes alone: (local layers, global layers)."""
    params = jax.eval_shape(lambda: lm.serving(gemma.init(jax.random.key(0), lm.config)))
    prompts = jax.ShapeDtypeStruct((1, s), jnp.int32)
    lengths = jax.ShapeDtypeStruct((1,), jnp.int32)
    layers = jax.eval_shape(partial(lm.prefill, capacity=capacity, width=width), params, prompts, lengths)[1]
    size = lambda pair: sum(x.size * x.dtype.itemsize for x in pair)
    return [
        sum(size(pair) for i, pair in enumerate(layers.layers) if lm.config.local(i) == local)
        for local in (True, False)
    ]


def test_local_layers_do_not_grow_with_the_context():
    lm = Gemma(CONFIGS["3"], cache_dtype=jnp.bfloat16)
    short, long = (cache_bytes(lm, capacity, WIDTH) for capacity in (100, 10_000))
    a_slot = 2 * 2 * 12 * 2
    assert short[0] == long[0] == 2 * (5 + WIDTH) * a_slot
    assert long[1] == 100 * short[1] == 2 * 10_000 * a_slot
    assert cache_bytes(lm, 10_000, None)[0] == long[1]


@pytest.mark.parametrize(("s", "chunk", "expected"), [
    (32, 512, (1, 32)), (512, 512, (1, 512)), (513, 512, (2, 257)), (1000, 300, (4, 250)), (7, 1, (7, 1)),
])  # fmt: skip
def test_chunks_are_few_and_equally_long(s, chunk, expected):
    assert chunks.split(s, chunk) == expected


def test_a_llamas_prompts_in_chunks_leave_the_cache_of_one_piece():
    """38 tokens as 13, 13 and 12, in a cache that has no room for the padding of the last."""
    lm = llama.Llama(llama.Config(90, 96, 32, 48, 2, 4, 2, 8))
    params = llama.init(jax.random.key(0), lm.config)
    prompts, lengths = jnp.asarray(tokens(LONG)), jnp.asarray(LENGTHS)
    fill = jax.jit(llama.Llama.prefill, static_argnums=(0, 4))
    read = lambda chunk: fill(replace(lm, chunk=chunk), params, prompts, lengths, LONG)
    (last, cache), (expected, one) = read(16), read(LONG)
    np.testing.assert_array_equal(last, expected)
    np.testing.assert_array_equal(cache.length, LENGTHS - 1)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5), cache.layers, one.layers)
    assert {x.shape for x in jax.tree.leaves(cache.layers)} == {(B, 2, LONG, 8)}


def test_a_chunk_is_asked_for_by_whom_it_serves():
    assert chunks.of(Gemma(CONFIGS["3"]), None).chunk == chunks.CHUNK
    assert chunks.of(Gemma(CONFIGS["3"]), 64).chunk == 64
    with pytest.raises(ValueError, match="T5 reads a prompt at once: prefill_chunk 64 must be null"):
        chunks.of(t5.T5(t5.Config()), 64)
    with pytest.raises(ValueError, match="prefill_chunk 0 must be at least 1 token"):
        chunks.of(Gemma(CONFIGS["3"]), 0)
    with pytest.raises(ConfigError, match="prefill_chunk"):
        Models(prefill_chunk=0)
