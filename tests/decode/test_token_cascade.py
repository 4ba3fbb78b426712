"""Token cascades: pi exactly, the target only where the drafter defers, nothing lost while it is behind."""

from dataclasses import dataclass

import caches
import jax
import jax.numpy as jnp
import laws
import numpy as np
import pytest
import tiny
from counting import COUNT, V, counting
from laws import Setting

from spec_cascades.decode import loop
from spec_cascades.decode.autoregressive import Autoregressive
from spec_cascades.decode.speculative import Speculative
from spec_cascades.decode.token_cascade import BLIND, Oracle, TokenCascade
from spec_cascades.models.markov import Markov
from spec_cascades.probs import Edits, entropy
from spec_cascades.rules import RULES

ROWS = 20_000
SETTINGS = [
    {},
    {"temperature": 0.6, "top_p": 0.8},
    {"temperature": 0.0},
    {"top_k": 3, "min_p": 0.1},
]
SLOW = {"gemma", "t5"}
FAMILIES = pytest.mark.parametrize(
    "family", [pytest.param(f, marks=[pytest.mark.slow] * (f in SLOW)) for f in sorted(tiny.FAMILIES)]
)
BLIND_RULES = pytest.mark.parametrize("name", BLIND)


def lazy(name, catch_up=8):
    return TokenCascade(laws.LM, laws.LM, RULES[name], catch_up)


def alphas(name):
    """Two at which the toy drafter keeps some tokens and defers some."""
    return {"chow": (0.3, 0.5), "chow_log": (0.9, 1.2)}.get(
        name, (0.5 * RULES[name].default, RULES[name].default)
    )


def settings(name):
    return [Setting(alpha, **f) for alpha in alphas(name) for f in SETTINGS]


def check(method, asked, n=6):
    tokens = laws.sample(method, asked, ROWS, n)
    for setting, rows in zip(asked, tokens, strict=True):
        pi = laws.pi_of(method.rule, laws.pairs(setting), setting.alpha)
        for end in (3, n):
            p_value = laws.follows(laws.triples(rows, end), laws.joint(pi, end))
            assert p_value > laws.FLOOR, (setting, end, p_value)


def ask(name, rows=100, **changes):
    """A batch of greedy and sampled rows, some of which end early."""
    request = laws.request(settings(name), rows, eos=4, **changes)
    b = len(request.seed)
    return jnp.broadcast_to(jnp.asarray(laws.PROMPT), (b, 3)), jnp.full(b, 3), request


def same(got, expected):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(a, b)


@BLIND_RULES
def test_the_lazy_cascade_follows_pi(name):
    check(lazy(name, 2), settings(name)[4:])


@pytest.mark.slow
@BLIND_RULES
def test_the_lazy_cascade_follows_pi_at_every_setting(name):
    check(lazy(name, 3), settings(name))


@pytest.mark.parametrize("name", ["chow", "v3", "lossy_solved", "ensemble"])
def test_the_oracle_follows_pi(name):
    check(Oracle(laws.LM, laws.LM, RULES[name]), settings(name)[4:6])


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(RULES))
def test_the_oracle_follows_pi_under_every_filter(name):
    check(Oracle(laws.LM, laws.LM, RULES[name]), settings(name))


@BLIND_RULES
def test_lazy_and_oracle_are_one_text_with_one_deferral_rate(name):
    """They draw from the same noise, so the one that is always up to date checks the one that catches up."""
    prompts, lengths, request = ask(name)
    expected = loop.generate(
        Oracle(laws.LM, laws.LM, RULES[name]), laws.tables(), prompts, lengths, request, 12
    )
    kept = np.asarray(expected.ledger.accepted)[:, 0] / np.asarray(expected.ledger.judged)[:, 0]
    assert (kept[:400] < 1).mean() > 0.3
    assert 0.1 < kept.mean() < 0.9
    for catch_up in (1, 3, 8):
        got = loop.generate(lazy(name, catch_up), laws.tables(), prompts, lengths, request, 12)
        same(got[:3], expected[:3])
        same(got.ledger[2:], expected.ledger[2:])
        same(got.ledger.steps, expected.ledger.steps)
        same(got.ledger.calls["drafter"], got.length)


@BLIND_RULES
@FAMILIES
def test_greedily_it_is_speculation_with_that_rule(family, name):
    model, rule = tiny.FAMILIES[family], RULES[name]
    alpha = middle(family, name)
    request = laws.request([Setting(alpha, temperature=0.0)], len(model.lengths))
    texts, kept = [], []
    for method in (
        Speculative(model.drafter, model.target, rule, 3),
        Oracle(model.drafter, model.target, rule),
        TokenCascade(model.drafter, model.target, rule, 3),
        TokenCascade(model.drafter, model.target, rule, 8),
    ):
        got = loop.generate(method, model.params, model.prompts, model.lengths, request, 24)
        texts.append(got.tokens)
        kept.append(float(got.ledger.accepted.sum() / got.ledger.judged.sum()))
    for text in texts[1:]:
        np.testing.assert_array_equal(text, texts[0])
    assert 0 < kept[2] < 1, "a drafter that always or never defers proves nothing"
    assert kept[1] == kept[2] == kept[3]


def middle(family, name):
    """The alpha at which about half of the drafter's own first tokens would be deferred."""
    model = tiny.FAMILIES[family]
    request = laws.request([Setting(temperature=1.0)], len(model.lengths))
    alone = Autoregressive(model.drafter, "drafter")
    got = loop.generate(alone, model.params, model.prompts, model.lengths, request, 24)
    last, cache = model.drafter.prefill(model.params["drafter"], model.prompts, model.lengths, 40)
    text = jnp.concatenate([last[:, None], got.tokens[:, :-1]], axis=1)
    q = jax.nn.softmax(model.drafter.extend(model.params["drafter"], text, cache)[0], axis=-1)
    values = {"chow": 1 - jnp.max(q, -1), "chow_log": entropy(q)[..., 0]}[name]
    return float(jnp.median(values))


@BLIND_RULES
def test_the_ends_are_the_two_models(name):
    prompts, lengths, request = ask(name)
    rule, b = RULES[name], len(request.seed)
    run = lambda alpha: loop.generate(
        lazy(name), laws.tables(), prompts, lengths, request._replace(alpha=jnp.full(b, alpha)), 10
    )
    target = loop.generate(Autoregressive(laws.LM), laws.tables(), prompts, lengths, request, 10)
    deferring = run(rule.lossless)
    same(deferring[:3], target[:3])
    same(deferring.ledger.calls["target"], deferring.ledger.steps)
    assert int(deferring.ledger.accepted.sum()) == 0
    keeping = run(rule.draft_only)
    assert int(keeping.ledger.calls["target"].sum()) == 0
    same(keeping.ledger.accepted, keeping.ledger.judged)
    greedy = np.asarray(request.sampling.temperature) == 0
    drafter = loop.generate(Autoregressive(laws.LM, "drafter"), laws.tables(), prompts, lengths, request, 10)
    np.testing.assert_array_equal(np.asarray(keeping.tokens)[greedy], np.asarray(drafter.tokens)[greedy])
    assert (np.asarray(keeping.tokens) != np.asarray(target.tokens)).any()


RAN = []


@dataclass(frozen=True)
class Watched(Markov):
    """A model that tells how wide the blocks were that it was really run on."""

    def extend(self, params, tokens, cache):
        jax.debug.callback(lambda read: RAN.append((tokens.shape[1], read.tolist())), cache.length)
        return super().extend(params, tokens, cache)


def hesitating(unsure):
    """The drafter is wrong and unsure before those in `unsure`."""
    return counting(unsure, lambda x: 2 if (x + 1) % V in unsure else 50)


def count(unsure, ends, catch_up, n=30, target=COUNT, eos=None):
    method = TokenCascade(COUNT, target, RULES["chow"], catch_up)
    b = len(ends)
    limits = {"max_new": np.asarray(ends)} if eos is None else {"eos": np.asarray(ends)}
    request = laws.request([Setting(0.5, temperature=0.0)], b, **limits)
    return loop.generate(method, hesitating(unsure), jnp.zeros((b, 2), jnp.int32), jnp.full(b, 2), request, n)


def due(end, unsure, catch_up):
    """Target blocks of a row of `end` tokens, by hand: what is unread at each token that is deferred."""
    read, calls = 0, 0
    for token in range(1, end + 1):
        if token in unsure:
            calls += -(-(token - read) // catch_up)
            read = token
    return calls


@pytest.mark.parametrize("eos", [None, True], ids=["limit", "eos"])
@pytest.mark.parametrize("catch_up", [1, 2, 3, 8])
@pytest.mark.parametrize("unsure", [(1,), (3, 4, 9, 13, 26), tuple(range(V))], ids=["first", "some", "all"])
def test_target_calls_are_the_blocks_that_a_row_needed(unsure, catch_up, eos):
    ends = np.arange(1, 29)
    got = count(unsure, ends, catch_up, eos=eos)
    np.testing.assert_array_equal(got.length, ends)
    assert bool(got.ended.all()) == bool(eos)
    for row, end in enumerate(ends):
        np.testing.assert_array_equal(got.tokens[row], [*range(1, end + 1), *[0] * (30 - end)])
        assert int(got.ledger.calls["target"][row]) == due(end, unsure, catch_up), end
        assert int(got.ledger.calls["drafter"][row]) == int(got.ledger.steps[row]) == end
        assert int(got.ledger.judged[row, 0]) == end
        assert int(got.ledger.accepted[row, 0]) == end - sum(t <= end for t in unsure if t)


def test_the_target_really_runs_only_then():
    RAN.clear()
    got = count((5, 17), [20, 20, 4], 8, target=Watched(V))
    jax.effects_barrier()
    assert got.tokens[0].tolist()[:20] == list(range(1, 21))
    prefill, *blocks = RAN
    assert prefill == (2, [0, 0, 0])
    # One token of each prompt read, then 5 of the text at once, then 12 in two blocks.
    assert blocks == [(8, [1, 1, 1]), (8, [6, 6, 1]), (8, [14, 14, 1])]
    RAN.clear()
    got = count((), [20, 20, 4], 8, target=Watched(V))
    jax.effects_barrier()
    assert len(RAN) == 1, "prefill alone"
    assert int(got.ledger.calls["target"].sum()) == 0


def test_a_finished_row_calls_for_nothing():
    """The one row that would defer is over: its neighbour goes on without the target."""
    RAN.clear()
    method = TokenCascade(COUNT, Watched(V), RULES["chow"], 8)
    request = laws.request([Setting(0.5, temperature=0.0)], 2, max_new=[4, 12])
    params = hesitating((5, 6, 7))
    prompts = jnp.asarray([[0, 0], [10, 10]])
    got = loop.generate(method, params, prompts, jnp.full(2, 2), request, 12)
    jax.effects_barrier()
    assert got.tokens[1].tolist() == list(range(11, 23))
    assert len(RAN) == 1


N = 20
MIXED = [
    Setting(0.5),
    Setting(0.5, temperature=0.0),
    Setting(0.5, temperature=0.7, top_p=0.9),
    Setting(0.5, temperature=1.3, top_k=3, min_p=0.1),
]


def four(family, **changes):
    """Four rows that have nothing in common but a fair chance of deferring."""
    given = {"max_new": (20, 20, 11, 20), "eos": (-1, -1, -1, 4), "seeds": (3, 1, 4, 1)} | changes
    alpha = middle(family, "chow")
    return laws.request([x._replace(alpha=alpha) for x in MIXED], 1, **given)


def answer(method, model, rows, request):
    rows = jnp.asarray(rows)
    own = jax.tree.map(lambda x: x[rows], request)
    return loop.generate(method, model.params, model.prompts[rows], model.lengths[rows], own, N)


@FAMILIES
def test_a_row_in_a_batch_is_the_row_alone(family):
    model, request = tiny.FAMILIES[family], four(family)
    method = TokenCascade(model.drafter, model.target, RULES["chow"], 3)
    together = answer(method, model, range(4), request)
    for row in range(4):
        alone = answer(method, model, [row], request)
        same(alone, jax.tree.map(lambda x, row=row: x[row : row + 1], together))
    same(answer(method, model, [2, 0], request), jax.tree.map(lambda x: x[jnp.asarray([2, 0])], together))
    assert 0 < int(together.ledger.accepted.sum()) < int(together.ledger.judged.sum())


@FAMILIES
def test_caches_end_as_if_the_text_had_been_read_afresh(family):
    """Both models', up to each row's length: blocks wider than what is left of the cache destroy nothing."""
    model, request = tiny.FAMILIES[family], four(family, max_new=(9, 9, 4, 9), eos=-1)
    method = TokenCascade(model.drafter, model.target, RULES["chow"], 8)
    state = loop.start(method, model.params, model.prompts, model.lengths, request, 9)
    begun = {name: np.array(c.length) for name, c in state.caches.items()}
    last = np.array(state.view.last)
    end = loop.run(method, model.params, state, request)
    text = jnp.concatenate([last[:, None], loop.finish(end, request).tokens], 1)
    emitted, unread = np.asarray(end.view.emitted), 0
    for name, lm in method.models.items():
        _, blank = lm.prefill(model.params[name], model.prompts, model.lengths, 7 + 9 + 1)
        _, fresh = lm.extend(model.params[name], text, blank)
        length = np.asarray(end.caches[name].length)
        assert (length <= begun[name] + emitted).all()
        unread += (begun[name] + emitted - length).sum()
        caches.same(end.caches[name], fresh, atol=1e-4)
    assert unread > 0, "no target was behind"


@BLIND_RULES
def test_edits_reach_both_models_wherever_the_target_stands(name):
    """A penalty, a forbidden id and a favoured one: the lazy cascade and the oracle still agree."""
    prompts, lengths, request = ask(name)
    b = len(request.seed)
    bias = jnp.zeros((b, laws.VOCAB)).at[:, 1].set(-jnp.inf).at[:, 3].set(0.7)
    edits = Edits(bias, jnp.full(b, 1.8), jnp.zeros((b, laws.VOCAB), bool).at[:, 2].set(True))
    request = request._replace(edits=edits)
    oracle = Oracle(laws.LM, laws.LM, RULES[name])
    expected = loop.generate(oracle, laws.tables(), prompts, lengths, request, 12)
    got = loop.generate(lazy(name, 3), laws.tables(), prompts, lengths, request, 12)
    same(got[:3], expected[:3])
    tokens = np.asarray(got.tokens)[np.arange(12) < np.asarray(got.length)[:, None]]
    assert not (tokens == 1).any()
    assert 0 < int(got.ledger.accepted.sum()) < int(got.ledger.judged.sum())


def test_a_loop_run_in_parts_ends_as_one_run_whole():
    prompts, lengths, request = ask("chow", rows=5)
    whole = loop.generate(lazy("chow", 3), laws.tables(), prompts, lengths, request, 12)
    progress = loop.start(lazy("chow", 3), laws.tables(), prompts, lengths, request, 12)
    while not progress.done.all():
        progress = loop.run(lazy("chow", 3), laws.tables(), progress, request, 2)
    same(loop.finish(progress, request), whole)


def test_one_compilation_serves_all_settings():
    prompts, lengths, request = ask("chow", rows=2)
    method, before = lazy("chow", 5), loop.run._cache_size()
    texts = set()
    for alpha in (-1.0, 0.2, 0.5, 1.0):
        changed = request._replace(alpha=jnp.full_like(request.alpha, alpha))
        got = loop.generate(method, laws.tables(), prompts, lengths, changed, 12)
        texts.add(tuple(np.ravel(got.tokens).tolist()))
    assert loop.run._cache_size() == before + 1
    assert len(texts) > 2


@pytest.mark.parametrize("name", sorted(set(RULES) - set(BLIND)))
def test_a_rule_that_needs_the_target_is_refused(name):
    with pytest.raises(ValueError, match=f"'{name}'.*choose one of chow, chow_log"):
        lazy(name)


def test_bad_sizes_are_refused():
    with pytest.raises(ValueError, match="catch_up 0"):
        lazy("chow", 0)
    for kind, sizes in ((TokenCascade, [8]), (Oracle, [])):
        with pytest.raises(ValueError, match="5 and 6"):
            kind(laws.LM, Markov(6), RULES["chow"], *sizes)


@dataclass(frozen=True)
class Forgetful(TokenCascade):
    """Believes that the target has read all of the text but the newest token."""

    def step(self, params, noise, view, caches, request):
        view = view._replace(read=view.read | {"target": view.emitted})
        return super().step(params, noise, view, caches, request)


def test_a_cascade_that_forgets_what_is_unread_is_noticed():
    method = Forgetful(laws.LM, laws.LM, RULES["chow"], 8)
    with pytest.raises(AssertionError):
        check(method, settings("chow")[:1])


def test_the_blind_rules_do_not_read_the_target():
    rng = np.random.default_rng(0)
    q, p = (jnp.asarray(rng.dirichlet(np.ones(6), 500), jnp.float32) for _ in range(2))
    nothing = jnp.full_like(q, jnp.nan)
    for name in BLIND:
        alpha = jnp.full((500, 1), alphas(name)[0])
        masks = [RULES[name].mask(laws.Pair(q, x, q, x), alpha) for x in (p, nothing)]
        np.testing.assert_array_equal(*masks)
        assert masks[0].shape == (500, 1)
        assert 0 < masks[0].mean() < 1
