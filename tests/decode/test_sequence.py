"""Sequence cascades: the law of whole answers by enumeration, and rows that come out as they would alone."""

import itertools

import jax
import jax.numpy as jnp
import laws
import numpy as np
import pytest
import tiny
from counting import COUNT, counting
from laws import Setting

from spec_cascades.decode import loop, sequence
from spec_cascades.decode.autoregressive import Autoregressive
from spec_cascades.decode.sequence import SCORES, Scored, Sequence
from spec_cascades.models.markov import Markov
from spec_cascades.probs import Edits

V, END, N = laws.VOCAB, 4, 3
SAMPLED = {"": {}, "filtered": {"temperature": 0.7, "top_p": 0.9}}
CASES = [("sum", 0.0), ("average", 0.0), ("quantile", 0.0), ("quantile", 0.5)]
EACH_SCORE = pytest.mark.parametrize(("score", "quantile"), CASES, ids=lambda x: str(x))


def cascade(score="average", quantile=0.0, verify=False):
    return Sequence(laws.LM, laws.LM, score, quantile, verify)


def run(method, request, n=N, params=None):
    b = len(request.seed)
    prompts = jnp.broadcast_to(jnp.asarray(laws.PROMPT), (b, 3))
    return sequence.run(method, params or laws.tables(), prompts, jnp.full(b, 3), request, n)


def same(got, expected):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(a, b)


# ------------------------------------------------------------------------------------------------------------
# Laws, by enumeration of all answers of at most three tokens


ANSWERS = [
    x
    for n in range(1, N + 1)
    for x in itertools.product(range(V), repeat=n)
    if END not in x[:-1] and (n == N or x[-1] == END)
]


def chances(x, law):
    """law [v^3, v] of each of an answer's tokens, and the whole law at each of its places."""
    table = np.asarray(law, np.float64).reshape((V,) * 4)
    table = table / table.sum(-1, keepdims=True)
    text = (*laws.PROMPT, *x)
    rows = np.stack([table[text[i : i + 3]] for i in range(len(x))])
    return rows[np.arange(len(x)), list(x)], rows


def likely(x, law):
    return np.prod(chances(x, law)[0])


def score_of(x, pair, method):
    """The score by its definition, apart from the package's."""
    logs = np.sort(np.log(chances(x, pair.q_raw)[0]))
    if method.score == "quantile":
        at = method.quantile * (len(logs) - 1)
        low = int(at)
        return logs[low] + (at - low) * (logs[min(low + 1, len(logs) - 1)] - logs[low])
    return logs.sum() / (len(logs) if method.score == "average" else 1)


def verified(x, pair):
    """V(. | x): the law of what verification makes of the draft x, the target going on alone."""
    out = dict.fromkeys(ANSWERS, 0.0)
    (q, q_rows), (p, p_rows) = chances(x, pair.q), chances(x, pair.p)
    stands = 1.0
    for i, token in enumerate(x):
        keep = min(1.0, p[i] / q[i])
        rest = np.maximum(p_rows[i] - q_rows[i], 0.0)
        for y in ANSWERS if keep < 1 else []:
            if y[:i] == x[:i] and len(y) > i and y[i] != token:
                out[y] += (
                    stands * (1 - keep) * rest[y[i]] / rest.sum() * np.prod(chances(y, pair.p)[0][i + 1 :])
                )
        stands *= keep
    out[x] += stands
    return out


def law(method, setting):
    """(the law of the answers, P(defer)): kept answers from q, and for the others p or V."""
    pair = laws.pairs(setting)
    q = {x: likely(x, pair.q) for x in ANSWERS}
    deferred = {x for x in ANSWERS if q[x] > 0 and score_of(x, pair, method) < -setting.alpha}
    out = {x: 0.0 if x in deferred else q[x] for x in ANSWERS}
    mass = sum(q[x] for x in deferred)
    if method.verify:
        for x in deferred:
            for y, share in verified(x, pair).items():
                out[y] += q[x] * share
    else:
        for y in ANSWERS:
            out[y] += mass * likely(y, pair.p)
    return np.asarray([out[x] for x in ANSWERS]), mass


def counts(tokens, length):
    place = {x: i for i, x in enumerate(ANSWERS)}
    found = [place[tuple(row[:n])] for row, n in zip(tokens.tolist(), length.tolist(), strict=True)]
    return np.bincount(found, minlength=len(ANSWERS))


def alpha_of(score, quantile, filters):
    """The alpha at which about half of the drafter's answers are kept."""
    pair, method = laws.pairs(Setting(**filters)), cascade(score, quantile)
    scored = sorted((score_of(x, pair, method), likely(x, pair.q)) for x in ANSWERS)
    below = np.cumsum([mass for _, mass in scored])
    i = int(np.searchsorted(below, 0.5))
    # Between two scores, so that rounding cannot carry an answer across.
    return -float((scored[i][0] + scored[i + 1][0]) / 2)


def apart(a, b):
    return 0.5 * np.abs(a - b).sum()


@pytest.mark.parametrize("verify", [False, True], ids=["plain", "hybrid"])
@EACH_SCORE
def test_answers_follow_the_enumerated_law(score, quantile, verify):
    method, rows = cascade(score, quantile, verify), 20_000
    settings = [Setting(alpha_of(score, quantile, f), **f) for f in SAMPLED.values()]
    got, info = run(method, laws.request(settings, rows, eos=END, max_new=N))
    tokens, length = (np.asarray(x).reshape(2, rows, -1) for x in (got.tokens, got.length))
    for i, setting in enumerate(settings):
        expected, mass = law(method, setting)
        assert abs(expected.sum() - 1) < 1e-5
        assert 0.2 < mass < 0.8
        p_value = laws.follows(counts(tokens[i], length[i, :, 0]), expected)
        assert p_value > laws.FLOOR, (setting, p_value)
        deferred = info.deferred.reshape(2, rows)[i].mean()
        assert abs(deferred - mass) < 5 * np.sqrt(mass * (1 - mass) / rows)


def test_the_laws_are_told_apart():
    """Power: plain and hybrid, p and q differ by more than the samples' noise, and so do the scores' laws."""
    setting = Setting(alpha_of("average", 0.0, {}))
    pair = laws.pairs(setting)
    p, q = (np.asarray([likely(x, side) for x in ANSWERS]) for side in (pair.p, pair.q))
    plain, hybrid = (law(cascade(verify=v), setting)[0] for v in (False, True))
    for a, b in itertools.combinations([p, q, plain, hybrid], 2):
        assert apart(a, b) > 0.04
    minimum = law(cascade("quantile", 0.0), Setting(alpha_of("quantile", 0.0, {})))[0]
    assert apart(minimum, plain) > 0.04


def test_verification_of_every_draft_is_the_targets_law():
    """Nothing kept: the drafts follow q unconditionally, and V gives p back."""
    pair = laws.pairs(Setting())
    p = np.asarray([likely(x, pair.p) for x in ANSWERS])
    np.testing.assert_allclose(law(cascade(verify=True), Setting(-np.inf))[0], p, atol=1e-6)
    half = law(cascade(verify=True), Setting(alpha_of("average", 0.0, {})))[0]
    assert apart(half, p) > 0.04


# ------------------------------------------------------------------------------------------------------------
# Rows


def ask(alpha, rows=30, n=12, **changes):
    """Greedy and sampled rows of different limits."""
    settings = [Setting(), Setting(temperature=0.0), Setting(temperature=0.7, top_p=0.9), Setting(top_k=3)]
    limits = np.tile([n, n, 1, 5], rows)
    request = laws.request(settings, rows, **({"eos": END, "max_new": limits} | changes))
    return request._replace(alpha=jnp.full(len(limits), alpha, jnp.float32))


@pytest.mark.parametrize("verify", [False, True], ids=["plain", "hybrid"])
def test_the_ends_are_the_two_models(verify):
    keeping, info = run(cascade(verify=verify), ask(np.inf), 12)
    assert not info.deferred.any()
    assert info.waiting_seconds is info.waiting_share is None
    np.testing.assert_array_equal(info.kept, keeping.length)
    assert int(keeping.ledger.calls["target"].sum()) == 0
    assert (np.asarray(keeping.ledger.accepted) == 1).all()
    deferring, info = run(cascade(verify=verify), ask(-np.inf), 12)
    assert info.deferred.all()
    assert not np.asarray(deferring.ledger.accepted).any()
    b = len(info.deferred)
    prompts, lengths = jnp.broadcast_to(jnp.asarray(laws.PROMPT), (b, 3)), jnp.full(b, 3)
    alone = {
        name: loop.generate(Autoregressive(laws.LM, name), laws.tables(), prompts, lengths, ask(0.0), 12)
        for name in ("target", "drafter")
    }
    greedy = np.repeat([False, True, False, False], 30)
    pick = lambda x, rows: jax.tree.map(lambda y: np.asarray(y)[rows], x[:3])
    same(pick(keeping, greedy), pick(alone["drafter"], greedy))
    same(
        pick(deferring, greedy if verify else slice(None)),
        pick(alone["target"], greedy if verify else slice(None)),
    )
    assert (np.asarray(keeping.tokens) != np.asarray(deferring.tokens)).any()


def test_a_row_is_the_drafters_answer_or_the_targets():
    """Deferred rows answer as the target alone does, the others as the drafter, whoever shares the batch."""
    request = ask(1.1)
    got, info = run(cascade(), request, 12)
    assert 0.2 < info.deferred.mean() < 0.8
    keeping, scored = run(cascade(), ask(np.inf), 12)
    deferring, _ = run(cascade(), ask(-np.inf), 12)
    np.testing.assert_array_equal(info.deferred, scored.score < -1.1)
    for whole, d, t in zip(got[:3], keeping[:3], deferring[:3], strict=True):
        deferred = info.deferred.reshape(-1, *[1] * (whole.ndim - 1))
        np.testing.assert_array_equal(whole, np.where(deferred, t, d))
    np.testing.assert_array_equal(info.kept, np.where(info.deferred, 0, keeping.length))
    assert np.asarray(got.tokens)[np.arange(12) >= np.asarray(got.length)[:, None]].sum() == 0


def test_alpha_may_differ_by_row():
    request = ask(0.0)
    alpha = np.tile([np.inf, -np.inf, 1.1], 40).astype(np.float32)
    _, info = run(cascade(), request._replace(alpha=jnp.asarray(alpha)), 12)
    np.testing.assert_array_equal(info.deferred[0::3], False)
    np.testing.assert_array_equal(info.deferred[1::3], True)
    np.testing.assert_array_equal(info.deferred, info.score < -alpha)
    more = [run(cascade(), ask(a), 12)[1].deferred for a in (0.5, 1.1, 1.5)]
    assert more[0].sum() > more[1].sum() > more[2].sum() > 0
    assert (more[0] >= more[1]).all()
    assert (more[1] >= more[2]).all()


@EACH_SCORE
def test_the_score_is_that_of_the_emitted_tokens(score, quantile):
    """End symbol included, nothing behind it, at temperature 1 whatever the row's own."""
    request = ask(np.inf, rows=10)
    got, info = run(cascade(score, quantile), request, 12)
    pair = laws.pairs(Setting())
    for tokens, n, value in zip(np.asarray(got.tokens), np.asarray(got.length), info.score, strict=True):
        assert value == pytest.approx(score_of(tuple(tokens[:n]), pair, cascade(score, quantile)), abs=1e-4)
    assert len(set(np.asarray(got.length).tolist())) > 3


def test_scores_of_answers_by_hand():
    logs, length = np.log(np.asarray([[0.5, 0.125, 0.25, 9.0], [0.5, 9.0, 9.0, 9.0]])), np.asarray([3, 1])
    ln2 = np.log(2)
    for method, due in [
        (cascade("sum"), [-6 * ln2, -ln2]),
        (cascade("average"), [-2 * ln2, -ln2]),
        (cascade("quantile", 0.0), [-3 * ln2, -ln2]),
        (cascade("quantile", 0.25), [-2.5 * ln2, -ln2]),
        (cascade("quantile", 1.0), [-ln2, -ln2]),
    ]:
        np.testing.assert_allclose(method.scores(logs, length), due, atol=1e-12)
    np.testing.assert_array_equal(cascade().scores(logs, np.asarray([3, 0]))[1], 0.0)


def families(*slow):
    return [pytest.param(f, marks=pytest.mark.slow) if f in slow else f for f in sorted(tiny.FAMILIES)]


MIXED = [
    Setting(),
    Setting(temperature=0.0),
    Setting(temperature=0.7, top_p=0.9),
    Setting(temperature=1.3, top_k=3, min_p=0.1),
]


def answer(family, method, rows, request, n=16):
    model, rows = tiny.FAMILIES[family], np.asarray(rows)
    own = jax.tree.map(lambda x: x[rows], request)
    return sequence.run(method, model.params, model.prompts[rows], model.lengths[rows], own, n)


@pytest.mark.parametrize("verify", [False, True], ids=["plain", "hybrid"])
@pytest.mark.parametrize("family", families("gemma", "t5"))
def test_a_row_in_a_batch_is_the_row_alone(family, verify):
    model = tiny.FAMILIES[family]
    method = Sequence(model.drafter, model.target, "average", 0.0, verify)
    request = laws.request(MIXED, 1, eos=(-1, -1, -1, 4), max_new=(16, 16, 9, 16), seeds=(3, 1, 4, 1))
    _, info = answer(family, method, range(4), request)
    between = np.sort(info.score)
    for deferred in (1, 3):
        alpha = -float((between[deferred - 1] + between[deferred]) / 2)
        asked = request._replace(alpha=jnp.full(4, alpha))
        together, info = answer(family, method, range(4), asked)
        assert info.deferred.sum() == deferred
        for row in range(4):
            alone, one = answer(family, method, [row], asked)
            same(alone, jax.tree.map(lambda x, row=row: x[row : row + 1], together))
            for a, b in zip(one[:3], info[:3], strict=True):
                np.testing.assert_allclose(a, b[row : row + 1], rtol=1e-5)


@pytest.mark.parametrize("family", families("gemma", "t5"))
def test_the_greedy_hybrid_is_the_plain_cascade_token_for_token(family):
    """And it spares the target the calls for the drafts that stand."""
    model, n, b = tiny.FAMILIES[family], 24, 16
    prompts = jax.random.randint(jax.random.key(9), (2 * b, 7), 2, V if family == "markov" else 40)[b:]
    lengths = jnp.full(b, 7)
    both = [Sequence(model.drafter, model.target, "sum", 0.0, verify) for verify in (False, True)]

    def answers(method, alpha):
        asked = laws.request([Setting(alpha, temperature=0.0)], b, eos=-1)
        return sequence.run(method, model.params, prompts, lengths, asked, n)

    (plain, _), (hybrid, info) = (answers(method, -np.inf) for method in both)
    same(hybrid[:3], plain[:3])
    np.testing.assert_array_equal(plain.ledger.calls["target"], n)
    # The call that verifies also gives the token behind what stands.
    np.testing.assert_array_equal(hybrid.ledger.calls["target"], np.maximum(n - info.kept, 1))
    np.testing.assert_array_equal(hybrid.ledger.calls["drafter"], n + 1)
    assert 0 < info.kept.sum() < b * n
    drafts = np.asarray(answers(both[0], np.inf)[0].tokens)
    agree = np.cumprod(drafts == np.asarray(hybrid.tokens), axis=1).sum(1)
    np.testing.assert_array_equal(info.kept, agree)


@pytest.mark.parametrize("eos", [True, False], ids=["eos", "limit"])
@pytest.mark.parametrize("wrong", [(), (5,), (1,)], ids=["never", "once", "at-once"])
def test_the_hybrid_stops_and_counts_as_by_hand(wrong, eos):
    ends = np.arange(1, 13)
    limits = {"eos": ends, "max_new": 20} if eos else {"max_new": ends}
    request = laws.request([Setting(-np.inf, temperature=0.0)], 12, **limits)
    prompts, lengths = jnp.zeros((12, 2), jnp.int32), jnp.full(12, 2)
    method = Sequence(COUNT, COUNT, verify=True)
    got, info = sequence.run(method, counting(wrong), prompts, lengths, request, 20)
    np.testing.assert_array_equal(got.length, ends)
    assert bool(got.ended.all()) == eos
    for row, end in enumerate(ends):
        np.testing.assert_array_equal(got.tokens[row], [*range(1, end + 1), *[0] * (20 - end)])
        kept = min([end, *(w - 1 for w in wrong)])
        assert info.kept[row] == kept
        assert int(got.ledger.calls["target"][row]) == max(end - kept, 1)


def test_edits_count_in_both_stages():
    """A forbidden id is never seen, a penalty grows along the draft: greedy hybrid and plain still agree."""
    request = laws.request([Setting(-np.inf, temperature=0.0), Setting(-np.inf)], 20, eos=END, max_new=12)
    b = len(request.seed)
    bias = jnp.zeros((b, V)).at[:, 1].set(-jnp.inf)
    edits = Edits(bias, jnp.linspace(1.0, 3.0, b), jnp.zeros((b, V), bool).at[:, 2].set(True))
    request = request._replace(edits=edits)
    (plain, _), (hybrid, info) = (run(cascade(verify=v), request, 12) for v in (False, True))
    for got in (plain, hybrid):
        inside = np.arange(12) < np.asarray(got.length)[:, None]
        assert not (np.asarray(got.tokens)[inside] == 1).any()
    same(*(jax.tree.map(lambda x: x[:20], x[:3]) for x in (plain, hybrid)))
    assert info.kept[:20].sum() > 0


def test_a_rows_capacity_is_a_limit():
    request = ask(-np.inf, rows=2, eos=-1)
    request = request._replace(capacity=jnp.asarray([0, 1, 3, 12] * 2))
    for verify in (False, True):
        got, info = run(cascade(verify=verify), request, 12)
        due = np.minimum(np.asarray(request.max_new_tokens), np.asarray(request.capacity))
        np.testing.assert_array_equal(got.length, due)
        assert (info.kept <= due).all()


def test_the_drafters_stage_draws_from_the_drafts_noise():
    """Both stages on one model and seed: the answers are two independent draws."""
    params = {"target": laws.tables()["drafter"], "drafter": laws.tables()["drafter"]}
    request = laws.request([Setting()], 4000, eos=-1, max_new=N)
    keeping, deferring = (
        run(cascade(), request._replace(alpha=jnp.full(4000, a)), params=params)[0]
        for a in (jnp.inf, -jnp.inf)
    )
    same_token = (np.asarray(keeping.tokens[:, 0]) == np.asarray(deferring.tokens[:, 0])).mean()
    q = chances((0,), laws.pairs(Setting()).q)[1][0]
    due = (q**2).sum()
    assert abs(same_token - due) < 5 * np.sqrt(due * (1 - due) / 4000)


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="'mean' is not one of sum, average, quantile"):
        cascade("mean")
    for quantile in (-0.1, 1.5, float("nan")):
        with pytest.raises(ValueError, match=r"must lie in 0\.\.1"):
            cascade("quantile", quantile)
    with pytest.raises(ValueError, match="5 and 6"):
        Sequence(laws.LM, Markov(6))
    assert set(SCORES) == {"sum", "average", "quantile"}
    assert Scored(laws.LM) == Scored(laws.LM)
