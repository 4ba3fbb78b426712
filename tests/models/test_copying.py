"""A model that copies: its mixture, its text through rewinds, and that drafting with it stays exact."""

import itertools

import jax
import jax.numpy as jnp
import laws
import numpy as np
import pytest
import tiny
from laws import Setting

from spec_cascades import cache as kv
from spec_cascades.decode.loop import generate
from spec_cascades.decode.speculative import Speculative
from spec_cascades.models.copying import Copying
from spec_cascades.probs import Pair
from spec_cascades.rules import RULES

TRUST = (0.2, 0.5, 0.9)
REPETITIVE = (1, 3, 2, 1, 3)
ROWS = 20_000


def found(text):
    """The token behind the newest earlier occurrence of the longest suffix, and the suffix's length."""
    for n in range(min(len(TRUST), len(text) - 1), 0, -1):
        for end in range(len(text) - 1, n - 1, -1):
            if text[end - n : end] == text[-n:]:
                return text[end], n
    return 0, 0


def mixture(law, texts):
    """The law [n, v] after each text, with its share for a copy."""
    law = np.array(law)
    for row, text in zip(law, texts, strict=True):
        token, n = found(list(text))
        w = TRUST[n - 1] if n else 0.0
        row *= 1 - w
        row[token] += w
    return law


def soft(logits):
    return np.asarray(jax.nn.softmax(jnp.asarray(logits, jnp.float32), -1))


@pytest.mark.parametrize("family", ["markov", "llama", "t5"])
def test_q_is_the_models_own_and_a_share_for_what_the_text_repeats(family):
    """In one block, token by token, and again after a rewind; an encoder's source is text, too."""
    model, rows = tiny.FAMILIES[family], range(4)
    lm, params = model.drafter, model.params["drafter"]
    both = Copying(lm, TRUST)
    vocab = min(lm.vocab, 40)
    rng = np.random.default_rng(1)
    after = rng.integers(2, 5 if family == "markov" else 7, (4, 8))
    prompts = np.where(np.asarray(model.prompts) > 1, np.asarray(model.prompts) % 5 + 2, model.prompts)
    prompts = np.minimum(prompts, vocab - 1)
    read = lambda lm: lm.prefill(params, jnp.asarray(prompts), model.lengths, 24)
    (last, own), (_, cache) = read(lm), read(both)
    block = jnp.asarray(np.concatenate([np.asarray(last)[:, None], after], 1), jnp.int32)
    plain, _ = lm.extend(params, block, own)
    logits, end = both.extend(params, block, cache)
    hits = set()
    for row in rows:
        n = int(model.lengths[row])
        begin = [*prompts[row, :n]] if both.encodes else [*prompts[row, : n - 1]]
        texts = [[int(x) for x in (*begin, *block[row, : i + 1])] for i in range(9)]
        hits |= {found(text)[1] for text in texts}
        np.testing.assert_allclose(soft(logits[row]), mixture(soft(plain[row]), texts), atol=2e-6)
    assert hits == {0, 1, 2, 3} or family == "markov"
    one, again = [], kv.rewind(end, cache.length)
    for i in range(9):
        step, again = both.extend(params, block[:, i : i + 1], again)
        one.append(step[:, 0])
    np.testing.assert_allclose(soft(jnp.stack(one, 1)), soft(logits), atol=2e-6)


def path_law(rule, setting, n):
    """The law of the first n tokens after REPETITIVE: q, and so pi, depends on the whole path."""
    v = laws.VOCAB
    pairs = laws.pairs(setting)
    assert setting.temperature == 1, "the mixture is of laws at temperature 1"
    law = np.ones(())
    for i in range(n):
        paths = [list(REPETITIVE) + list(path) for path in itertools.product(range(v), repeat=i)]
        at = np.asarray([np.ravel_multi_index(path[-3:], (v, v, v)) for path in paths])
        q = jnp.asarray(mixture(np.asarray(pairs.q)[at], paths))
        pair = Pair(q, pairs.p[at], q, pairs.p_raw[at])
        pi = np.array(laws.pi_of(rule, pair, setting.alpha))
        law = law[..., None] * (pi / pi.sum(-1, keepdims=True)).reshape((v,) * (i + 1))
    return law


@pytest.mark.parametrize(
    ("name", "alpha"), [("lossless", 0.0), ("v3", 0.7), ("chow", 0.5), ("drafter_only", 0.0)]
)
def test_what_is_emitted_follows_pi_along_every_path(name, alpha):
    rule, n, setting = RULES[name], 4, Setting(alpha)
    prompts = jnp.broadcast_to(jnp.asarray(REPETITIVE, jnp.int32), (ROWS, len(REPETITIVE)))
    method = Speculative(Copying(laws.LM, TRUST), laws.LM, rule, 2)
    request = laws.request([setting], ROWS, max_new=n)
    got = generate(method, laws.tables(), prompts, jnp.full(ROWS, len(REPETITIVE)), request, n)
    law = path_law(rule, setting, n)
    counts = np.bincount(np.ravel_multi_index(tuple(np.asarray(got.tokens).T), law.shape), minlength=law.size)
    assert laws.follows(counts, law) > laws.FLOOR
    if name != "lossless":
        gap = 0.5 * np.abs(law - path_law(RULES["lossless"], setting, n)).sum()
        assert gap > 0.1, "the test could not tell this law from the target's"


def test_a_forbidden_copy_leaves_the_models_own_choice():
    """The one-sided mixture never puts all of q on one id, so a bias of -inf leaves a law."""
    both = Copying(laws.LM, (0.5, 0.99))
    tables = laws.tables()["drafter"]
    tokens = jnp.asarray([[1, 2, 1]])
    last, cache = both.prefill(tables, tokens, jnp.asarray([3]), 8)
    logits, _ = both.extend(tables, last[:, None], cache)
    assert int(jnp.argmax(logits[0, 0])) == 2
    law = soft(logits.at[0, 0, 2].set(-jnp.inf)[0, 0])
    assert np.isfinite(law).all()
    assert law[2] == 0


@pytest.mark.parametrize("trust", [(), (1.0,), (0.5, -0.1), (float("nan"),)])
def test_shares_are_shares(trust):
    with pytest.raises(ValueError, match="trust"):
        Copying(laws.LM, trust)
