"""Drafts copied from the text: what is found, and that the law is the one stated, enumerated path by path."""

import itertools

import jax
import jax.numpy as jnp
import laws
import numpy as np
import pytest
import tiny
from laws import Setting

from spec_cascades.decode.autoregressive import Autoregressive
from spec_cascades.decode.drafting import Proposer
from spec_cascades.decode.lengths import Confident, Fixed
from spec_cascades.decode.lookup import Lookup
from spec_cascades.decode.loop import View, generate
from spec_cascades.decode.speculative import Speculative
from spec_cascades.models.markov import Markov
from spec_cascades.probs import Edits, Pair
from spec_cascades.rules import RULES
from spec_cascades.verify import Noise

REPETITIVE = (1, 3, 2, 1, 3)
W = 5
ALWAYS = Fixed().sure
SLOW = pytest.mark.slow


def found_after(text, longest=3, forbidden=()):
    """The token that a look-up proposes after a text, by search; None where there is none."""
    for n in range(min(longest, len(text) - 1), 0, -1):
        for start in range(len(text) - n - 1, -1, -1):
            after = text[start + n]
            if text[start : start + n] == text[-n:] and after not in forbidden:
                return after
    return None


def copied(text, count, **how):
    """At most `count` drafts behind a text, each one text to the next."""
    drafts = []
    while len(drafts) < count and (token := found_after(text + drafts, **how)) is not None:
        drafts.append(token)
    return drafts


def view_of(prompts, texts):
    """Rows of prompts and of texts, whose first token is the unread one."""
    pad = lambda rows, n: jnp.asarray([[*row, *[0] * (n - len(row))] for row in rows], jnp.int32)
    emitted = jnp.asarray([len(text) - 1 for text in texts])
    lengths = jnp.asarray([len(p) for p in prompts])
    return View(pad(prompts, 14), lengths, pad(texts, 16), emitted, jnp.zeros(len(texts), bool))


def proposed(view, limit, longest=3, vocab=4, edits=None, sure=ALWAYS):
    b = len(view.emitted)
    request = laws.request([Setting(temperature=0.8)], b)._replace(edits=edits)
    noise = Noise(*np.full((3, b, W), 0.5, np.float32))
    limit = np.broadcast_to(np.asarray(limit, np.int32), (b,))
    propose = jax.jit(Lookup(vocab, longest).propose, static_argnums=6)
    return jax.device_get(propose({}, noise, view, {}, request, limit, sure))


def random_rows(seed, vocab, rows=60):
    rng = np.random.default_rng(seed)
    draw = lambda low, high: rng.integers(0, vocab, rng.integers(low, high)).tolist()
    prompts, texts = [draw(1, 12) for _ in range(rows)], [draw(0, 9) for _ in range(rows)]
    return prompts, [[prompt[-1], *text] for prompt, text in zip(prompts, texts, strict=True)]


@pytest.mark.parametrize("longest", [1, 3])
@pytest.mark.parametrize("vocab", [2, 4, 9])
def test_what_is_proposed_is_what_a_search_finds(vocab, longest):
    prompts, texts = random_rows(vocab, vocab)
    limits = np.arange(len(prompts)) % W
    got = proposed(view_of(prompts, texts), limits, longest, vocab)
    hits = 0
    for row, (prompt, text) in enumerate(zip(prompts, texts, strict=True)):
        due = copied(prompt[:-1] + text, W - 1, longest=longest)
        hits += bool(due)
        assert int(got.drafted[row]) == min(len(due), limits[row])
        np.testing.assert_array_equal(got.drafts[row, : len(due)], due)
        assert bool(got.silent[row, 0]) == (not due)
    assert 10 < hits < len(prompts)
    np.testing.assert_array_equal(got.q, np.eye(vocab)[np.asarray(got.drafts)])
    np.testing.assert_array_equal(got.q_raw, got.q)
    assert got.caches == got.calls == Lookup(vocab).models == {}


def test_of_two_places_the_longer_match_counts_and_then_the_newer():
    texts = [[1, 2, 7, 5, 2, 8, 1, 2], [2, 7, 5, 2, 8, 2], [6, 6], [4], [1, 2, 3]]
    due = [7, 8, 6, None, None]
    got = proposed(view_of(texts, [text[-1:] for text in texts]), 1, vocab=9)
    assert [found_after(text) for text in texts] == due
    assert [int(a) if n else None for a, n in zip(got.drafts[:, 0], got.drafted, strict=True)] == due


def test_an_encoders_source_is_text_too_and_its_start_symbol_no_part_of_a_copy():
    source = [3, 1, 4, 1, 5, 9, 2, 6, 1]
    due = {(): [], (4,): [1, 5, 9, 2], (4, 1): [5, 9, 2, 6], (9,): [2, 6, 1], (7,): []}
    texts = [[0, *text] for text in due]
    got = proposed(view_of([source] * len(due), texts), W - 1, vocab=10)
    for row, (text, drafts) in enumerate(due.items()):
        assert copied([*source, 0, *text], W - 1)[: len(drafts)] == drafts
        np.testing.assert_array_equal(got.drafts[row, : len(drafts)], drafts)
        assert bool(got.drafted[row]) == bool(drafts)


def test_a_forbidden_id_is_not_found():
    prompts, texts = random_rows(3, 4)
    bias = jnp.zeros((len(prompts), 4)).at[:, 2].set(-jnp.inf)
    edits = Edits(bias, jnp.ones(len(prompts)), jnp.zeros_like(bias, dtype=bool))
    got = proposed(view_of(prompts, texts), W - 1, edits=edits)
    for row, (prompt, text) in enumerate(zip(prompts, texts, strict=True)):
        due = copied(prompt[:-1] + text, W - 1, forbidden=(2,))
        assert int(got.drafted[row]) == len(due)
        np.testing.assert_array_equal(got.drafts[row, : len(due)], due)
        if len(due) < W - 1:
            assert got.silent[row, len(due)]
    assert len(np.unique(got.drafted)) > 2


def test_a_copy_is_always_confident():
    view = view_of(*random_rows(1, 4))
    a, b = proposed(view, 4), proposed(view, 4, sure=Confident(1.0).sure)
    np.testing.assert_array_equal(a.drafted, b.drafted)


def test_a_suffix_needs_a_token():
    with pytest.raises(ValueError, match="longest 0"):
        Lookup(5, 0)
    assert isinstance(Lookup(5), Proposer)


# ------------------------------------------------------------------------------------------------------------
# Laws


def path_law(rule, setting, n, asked=False):
    """The law of the first n tokens after REPETITIVE, [v] * n: pi depends on the whole path."""
    v, pairs = laws.VOCAB, laws.pairs(setting)
    law = np.ones(())
    for i in range(n):
        paths = [list(REPETITIVE) + list(path) for path in itertools.product(range(v), repeat=i)]
        at = np.asarray([np.ravel_multi_index(path[-3:], (v, v, v)) for path in paths])
        found = [found_after(path) for path in paths]
        copies = jnp.asarray(np.eye(v, dtype=np.float32)[[f or 0 for f in found]])
        pi = np.array(laws.pi_of(rule, Pair(copies, pairs.p[at], copies, pairs.p_raw[at]), setting.alpha))
        quiet = np.asarray([f is None for f in found])
        if not asked:
            pi[quiet] = np.asarray(pairs.p)[at][quiet]
        law = law[..., None] * (pi / pi.sum(-1, keepdims=True)).reshape((v,) * (i + 1))
    return law


ROWS = 20_000


def copies_of(rule, setting, n, gamma=2):
    """The first n tokens of many rows after REPETITIVE, and the ledger."""
    prompts = jnp.broadcast_to(jnp.asarray(REPETITIVE, jnp.int32), (ROWS, len(REPETITIVE)))
    method = Speculative(Lookup(laws.VOCAB), laws.LM, rule, gamma)
    request = laws.request([setting], ROWS, max_new=n)
    got = generate(method, laws.tables(), prompts, jnp.full(ROWS, len(REPETITIVE)), request, n)
    return np.asarray(got.tokens), got.ledger


@pytest.mark.parametrize(
    ("name", "alpha"), [("lossless", 0.0), ("v3", 0.7), pytest.param("lossy", 0.6, marks=SLOW)]
)
def test_what_is_emitted_follows_pi_along_every_path(name, alpha):
    rule, n = RULES[name], 4
    setting = Setting(alpha, temperature=0.9)
    tokens, ledger = copies_of(rule, setting, n)
    law = path_law(rule, setting, n)
    counts = np.bincount(np.ravel_multi_index(tuple(tokens.T), law.shape), minlength=law.size)
    assert laws.follows(counts, law) > laws.FLOOR
    assert 0 < int(ledger.accepted.sum()) <= int(ledger.judged.sum())
    if name != "lossless":
        # Power: not the target's law, nor that of a rule which is asked where nothing was found.
        for other in (path_law(RULES["lossless"], setting, n), path_law(rule, setting, n, asked=True)):
            assert 0.5 * np.abs(law - other).sum() > 0.1


# ------------------------------------------------------------------------------------------------------------
# Greedy


@pytest.mark.parametrize("family", ["markov", "llama", pytest.param("t5", marks=pytest.mark.slow)])
def test_lossless_greedy_is_the_target_token_for_token(family):
    model, n = tiny.FAMILIES[family], 24
    request = laws.request([Setting(temperature=0.0)], len(model.lengths))
    run = lambda method: generate(method, model.params, model.prompts, model.lengths, request, n)
    params = {"target": model.params["target"]}
    got = generate(
        Speculative(Lookup(model.target.vocab), model.target, RULES["lossless"], 3),
        params,
        model.prompts,
        model.lengths,
        request,
        n,
    )
    np.testing.assert_array_equal(got.tokens, run(Autoregressive(model.target)).tokens)
    assert 0 < int(got.ledger.accepted.sum())
    assert set(got.ledger.calls) == {"target"}


def test_a_text_that_repeats_its_prompt_is_nearly_all_drafts():
    v, gamma, n = 12, 4, 25
    table = jnp.zeros((3, v, v)).at[0, jnp.arange(v), (jnp.arange(v) + 1) % v].set(50.0)
    method = Speculative(Lookup(v), Markov(v), RULES["lossless"], gamma)
    prompt = jnp.asarray([[*range(v), 0]])
    request = laws.request([Setting()], 1)
    got = generate(method, {"target": table}, prompt, jnp.asarray([v + 1]), request, n)
    np.testing.assert_array_equal(got.tokens[0], (np.arange(n) + 1) % v)
    assert int(got.ledger.calls["target"][0]) == n // (gamma + 1)
    np.testing.assert_array_equal(got.ledger.accepted[0], [n // (gamma + 1)] * gamma)


@pytest.mark.parametrize("name", ["v3", "bild"])
def test_greedy_text_does_not_depend_on_gamma_nor_on_the_batch(name):
    rule, n, b = RULES[name], 18, 6
    prompts = jax.random.randint(jax.random.key(4), (b, 9), 0, laws.VOCAB)
    lengths = jnp.asarray([9, 4, 7, 2, 5, 8])
    request = laws.request([Setting(rule.default, temperature=0.0)], b)
    ask = lambda gamma, rows: generate(
        Speculative(Lookup(laws.VOCAB), laws.LM, rule, gamma),
        {"target": laws.tables()["target"]},
        prompts[rows],
        lengths[rows],
        jax.tree.map(lambda x: x[rows], request),
        n,
    )
    every = jnp.arange(b)
    one, four = ask(1, every), ask(4, every)
    np.testing.assert_array_equal(one.tokens, four.tokens)
    for row in (1, 3):
        alone = ask(4, jnp.asarray([row]))
        jax.tree.map(lambda x, y, row=row: np.testing.assert_array_equal(x[0], y[row]), alone, four)
