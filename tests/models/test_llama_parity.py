"""Our llama family against transformers' on random twins in float32, and blocks against steps."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_cascades import cache as kv
from spec_cascades import checkpoints
from spec_cascades.models import llama

TOLERANCE = 1e-5
LENGTHS = [9, 4, 1]
VOCAB = 96

PREFILL = jax.jit(llama.Llama.prefill, static_argnums=(0, 4))
EXTEND = jax.jit(llama.Llama.extend, static_argnums=0)
FORWARD = jax.jit(llama.forward, static_argnums=1)

LLAMA3 = dict(
    rope_type="llama3",
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=64,
    rope_theta=1024.0,
)
# Powers of two: torch's own powers are exact for these, and an angle's error grows with the position.
VARIANTS = {
    "tied": dict(tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=4096.0)),
    "untied-heads": dict(num_key_value_heads=4, rope_parameters=dict(rope_type="default", rope_theta=1024.0)),
    "untied-one-key": dict(num_key_value_heads=1, head_dim=16, rope_parameters=LLAMA3),
    "tied-linear": dict(
        tie_word_embeddings=True,
        rope_parameters=dict(rope_type="linear", factor=4.0, rope_theta=64.0),
    ),
}
OLD = {"untied-heads", "untied-one-key", "tied-linear"}
"""Variants whose config.json is rewritten as transformers wrote it before version 5."""


@pytest.fixture(scope="module", params=sorted(VARIANTS))
def twins(request, torch, transformers, tmp_path_factory):
    """transformers' model and ours, loaded from the folder that transformers wrote."""
    torch.manual_seed(sorted(VARIANTS).index(request.param))
    sizes = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=3)
    heads = dict(num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5)
    ids = dict(bos_token_id=1, eos_token_id=[2, 3], pad_token_id=None)
    config = transformers.LlamaConfig(
        **(sizes | heads | ids | VARIANTS[request.param]), attn_implementation="eager"
    )
    theirs = transformers.LlamaForCausalLM(config).eval()
    spread(torch, theirs)
    folder = tmp_path_factory.mktemp("twin")
    theirs.save_pretrained(folder)
    if request.param in OLD:
        as_before_version_5(folder)
    return theirs, checkpoints.load(str(folder), "float32")


def spread(torch, model):
    """Weights of a size that makes every part matter and float32's own error stay far below TOLERANCE."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "norm" in name:
                p.copy_(1 + 0.2 * torch.randn_like(p))
            else:
                p.copy_(scale(name, p) * torch.randn_like(p))


def scale(name, p):
    return 0.1 if "embed" in name or "lm_head" in name else p.shape[1] ** -0.5


def as_before_version_5(folder):
    """Moves `rope_parameters` to `rope_theta` and `rope_scaling`; drops head_dim where it can be derived."""
    file = folder / "config.json"
    settings = json.loads(file.read_text())
    given = settings.pop("rope_parameters")
    settings["rope_theta"] = given.pop("rope_theta")
    settings["rope_scaling"] = None if given["rope_type"] == "default" else given
    if given["rope_type"] == "linear":
        given["type"] = given.pop("rope_type")
    if settings["head_dim"] * settings["num_attention_heads"] == settings["hidden_size"]:
        del settings["head_dim"]
    file.write_text(json.dumps(settings))


def prompts(width=9, seed=0):
    """Right-padded prompts of LENGTHS, [b, width]."""
    tokens = np.random.default_rng(seed).integers(4, VOCAB, (len(LENGTHS), width))
    return np.where(np.arange(width) < np.array(LENGTHS)[:, None], tokens, 0)


def answers(t, seed=1):
    """What follows the prompts, [b, t]."""
    return np.random.default_rng(seed).integers(4, VOCAB, (len(LENGTHS), t))


def their_logits(torch, model, tokens):
    with torch.no_grad():
        return model(torch.tensor(tokens)).logits.numpy()


def rowwise(logits_of, tokens, after):
    """Logits at the prompt's last token and at those of `after`, each row computed alone: [b, 1 + t, v]."""
    rows = []
    for row, length, rest in zip(tokens, LENGTHS, after, strict=True):
        rows.append(logits_of(np.concatenate([row[:length], rest])[None])[0, length - 1 :])
    return np.stack(rows)


def our_logits(loaded, tokens, after, blocks, capacity):
    """The same of the batch as a whole, in blocks; the first begins with the prompt's last token."""
    last, cache = PREFILL(loaded.lm, loaded.params, jnp.array(tokens), jnp.array(LENGTHS), capacity)
    np.testing.assert_array_equal(last, tokens[np.arange(len(LENGTHS)), np.array(LENGTHS) - 1])
    np.testing.assert_array_equal(cache.length, np.array(LENGTHS) - 1)
    todo, out, at = np.concatenate([np.asarray(last)[:, None], after], axis=1), [], 0
    for n in blocks:
        logits, cache = EXTEND(loaded.lm, loaded.params, jnp.array(todo[:, at : at + n]), cache)
        out.append(logits)
        at += n
    return np.concatenate(out, axis=1)


def uncached(loaded, tokens):
    return np.asarray(
        FORWARD(loaded.params, loaded.config, jnp.array(tokens), jnp.ones(tokens.shape, jnp.int32))
    )


def furthest(a, b):
    return float(np.max(np.abs(np.asarray(a) - np.asarray(b))))


@pytest.mark.parity
@pytest.mark.parametrize(("t", "capacity"), [(6, 15), (150, 170)])
def test_logits_equal_transformers(twins, torch, t, capacity):
    theirs, ours = twins
    tokens, after = prompts(), answers(t)
    expected = rowwise(lambda x: their_logits(torch, theirs, x), tokens, after)
    assert np.std(expected) > 0.1, "logits this small would pass any tolerance"
    assert furthest(our_logits(ours, tokens, after, [1 + t], capacity), expected) < TOLERANCE


@pytest.mark.parity
def test_long_prompts_equal_transformers(twins, torch):
    theirs, ours = twins
    tokens = np.random.default_rng(3).integers(4, VOCAB, (1, 330))
    expected = their_logits(torch, theirs, tokens)
    assert furthest(uncached(ours, tokens), expected) < TOLERANCE
    _, cache = PREFILL(ours.lm, ours.params, jnp.array(tokens[:, :320]), jnp.array([320]), 340)
    got, _ = EXTEND(ours.lm, ours.params, jnp.array(tokens[:, 319:]), cache)
    assert furthest(got, expected[:, 319:]) < TOLERANCE


@pytest.mark.parity
def test_block_equals_single_steps_equals_uncached(twins):
    _, ours = twins
    tokens, after = prompts(), answers(11)
    block = our_logits(ours, tokens, after, [12], 20)
    assert furthest(our_logits(ours, tokens, after, [1] * 12, 20), block) < TOLERANCE
    assert furthest(our_logits(ours, tokens, after, [5, 1, 5, 1], 20), block) < TOLERANCE
    assert furthest(rowwise(lambda x: uncached(ours, x), tokens, after), block) < TOLERANCE


@pytest.mark.parity
def test_rewind_then_extend_equals_fresh(twins):
    _, ours = twins
    tokens, after, wrong = prompts(), answers(8), answers(5, seed=7)
    fresh = our_logits(ours, tokens, after, [4, 5], 20)
    last, cache = PREFILL(ours.lm, ours.params, jnp.array(tokens), jnp.array(LENGTHS), 20)
    todo = np.concatenate([np.asarray(last)[:, None], after], axis=1)
    _, cache = EXTEND(ours.lm, ours.params, jnp.array(todo[:, :4]), cache)
    kept = cache.length - jnp.array([0, 2, 3])
    _, cache = EXTEND(ours.lm, ours.params, jnp.array(wrong), cache)
    cache = kv.rewind(cache, kept)
    # Row b goes on from where it was cut, so that the rows' lengths differ by more than their prompts'.
    again = np.stack([row[4 - cut : 9 - cut] for row, cut in zip(todo, [0, 2, 3], strict=True)])
    got, _ = EXTEND(ours.lm, ours.params, jnp.array(again), cache)
    expected = np.stack([row[4 - cut : 9 - cut] for row, cut in zip(fresh, [0, 2, 3], strict=True)])
    assert furthest(got, expected) < TOLERANCE


@pytest.mark.parity
def test_padding_tokens_do_not_matter(twins):
    _, ours = twins
    tokens, after = prompts(13), answers(6)
    expected = our_logits(ours, tokens, after, [7], 20)
    tokens[np.arange(13) >= np.array(LENGTHS)[:, None]] = 77
    np.testing.assert_array_equal(our_logits(ours, tokens, after, [7], 20), expected)


@pytest.mark.parity
def test_packed_texts_do_not_see_each_other(twins):
    _, ours = twins
    a, b = answers(7)[:1], answers(5)[1:2]
    packed = jnp.array(np.concatenate([a, b, np.zeros((1, 2), int)], axis=1))
    segments = jnp.array([[1] * 7 + [2] * 5 + [0] * 2])
    got = FORWARD(ours.params, ours.config, packed, segments)
    assert furthest(got[:, :7], uncached(ours, a)) < TOLERANCE
    assert furthest(got[:, 7:12], uncached(ours, b)) < TOLERANCE


@pytest.mark.parity
def test_saved_folder_is_read_by_transformers(twins, torch, transformers, tmp_path):
    theirs, ours = twins
    checkpoints.save(tmp_path, ours.config, ours.params, "float32")
    assert checkpoints.load(str(tmp_path), "float32").config == ours.config
    reread, info = transformers.LlamaForCausalLM.from_pretrained(
        tmp_path, attn_implementation="eager", output_loading_info=True
    )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    tokens = np.random.default_rng(3).integers(4, VOCAB, (1, 90))
    expected = their_logits(torch, theirs, tokens)
    assert furthest(their_logits(torch, reread.eval(), tokens), expected) < 1e-6


TINY = dict(d_model=16, d_ff=32, layers=2, heads=4, kv_heads=2, head_dim=4)
PUBLISHED = {
    "smollm2-135m": 134_515_008,
    "smollm2-360m": 361_821_120,
    "smollm2-1.7b": 1_711_376_384,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "tinyllama-1.1b": 1_100_048_384,
}


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_presets_have_the_published_sizes(name):
    shapes = jax.tree.leaves(llama.shapes_of(llama.PRESETS[name]), is_leaf=lambda x: isinstance(x, tuple))
    assert sum(int(np.prod(shape)) for shape in shapes) == PUBLISHED[name]


def random(**sizes):
    config = llama.Config(**TINY | dict(vocab=90, embeddings=96) | sizes)
    return checkpoints.Loaded(llama.Llama(config), llama.init(jax.random.key(0), config), None, config, "")


def test_ids_beyond_the_tokenizer_are_never_likely():
    logits = our_logits(random(), prompts() % 90, answers(4) % 90, [5], 14)
    assert np.isneginf(logits[..., 90:]).all()
    assert np.isfinite(logits[..., :90]).all()


def test_no_weights_are_widened_or_copied_in_bfloat16():
    """A loop of steps over a tied model needs less room than one float32 or transposed copy of its table."""
    config = llama.Config(**TINY | dict(vocab=4000, embeddings=4000))
    lm = llama.Llama(config)
    params = jax.tree.map(lambda x: x.astype(jnp.bfloat16), llama.init(jax.random.key(0), config))

    def steps(params, cache, tokens):
        def step(_, carry):
            cache, tokens = carry
            logits, cache = lm.extend(params, tokens, cache)
            return cache, logits.argmax(-1).astype(jnp.int32)

        return jax.lax.fori_loop(0, 4, step, (cache, tokens))

    for t in (1, 5):
        cache = jax.eval_shape(lambda: kv.empty(2, 1, 24, 2, 4, jnp.float32))
        tokens = jax.ShapeDtypeStruct((1, t), jnp.int32)
        memory = jax.jit(steps, donate_argnums=1).lower(params, cache, tokens).compile().memory_analysis()
        logits = t * 4000 * 4
        assert memory.temp_size_in_bytes < 3 * logits + 4000 * 16 * 2


@pytest.mark.parametrize(("sizes", "match"), [
    (dict(vocab=97), r"vocab 97 must lie in 1\.\.embeddings \(96\)"),
    (dict(kv_heads=3), "heads 4 must be a multiple of kv_heads 3"),
    (dict(head_dim=5), "head_dim 5 must be even"),
])  # fmt: skip
def test_impossible_sizes(sizes, match):
    with pytest.raises(ValueError, match=match):
        llama.Config(**TINY | dict(vocab=90, embeddings=96) | sizes)
