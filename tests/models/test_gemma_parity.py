"""Our Gemmas against transformers' on random twins, float32: every generation, short texts and long ones."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_cascades import checkpoints
from spec_cascades.models import gemma

TOLERANCE = 1e-5
VOCAB, WINDOW = 96, 5

PREFILL = jax.jit(gemma.Gemma.prefill, static_argnums=(0, 4))
EXTEND = jax.jit(gemma.Gemma.extend, static_argnums=0)
FORWARD = jax.jit(gemma.forward, static_argnums=1)

SIZES = dict(
    vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_attention_heads=4, head_dim=12, pad_token_id=0
)
LATER = SIZES | dict(sliding_window=WINDOW, query_pre_attn_scalar=20, num_key_value_heads=2)
LOCAL, GLOBAL = "sliding_attention", "full_attention"
STRETCHED = {
    GLOBAL: dict(rope_type="linear", factor=8.0, rope_theta=1e6),
    LOCAL: dict(rope_type="default", rope_theta=1e4),
}
THREE = LATER | dict(rope_parameters=STRETCHED)
VARIANTS = {
    "1, one key head": ("Gemma", SIZES | dict(num_hidden_layers=2, num_key_value_heads=1)),
    "1, a key head each": ("Gemma", SIZES | dict(num_hidden_layers=2, num_key_value_heads=4)),
    "2": (
        "Gemma2",
        LATER | dict(num_hidden_layers=3, attn_logit_softcapping=2.0, final_logit_softcapping=1.5),
    ),
    "3": ("Gemma3Text", THREE | dict(num_hidden_layers=5, layer_types=[LOCAL, LOCAL, GLOBAL, LOCAL, LOCAL])),
    "3, five to one": ("Gemma3Text", LATER | dict(num_hidden_layers=7)),
    "3 that sees": ("Gemma3", THREE | dict(num_hidden_layers=2, layer_types=[LOCAL, GLOBAL])),
}


@pytest.fixture(scope="module", params=sorted(VARIANTS))
def twins(request, torch, transformers, tmp_path_factory):
    """transformers' model and ours, loaded from the folder that transformers wrote."""
    torch.manual_seed(sorted(VARIANTS).index(request.param))
    theirs = build(transformers, *VARIANTS[request.param]).eval()
    spread(torch, theirs)
    folder = tmp_path_factory.mktemp("twin")
    theirs.save_pretrained(folder)
    return theirs, checkpoints.load(str(folder), "float32")


def build(transformers, kind, keys):
    eager = dict(attn_implementation="eager")
    if kind != "Gemma3":
        name = {"Gemma3Text": "Gemma3"}.get(kind, kind)
        config = getattr(transformers, f"{kind}Config")(**keys | eager)
        return getattr(transformers, f"{name}ForCausalLM")(config)
    eye = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
    eye |= dict(image_size=28, patch_size=14)
    config = transformers.Gemma3Config(text_config=keys, vision_config=eye, mm_tokens_per_image=4, **eager)
    return transformers.Gemma3ForConditionalGeneration(config)


def spread(torch, model):
    """Weights of a size that makes every part matter and float32's own error stay far below TOLERANCE."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_((0.2 if "norm" in name else p.shape[-1] ** -0.5) * torch.randn_like(p))


def text(rows, t, seed=0):
    return np.random.default_rng(seed).integers(3, VOCAB, (rows, t))


def their_logits(torch, model, tokens):
    with torch.no_grad():
        return model(input_ids=torch.tensor(tokens)).logits.numpy()


def our_logits(lm, params, tokens, lengths, blocks, capacity):
    """Logits from each row's last prompt token on: prompts of `lengths`, then blocks of what follows."""
    lengths, rows = np.asarray(lengths), np.arange(len(tokens))[:, None]
    last, cache = PREFILL(lm, params, jnp.array(tokens[:, : lengths.max()]), jnp.array(lengths), capacity)
    np.testing.assert_array_equal(last, tokens[rows[:, 0], lengths - 1])
    out, at = [], lengths[:, None] - 1
    for n in blocks:
        logits, cache = EXTEND(lm, params, jnp.array(tokens[rows, at + np.arange(n)]), cache)
        out.append(logits)
        at = at + n
    return np.concatenate(out, axis=1)


def uncached(loaded, tokens):
    return np.asarray(FORWARD(loaded.params, loaded.config, jnp.array(tokens), jnp.ones(tokens.shape, int)))


def furthest(a, b):
    return float(np.max(np.abs(np.asarray(a) - np.asarray(b))))


@pytest.mark.parity
@pytest.mark.parametrize("t", [3, 6 * WINDOW])
def test_uncached_logits_equal_transformers(twins, torch, t):
    theirs, ours = twins
    tokens = text(2, t)
    expected = their_logits(torch, theirs, tokens)
    assert np.std(expected) > 0.1, "logits this small would pass any tolerance"
    assert furthest(uncached(ours, tokens), expected) < TOLERANCE


@pytest.mark.parity
def test_blocks_after_uneven_prompts_equal_transformers(twins, torch):
    """Several windows long, with the window's edge inside a prompt, at its end and inside a block."""
    theirs, ours = twins
    lengths, blocks = np.array([6 * WINDOW, WINDOW, 1]), [1, 7, 1, 7]
    tokens = text(3, 7 * WINDOW + sum(blocks), seed=1)
    at = lengths[:, None] - 1 + np.arange(sum(blocks))
    expected = their_logits(torch, theirs, tokens)[np.arange(3)[:, None], at]
    served = ours.lm.serving(ours.params)
    assert furthest(our_logits(ours.lm, served, tokens, lengths, blocks, 60), expected) < TOLERANCE


@pytest.mark.parity
def test_saved_folder_is_read_by_transformers(twins, torch, transformers, tmp_path):
    """A model that sees is saved as one that reads only."""
    theirs, ours = twins
    checkpoints.save(tmp_path, ours.config, ours.params, "float32")
    kind = getattr(transformers, json.loads((tmp_path / "config.json").read_text())["architectures"][0])
    reread, info = kind.from_pretrained(tmp_path, attn_implementation="eager", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    tokens = text(2, 4 * WINDOW)
    np.testing.assert_array_equal(
        their_logits(torch, reread.eval(), tokens), their_logits(torch, theirs, tokens)
    )
    assert checkpoints.load(str(tmp_path), "float32").config == ours.config
