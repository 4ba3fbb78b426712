"""Our T5 against transformers' on random twins in float32, and block against step against uncached."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_cascades import checkpoints
from spec_cascades.models import t5

TOLERANCE = 1e-5
LENGTHS = [9, 4, 1]
VOCAB = 96
CAPACITY = 13

PREFILL = jax.jit(t5.T5.prefill, static_argnums=(0, 4))
EXTEND = jax.jit(t5.T5.extend, static_argnums=0)
FORWARD = jax.jit(t5.forward, static_argnums=1)
ENCODE = jax.jit(t5.encode, static_argnums=1)


VARIANTS = {
    "1.0": dict(feed_forward_proj="relu", tie_word_embeddings=True),
    "1.1": dict(feed_forward_proj="gated-gelu", tie_word_embeddings=False),
    "1.1-near": dict(
        feed_forward_proj="gated-gelu",
        tie_word_embeddings=False,
        relative_attention_max_distance=20,
        relative_attention_num_buckets=8,
    ),
    "1.0-uneven": dict(
        feed_forward_proj="relu", tie_word_embeddings=True, num_layers=1, num_decoder_layers=3
    ),
}


@pytest.fixture(scope="module", params=sorted(VARIANTS))
def twins(request, torch, transformers, tmp_path_factory):
    """transformers' model and ours, loaded from the folder that transformers wrote."""
    torch.manual_seed(sorted(VARIANTS).index(request.param))
    sizes = dict(vocab_size=VOCAB, d_model=32, d_kv=12, d_ff=48, num_layers=2, num_heads=4, dropout_rate=0.0)
    config = transformers.T5Config(
        **(sizes | dict(pad_token_id=0, eos_token_id=1, decoder_start_token_id=0) | VARIANTS[request.param])
    )
    theirs = transformers.T5ForConditionalGeneration(config).eval()
    spread(torch, theirs, own_head=not VARIANTS[request.param]["tie_word_embeddings"])
    folder = tmp_path_factory.mktemp("twin")
    theirs.save_pretrained(folder)
    return theirs, checkpoints.load(str(folder), "float32")


def spread(torch, model, own_head):
    """Weights of a size that makes every part matter and float32's own error stay far below TOLERANCE.

    transformers 5 ties the head unless it is replaced.
    """
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(
                1 + 0.2 * torch.randn_like(p)
                if "layer_norm" in name
                else scale(name, p) * torch.randn_like(p)
            )
        if own_head:
            head = model.lm_head.weight
            model.lm_head.weight = torch.nn.Parameter(head.shape[1] ** -0.5 * torch.randn_like(head))


def scale(name, p):
    if "shared" in name:
        return 0.3  # a table of scale 1 drowns the blocks, and greedy text repeats one token
    if "relative_attention_bias" in name:
        return 1.0
    return p.shape[1] ** -0.5 * (12**-0.5 if name.endswith("Attention.q.weight") else 1.0)


def prompts(width=9, seed=0):
    """Right-padded prompts of LENGTHS, [b, width]; what lies in the padding must not matter."""
    tokens = np.random.default_rng(seed).integers(2, VOCAB, (len(LENGTHS), width))
    for row, length in zip(tokens, LENGTHS, strict=True):
        row[length:] = 0
    return tokens


def decoder_tokens(t, seed=1):
    """Decoder inputs: the start symbol, then random ids."""
    tokens = np.random.default_rng(seed).integers(2, VOCAB, (len(LENGTHS), t))
    tokens[:, 0] = 0
    return tokens


def their_logits(torch, model, tokens, decoder):
    mask = np.arange(tokens.shape[1]) < np.array(LENGTHS)[:, None]
    with torch.no_grad():
        out = model(
            input_ids=torch.tensor(tokens),
            attention_mask=torch.tensor(mask.astype(np.int64)),
            decoder_input_ids=torch.tensor(decoder),
        )
    return out.encoder_last_hidden_state.numpy(), out.logits.numpy()


def our_logits(loaded, tokens, decoder, blocks, capacity):
    """Logits of the decoder's tokens read in blocks of the given lengths."""
    last, cache = PREFILL(loaded.lm, loaded.params, jnp.array(tokens), jnp.array(LENGTHS), capacity)
    np.testing.assert_array_equal(last, decoder[:, 0])
    out, at = [], 0
    for n in blocks:
        logits, cache = EXTEND(loaded.lm, loaded.params, jnp.array(decoder[:, at : at + n]), cache)
        out.append(logits)
        at += n
    return np.concatenate(out, axis=1)


def uncached(loaded, tokens, decoder):
    """`t5.forward` on the same tokens."""
    segments = (np.arange(tokens.shape[1]) < np.array(LENGTHS)[:, None]).astype(np.int32)
    ones = np.ones_like(decoder)
    batch = t5.Batch(*map(jnp.array, (tokens, decoder, segments, ones, decoder)))
    return np.asarray(FORWARD(loaded.params, loaded.config, batch))


def furthest(a, b):
    return float(np.max(np.abs(np.asarray(a) - np.asarray(b))))


@pytest.mark.parity
@pytest.mark.parametrize("width", [9, 13])
def test_encoder_equals_transformers(twins, torch, width):
    theirs, ours = twins
    tokens = prompts(width)
    expected, _ = their_logits(torch, theirs, tokens, decoder_tokens(1))
    mask = jnp.arange(width) < jnp.array(LENGTHS)[:, None]
    got = ENCODE(ours.params, ours.config, jnp.array(tokens), mask[:, None])
    real = np.asarray(mask)
    assert furthest(np.asarray(got)[real], expected[real]) < TOLERANCE


@pytest.mark.parity
@pytest.mark.parametrize(("t", "capacity"), [(7, 7), (70, 83)])
def test_decoder_logits_equal_transformers(twins, torch, t, capacity):
    theirs, ours = twins
    tokens, decoder = prompts(), decoder_tokens(t)
    _, expected = their_logits(torch, theirs, tokens, decoder)
    assert np.std(expected) > 0.1, "logits this small would pass any tolerance"
    assert furthest(our_logits(ours, tokens, decoder, [t], capacity), expected) < TOLERANCE


@pytest.mark.parity
def test_long_prompts_reach_the_far_buckets(twins, torch):
    theirs, ours = twins
    tokens = np.random.default_rng(3).integers(2, VOCAB, (1, 150))
    decoder = decoder_tokens(140)[:1]
    with torch.no_grad():
        expected = theirs(
            input_ids=torch.tensor(tokens), decoder_input_ids=torch.tensor(decoder)
        ).logits.numpy()
    _, cache = PREFILL(ours.lm, ours.params, jnp.array(tokens), jnp.array([150]), 140)
    got, _ = EXTEND(ours.lm, ours.params, jnp.array(decoder), cache)
    assert furthest(got, expected) < TOLERANCE


@pytest.mark.parity
def test_block_equals_single_steps_equals_uncached(twins):
    _, ours = twins
    tokens, decoder = prompts(), decoder_tokens(12)
    block = our_logits(ours, tokens, decoder, [12], CAPACITY)
    assert furthest(our_logits(ours, tokens, decoder, [1] * 12, CAPACITY), block) < TOLERANCE
    assert furthest(our_logits(ours, tokens, decoder, [5, 1, 5, 1], CAPACITY), block) < TOLERANCE
    assert furthest(uncached(ours, tokens, decoder), block) < TOLERANCE


@pytest.mark.parity
def test_padding_tokens_and_neighbours_do_not_matter(twins):
    _, ours = twins
    tokens, decoder = prompts(13), decoder_tokens(7)
    expected = our_logits(ours, tokens, decoder, [7], 7)
    tokens[np.arange(13) >= np.array(LENGTHS)[:, None]] = 77
    np.testing.assert_array_equal(our_logits(ours, tokens, decoder, [7], 7), expected)


@pytest.mark.parity
def test_greedy_tokens_equal_transformers(twins, torch):
    theirs, ours = twins
    tokens, steps = prompts(), CAPACITY - 1
    mask = torch.tensor((tokens != 0).astype(np.int64))
    with torch.no_grad():
        expected = theirs.generate(
            torch.tensor(tokens),
            attention_mask=mask,
            max_new_tokens=steps,
            do_sample=False,
            use_cache=False,  # their cache has no slots for a decoder deeper than its encoder
        ).numpy()
    last, cache = PREFILL(ours.lm, ours.params, jnp.array(tokens), jnp.array(LENGTHS), CAPACITY)
    got, done = [np.asarray(last)], np.zeros(len(LENGTHS), bool)
    while len(got) < expected.shape[1]:
        logits, cache = EXTEND(ours.lm, ours.params, last[:, None], cache)
        last = jnp.where(done, 0, logits[:, 0].argmax(-1)).astype(jnp.int32)
        done |= np.asarray(last) == 1
        got.append(np.asarray(last))
    np.testing.assert_array_equal(np.stack(got, 1), expected)
    assert len(np.unique(expected)) > 4, "constant text would be equal by accident"


@pytest.mark.parity
def test_saved_folder_is_read_by_transformers(twins, torch, transformers, tmp_path):
    theirs, ours = twins
    checkpoints.save(tmp_path, ours.config, ours.params, "float32")
    reread, info = transformers.T5ForConditionalGeneration.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    tokens, decoder = prompts(), decoder_tokens(11)
    _, expected = their_logits(torch, theirs, tokens, decoder)
    _, got = their_logits(torch, reread.eval(), tokens, decoder)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parity
def test_saved_bfloat16_is_read_by_transformers(twins, torch, transformers, tmp_path):
    _, ours = twins
    checkpoints.save(tmp_path, ours.config, ours.params, "bfloat16")
    reread = transformers.T5ForConditionalGeneration.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert {p.dtype for p in reread.parameters()} == {torch.bfloat16}
    rounded = checkpoints.load(str(tmp_path), "float32")
    tokens, decoder = prompts(), decoder_tokens(11)
    _, expected = their_logits(torch, reread.float().eval(), tokens, decoder)
    assert furthest(our_logits(rounded, tokens, decoder, [11], 11), expected) < TOLERANCE


PUBLISHED = {
    "t5-small": 60_506_624,
    "t5-base": 222_903_552,
    "t5-large": 737_668_096,
    "t5-v1_1-small": 76_961_152,
    "t5-v1_1-base": 247_577_856,
    "t5-v1_1-large": 783_150_080,
    "t5-v1_1-xl": 2_849_757_184,
    "t5-v1_1-xxl": 11_135_332_352,
}


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_presets_have_the_published_sizes(name):
    shapes = jax.tree.leaves(t5.shapes_of(t5.PRESETS[name]), is_leaf=lambda x: isinstance(x, tuple))
    assert sum(int(np.prod(shape)) for shape in shapes) == PUBLISHED[name]


def test_flan_has_the_sizes_of_v1_1():
    for size in ("small", "base", "large", "xl", "xxl"):
        assert t5.PRESETS[f"flan-t5-{size}"] == t5.PRESETS[f"t5-v1_1-{size}"]


def test_ids_beyond_the_tokenizer_are_never_likely():
    config = t5.Config(
        vocab=90, embeddings=96, d_model=16, d_kv=4, d_ff=32, heads=2, encoder_layers=1, decoder_layers=1
    )
    params = jax.jit(t5.init, static_argnums=1)(jax.random.key(0), config)
    loaded = checkpoints.Loaded(t5.T5(config), params, None, config, "random")
    logits = our_logits(loaded, prompts() % 90, decoder_tokens(5) % 90, [5], 5)
    assert np.isneginf(logits[..., 90:]).all()
    assert np.isfinite(logits[..., :90]).all()
