"""How many drafts: no policy changes what is emitted or its law, and what it saves is counted."""

from functools import cache

import jax
import jax.numpy as jnp
import laws
import numpy as np
import pytest
from counting import COUNT, counting
from laws import Setting

from spec_cascades.decode.autoregressive import Autoregressive
from spec_cascades.decode.drafting import Sampled
from spec_cascades.decode.lengths import Adaptive, Confident, Fixed, Lengths
from spec_cascades.decode.loop import View, generate
from spec_cascades.decode.speculative import Speculative
from spec_cascades.rules import RULES, Deferral
from spec_cascades.verify import Noise

POLICIES = {"adaptive": Adaptive(), "confident": Confident(0.5), "never": Confident(1.0)}
ROWS, GAMMA = 20_000, 4


@pytest.mark.parametrize(
    ("policy", "name"),
    [
        ("adaptive", "lossless"),
        ("adaptive", "v3"),
        ("confident", "lossless"),
        ("confident", "v3"),
        pytest.param("never", "v3", marks=pytest.mark.slow),
    ],
)
def test_the_law_is_pi_however_many_drafts(policy, name):
    rule = RULES[name]
    setting = Setting(rule.default, temperature=0.8)
    method = Speculative(laws.LM, laws.LM, rule, GAMMA, POLICIES[policy])
    (tokens,) = laws.sample(method, [setting], ROWS, 6)
    pi = laws.pi_of(rule, laws.pairs(setting), setting.alpha)
    for n in (3, 6):
        assert laws.follows(laws.triples(tokens, n), laws.joint(pi, n)) > laws.FLOOR, n


@cache
def greedy(lengths, name):
    """Texts of a batch of prompts at temperature 0, and the drafts proposed and kept."""
    b = 8
    prompts = jax.random.randint(jax.random.key(3), (b, 4), 0, laws.VOCAB)
    request = laws.request([Setting(RULES[name].default, temperature=0.0)], b)
    method = (
        Speculative(laws.LM, laws.LM, RULES[name], GAMMA, lengths) if lengths else Autoregressive(laws.LM)
    )
    got = generate(method, laws.tables(), prompts, jnp.full(b, 4), request, 20)
    return np.asarray(got.tokens), got.ledger


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_greedy_text_is_that_of_fixed_blocks(policy):
    tokens, ledger = greedy(POLICIES[policy], "lossless")
    fixed, fixed_ledger = greedy(Fixed(), "lossless")
    alone, _ = greedy(None, "lossless")
    np.testing.assert_array_equal(tokens, alone)
    np.testing.assert_array_equal(fixed, alone)
    assert int(ledger.judged.sum()) < int(fixed_ledger.judged.sum())
    assert int(ledger.calls["drafter"].sum()) < int(fixed_ledger.calls["drafter"].sum())
    assert (int(ledger.judged.sum()) == 0) == (policy == "never")


@pytest.mark.parametrize(
    ("policy", "name"), [("adaptive", "v3"), ("confident", "v3"), ("adaptive", "lossless")]
)
def test_a_row_is_the_row_alone(policy, name):
    """Text, and every count: another row's longer block is no call of this one's."""
    rows = [Setting(0.5), Setting(0.2, temperature=0.0), Setting(0.3, 0.7, top_p=0.9), Setting(0.6, 1.3, 3)]
    request = laws.request(rows, 1, eos=(-1, -1, -1, 4), max_new=(20, 20, 11, 20), seeds=(3, 1, 4, 1))
    request = request._replace(capacity=jnp.asarray([20, 9, 64, 64]))
    prompts, lengths = jax.random.randint(jax.random.key(8), (4, 6), 0, laws.VOCAB), jnp.asarray([6, 2, 4, 5])
    method = Speculative(laws.LM, laws.LM, RULES[name], GAMMA, POLICIES[policy])
    ask = lambda b: generate(
        method, laws.tables(), prompts[b], lengths[b], jax.tree.map(lambda x: x[b], request), 20
    )
    together = ask(np.arange(4))
    for row in range(4):
        alone = ask(np.asarray([row]))
        jax.tree.map(lambda a, b, row=row: np.testing.assert_array_equal(a[0], b[row]), alone, together)
    assert len(set(np.asarray(together.ledger.calls["drafter"]).tolist())) > 1


# ------------------------------------------------------------------------------------------------------------
# Calls and drafts, counted by hand on a pair whose text is 1, 2, 3, ...

WRONG, UNSURE = (3, 4, 9, 13), (5, 6, 11)


@cache
def by_hand(policy, end, capacity):
    """(steps, drafter calls, judged, accepted) of a text of `end` tokens, with room for `capacity`."""
    emitted = steps = calls = 0
    own, (judged, accepted) = (GAMMA + 1) // 2, np.zeros((2, GAMMA), int)
    while emitted < end:
        drafts, token = [], emitted
        limit = min(own if policy == "adaptive" else GAMMA, capacity - emitted - 1)
        while len(drafts) < limit and not (policy == "confident" and token in UNSURE):
            token += 1 + 20 * (token + 1 in WRONG)
            drafts.append(token)
        stand = [draft == emitted + 1 + i for i, draft in enumerate(drafts)]
        kept = [*stand, False].index(False)
        count = min(kept + 1, end - emitted)
        for place in range(min(count, len(drafts))):
            judged[place] += 1
            accepted[place] += place < kept
        if drafts:
            own = min(own + 2, GAMMA) if kept == len(drafts) else max(own - 1, 1)
        emitted, steps = emitted + count, steps + 1
        # One a draft, and one more that says where to stop; the first is due in any case.
        calls += max(1, min(len(drafts) + 1, limit))
    return steps, calls, judged, accepted


@pytest.mark.parametrize("policy", ["fixed", "adaptive", "confident"])
def test_calls_and_drafts_are_those_counted_by_hand(policy):
    """Each end once by its limit, with caches to spare, and once because the models' windows are full."""
    ends = np.asarray([*range(1, 19), *range(1, 19)])
    capacity = np.where(np.arange(len(ends)) < 18, 999, ends)
    limits = np.where(np.arange(len(ends)) < 18, ends, 64)
    request = laws.request([Setting(temperature=0.0)], len(ends), max_new=limits)
    request = request._replace(capacity=jnp.asarray(capacity, jnp.int32))
    lengths = Fixed() if policy == "fixed" else POLICIES[policy]
    method = Speculative(COUNT, COUNT, RULES["lossless"], GAMMA, lengths)
    prompts = jnp.zeros((len(ends), 2), jnp.int32)
    got = generate(
        method,
        counting(WRONG, lambda x: 1 if x in UNSURE else 50),
        prompts,
        jnp.full(len(ends), 2),
        request,
        20,
    )
    np.testing.assert_array_equal(got.length, ends)
    for row, end in enumerate(ends):
        np.testing.assert_array_equal(got.tokens[row, :end], np.arange(1, end + 1))
        steps, calls, judged, accepted = by_hand(policy, end, capacity[row])
        assert int(got.ledger.steps[row]) == int(got.ledger.calls["target"][row]) == steps, row
        assert int(got.ledger.calls["drafter"][row]) == calls, row
        np.testing.assert_array_equal(got.ledger.judged[row], judged, f"row {row}")
        np.testing.assert_array_equal(got.ledger.accepted[row], accepted, f"row {row}")
    calls = np.asarray(got.ledger.calls["drafter"]).reshape(2, -1)
    assert (calls[1] <= calls[0]).all()
    assert (calls[1] < calls[0]).any(), "room for few tokens must save calls"


# ------------------------------------------------------------------------------------------------------------
# The pieces


def test_adaptive_grows_by_two_and_shrinks_by_one_within_its_ends():
    policy, gamma = Adaptive(), 5
    np.testing.assert_array_equal(policy.begin(2, gamma), [3, 3])
    assert int(policy.begin(1, 1)[0]) == 1
    own, drafted = jnp.asarray([1, 1, 3, 4, 5, 5, 2]), jnp.asarray([1, 1, 3, 4, 5, 2, 0])
    accepted = jnp.asarray([1, 0, 3, 3, 5, 2, 0])
    np.testing.assert_array_equal(policy.learn(own, gamma, drafted, accepted), [3, 1, 5, 3, 5, 5, 2])


@pytest.mark.parametrize("threshold", [-0.1, 1.5, float("nan")])
def test_a_confidence_is_a_probability(threshold):
    with pytest.raises(ValueError, match=f"threshold {threshold}"):
        Confident(threshold)


def test_every_policy_keeps_the_protocol():
    assert all(isinstance(policy, Lengths) for policy in (Fixed(), *POLICIES.values()))
    np.testing.assert_array_equal(
        Confident(0.5).sure(jnp.asarray([[0.5, 0.5, 0], [0.4, 0.3, 0.3]])), [True, False]
    )


EVERYWHERE = Deferral(
    "everywhere", lambda pair, alpha: jnp.ones_like(pair.q[..., :1], bool), 0.0, 0.0, 0.0, ""
)


@pytest.mark.parametrize("policy", ["fixed", *POLICIES])
def test_speculative_decoding_asks_for_no_draft_behind_the_last(policy):
    """The same texts and verdicts as with q at the bonus place, for up to a call less a block."""
    lengths = Fixed() if policy == "fixed" else POLICIES[policy]
    b, n = 12, 30
    prompts = jax.random.randint(jax.random.key(5), (b, 5), 0, laws.VOCAB)
    settings = [Setting(temperature=0.0), Setting(temperature=0.8, top_p=0.8), Setting()] * (b // 3)
    request = laws.request(
        settings, 1, eos=[4, -1] * (b // 2), max_new=[n] * (b - 2) + [1, 9], seeds=range(b)
    )
    request = request._replace(capacity=jnp.asarray([64, 11] * (b // 2)))
    whole, lean = (
        generate(
            Speculative(laws.LM, laws.LM, rule, GAMMA, lengths),
            laws.tables(),
            prompts,
            jnp.asarray([5, 2, 4] * (b // 3)),
            request,
            n,
        )
        for rule in (EVERYWHERE, RULES["lossless"])
    )
    saved = np.asarray(whole.ledger.calls["drafter"] - lean.ledger.calls["drafter"])
    assert (saved >= 0).all()
    assert (saved <= np.asarray(lean.ledger.steps)).all()
    assert (saved > 0).any() == (policy != "never"), "who never drafts has nothing to leave out"
    whole = whole._replace(ledger=whole.ledger._replace(calls=lean.ledger.calls))
    jax.tree.map(np.testing.assert_array_equal, whole, lean)


@pytest.mark.parametrize("bonus", [True, False])
def test_limits_are_kept_every_q_is_a_law_and_a_row_lags_by_its_own_calls(bonus):
    """A drafter that gives some ids no mass at all (-inf), limits 0..gamma and a finished row."""
    b, w = GAMMA + 2, GAMMA + 1
    tables = laws.tables()["drafter"].at[0, :, 3].set(-jnp.inf)
    prompts = jnp.broadcast_to(jnp.asarray(laws.PROMPT, jnp.int32), (b, 3))
    last, cache = laws.LM.prefill(tables, prompts, jnp.full(b, 3), 16)
    text = jnp.zeros((b, 9), jnp.int32).at[:, 0].set(last)
    done = jnp.arange(b) == GAMMA + 1
    view = View(prompts, jnp.full(b, 3), text, jnp.zeros(b, jnp.int32), done)
    view = view._replace(read={"drafter": jnp.zeros(b, jnp.int32)})
    noise = Noise(*jax.random.uniform(jax.random.key(0), (3, b, w)))
    limit = jnp.asarray([*range(w), GAMMA], jnp.int32)
    propose = jax.jit(Sampled(laws.LM, bonus).propose, static_argnums=6)
    caches, request = {"drafter": cache}, laws.request([Setting()], b)
    got = propose({"drafter": tables}, noise, view, caches, request, limit, Fixed().sure)
    due = np.asarray([*range(w), 0])
    np.testing.assert_array_equal(got.drafted, due)
    calls = due + 1 if bonus else np.maximum(due, 1)
    np.testing.assert_array_equal(got.calls["drafter"], calls)
    longest = np.full(b, w) if bonus else calls
    np.testing.assert_array_equal(got.caches["drafter"].length - cache.length, longest)
    assert got.silent is None
    for q in (np.asarray(got.q), np.asarray(got.q_raw)):
        assert np.isfinite(q).all()
        np.testing.assert_allclose(q.sum(-1)[np.arange(w) < calls[:, None]], 1, atol=1e-6)
        assert (q[..., 3] == 0).all()
