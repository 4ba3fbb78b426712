"""Prices along stored texts: exact formulas, blocks by enumeration, and what decoding measures."""

import itertools
import json
from dataclasses import asdict, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toys

from spec_cascades import cli, replay, sweep
from spec_cascades.config import ConfigError, Decoding, Models, Sweep, Task, load
from spec_cascades.probs import Pair
from spec_cascades.replay import pricing, store
from spec_cascades.replay.settings import Replay
from spec_cascades.rules import RULES

ALPHAS = [0.0, 0.2, 0.6]
PROMPTS = ["1 3 2", "2 2", "3 1 1 0", "0 1", "1 1", "3 3 2"]


def pairs(n=40, v=30, temperature=0.7, scale=2):
    """Random laws, sampled ones sharper than raw ones."""
    logits = scale * jax.random.normal(jax.random.key(3), (2, n, v))
    soft = lambda x: np.asarray(jax.nn.softmax(x))
    return Pair(*(soft(x / temperature) for x in logits), *map(soft, logits))


def exact(name, pair, alpha):
    """P(reject) by the formulas of the paper (Lemma 3) and those derived from it, for dense arrays [n, v]."""
    q, p, q_raw, p_raw = (np.asarray(x, np.float64) for x in pair)
    distance = np.maximum(q - p, 0).sum(-1)
    top = lambda x: x.max(-1)
    deferred = {
        "lossless": np.ones(len(q)),
        "drafter_only": np.zeros(len(q)),
        "chow": top(q_raw) < 1 - alpha,
        "diff": top(q_raw) < top(p_raw) - alpha,
        "opt": top(q_raw) < top(p_raw) - alpha * distance,
    }
    if name in deferred:
        return deferred[name] * distance
    if name == "lossy":
        return np.maximum(q - p / (1 - alpha), 0).sum(-1)
    if name == "ensemble":
        return (1 - alpha) * distance
    if name == "tv_bound":
        return np.maximum(distance - alpha, 0)
    r = {
        "v1": q_raw < top(p_raw)[:, None] - alpha,
        "v2": p_raw < top(p_raw)[:, None] - alpha,
        "v3": p_raw < (1 - alpha) * top(p_raw)[:, None],
    }[name]
    eta = (r * q).sum(-1, keepdims=True)
    return (r * np.maximum(q - eta * p, 0)).sum(-1)


FORMULAS = "lossless drafter_only chow diff opt lossy ensemble tv_bound v1 v2 v3".split()


@pytest.mark.parametrize("name", FORMULAS)
def test_rejections_are_those_of_the_formulas(name):
    pair = pairs()
    rows = store.sparse(pair, 0.0)
    assert rows.counts.tolist() == [30] * 40
    found = pricing.rejections(rows, RULES[name], ALPHAS)
    for alpha, mine in zip(ALPHAS, found, strict=True):
        np.testing.assert_allclose(mine, exact(name, pair, alpha), atol=1e-5)


@pytest.mark.parametrize("name", sorted(RULES))
def test_sparse_prices_are_the_dense_ones_but_for_the_remainder(name, monkeypatch):
    pair, remainder = pairs(v=120, scale=5), 1e-3
    rows = store.sparse(pair, remainder)
    assert rows.counts.max() < 100
    alphas = [*ALPHAS, float(RULES[name].default)]
    dense = lambda alpha: np.maximum(pair.q - RULES[name].pi(Pair(*map(jnp.asarray, pair)), alpha), 0).sum(-1)
    whole = pricing.rejections(rows, RULES[name], alphas)
    np.testing.assert_allclose(whole, [dense(jnp.full((40, 1), a)) for a in alphas], atol=4 * remainder)
    monkeypatch.setattr(pricing, "ENTRIES", 7 * 128)
    np.testing.assert_allclose(pricing.rejections(rows, RULES[name], alphas), whole, atol=1e-6)


def test_what_is_left_out_is_no_more_than_the_remainder():
    pair = pairs()
    for remainder in (1e-2, 1e-4):
        rows = store.sparse(pair, remainder)
        for x, kept in zip(pair, store.dense(rows, rows.width).values(), strict=True):
            left = x.sum(-1) - kept.sum(-1)
            assert left.max() <= remainder + 1e-6
    assert store.sparse(pair, 1e-2).counts.sum() < store.sparse(pair, 1e-4).counts.sum()


def counted(stands, gamma):
    """Blocks by enumeration of every outcome of the drafts' coins, as `verify` and the ledger have it."""
    t, calls, judged, accepted = len(stands), 0.0, np.zeros(gamma), np.zeros(gamma)
    for coins in itertools.product([True, False], repeat=t):
        weight = np.prod([x if c else 1 - x for x, c in zip(stands, coins, strict=True)])
        at = 0
        while at < t:
            calls += weight
            for i in range(gamma):
                if at == t:
                    break
                judged[i] += weight
                at += 1
                if not coins[at - 1]:
                    break
                accepted[i] += weight
            else:
                at += 1  # the bonus token
    return calls, judged, accepted


@pytest.mark.parametrize("gamma", [1, 2, 3, 9])
def test_blocks_are_those_of_every_outcome(gamma):
    stands = np.array([0.9, 0.3, 1.0, 0.0, 0.6, 0.8, 0.5])
    found = pricing.blocks(stands, gamma)
    calls, judged, accepted = counted(stands, gamma)
    assert found.tokens == 7
    np.testing.assert_allclose(found.calls, calls)
    np.testing.assert_allclose(found.judged, judged)
    np.testing.assert_allclose(found.accepted, accepted)


def test_prices_of_several_answers_are_of_their_sums():
    rejected = np.array([0.1, 0.5, 0.2, 0.9, 0.4])
    price = pricing.price(rejected, [3, 2], 2)
    parts = [pricing.blocks(1 - rejected[:3], 2), pricing.blocks(1 - rejected[3:], 2)]
    judged, accepted = (sum(getattr(b, key).sum() for b in parts) for key in ("judged", "accepted"))
    assert price.rejection_rate == pytest.approx(1 - accepted / judged)
    assert price.tokens_per_target_call == pytest.approx(5 / sum(b.calls for b in parts))
    assert price.acceptance == pytest.approx(0.58)
    assert price.tokens_error > 0
    assert pricing.price(rejected, [5], 2).tokens_error is None


# ------------------------------------------------------------------------------------------
# Along real texts


@pytest.fixture
def task(tmp_path):
    path = tmp_path / "task.tsv"
    path.write_text("".join(f"{prompt}\t1 2\n" for prompt in PROMPTS))
    return Task(path=str(path))


def config(tmp_path, task, points=({"rule": "lossless"},), **changes):
    base = Decoding(temperature=1.0, max_new_tokens=12, gamma=2, batch_size=2)
    common = dict(task=task, output=str(tmp_path / "out"), models=Models("toy", "toy", "float32"), base=base)
    return Replay(points=list(points), **(common | changes))


@pytest.mark.parametrize("gamma", [1, 3])
def test_greedy_lossless_prices_are_what_decoding_measures(tmp_path, task, gamma):
    """The text is the rule's own, and every coin is 0 or 1: nothing is estimated."""
    engine = toys.engine()
    greedy = Decoding(temperature=0.0, max_new_tokens=12, batch_size=2)
    run = Sweep(
        task,
        str(tmp_path / "m"),
        Models("toy", "toy", "float32"),
        greedy,
        [{"rule": "lossless", "gamma": gamma}],
    )
    (measured,) = sweep.run(run, engine)
    asked = config(tmp_path, task, run.points, base=greedy, measured=run.output)
    (record,) = replay.run(asked, engine)
    assert record["measured"]["rejection_rate"] == pytest.approx(measured["rates"]["rejection_rate"])
    assert 0 < record["rejection_rate"] < 1
    assert record["measured"]["difference"] == pytest.approx(
        {"rejection_rate": 0, "tokens_per_target_call": 0}, abs=1e-6
    )
    np.testing.assert_allclose(
        record["acceptance_by_position"], measured["rates"]["acceptance_by_position"], atol=1e-6
    )


def test_sampled_prices_are_near_what_decoding_measures(tmp_path, task):
    engine = toys.engine()
    base = Decoding(temperature=1.0, max_new_tokens=12, gamma=2, batch_size=6)
    points = [{"rule": "lossless"}, {"rule": "ensemble", "alpha": 0.3}]
    models = Models("toy", "toy", "float32")
    sweep.run(Sweep(task, str(tmp_path / "m"), models, base, points, repeats=40), engine)
    asked = config(tmp_path, task, points, base=base, measured=str(tmp_path / "m"), repeats=40)
    for record in replay.run(asked, engine):
        gaps = record["measured"]["difference"]
        assert abs(gaps["rejection_rate"]) < 0.03
        assert abs(gaps["tokens_per_target_call"]) < 0.06
        assert 0 < record["rejection_error"] < 0.02


def test_other_points_are_priced_from_the_store_without_a_model(tmp_path, task, monkeypatch, capsys):
    first = replay.run(config(tmp_path, task), toys.engine())
    assert "no model" not in capsys.readouterr().err

    def loads(*arguments, **named):
        raise AssertionError("an engine was made")

    monkeypatch.setattr("spec_cascades.engine.Engine", loads)
    points = [{"rule": "v3", "alpha": [0.2, 0.8], "gamma": [1, 4]}, {"rule": "opt"}, {"rule": "lossless"}]
    more = replay.run(config(tmp_path, task, points))
    assert "no model is loaded" in capsys.readouterr().err
    assert [r["name"] for r in more][:2] == ["v3 alpha=0.2 gamma=1", "v3 alpha=0.2 gamma=4"]
    assert more[-1]["rejection_rate"] == first[0]["rejection_rate"]
    assert len({r["rejection_rate"] for r in more}) > 4
    written = [json.loads(x) for x in (tmp_path / "out" / replay.PRICES).read_text().splitlines()]
    assert [r["name"] for r in written] == [r["name"] for r in more]
    assert all("divergence" in r["estimate"] and r["measured"] is None for r in written)
    with pytest.raises(AssertionError, match="an engine was made"):
        replay.run(config(tmp_path / "new", task, points))


def test_a_killed_run_goes_on_and_stores_the_same(tmp_path, task, monkeypatch):
    whole = replay.run(config(tmp_path / "whole", task), toys.engine())
    engine, write, written = toys.engine(), store.write, []

    def dies(path, rows):
        if len(written) == 1:
            raise KeyboardInterrupt
        written.append(path.name)
        write(path, rows)

    asked = config(tmp_path, task)
    monkeypatch.setattr(store, "write", dies)
    with pytest.raises(KeyboardInterrupt):
        replay.run(asked, engine)
    monkeypatch.setattr(store, "write", lambda path, rows: (written.append(path.name), write(path, rows)))
    again = replay.run(asked, engine)
    assert written == ["pairs-0-000000.npz", "pairs-0-000002.npz", "pairs-0-000004.npz"]
    assert again[0]["rejection_rate"] == whole[0]["rejection_rate"]
    assert again[0]["n_positions"] == whole[0]["n_positions"] > 5


def test_a_store_is_of_one_configuration_and_damage_is_said(tmp_path, task):
    asked, engine = config(tmp_path, task), toys.engine()
    replay.run(asked, engine)
    with pytest.raises(ConfigError, match=r"drawn\.temperature"):
        replay.run(replace(asked, base=replace(asked.base, temperature=0.5)), engine)
    replay.run(replace(asked, base=replace(asked.base, gamma=7, rule="opt")), engine)
    file = Path(asked.output) / "pairs-0-000002.npz"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(ConfigError, match=r"pairs-0-000002\.npz of the store cannot be read"):
        replay.run(asked, engine)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"points": [{"temperature": 0.5}]}, "varies temperature"),
        ({"points": [{"method": "target"}]}, "prices method speculative"),
        ({"points": [{"lengths": "adaptive"}]}, "lengths 'adaptive'"),
        ({"text": "rule"}, "text: 'rule'"),
        ({"remainder": 0.5}, "remainder"),
        ({"models": Models("toy", None)}, r"models\.drafter"),
    ],
)
def test_what_no_store_can_price_is_refused(tmp_path, task, changes, words):
    with pytest.raises(ConfigError, match=words):
        config(tmp_path, task, **changes)


def test_measured_figures_are_of_the_same_models_and_task_and_of_that_point_alone(tmp_path, task):
    engine, asked = toys.engine(), config(tmp_path, task)
    points = [{"rule": "v3", "alpha": 0.5}, {"method": "target"}]
    run = Sweep(task, str(tmp_path / "m"), asked.models, asked.base, points)
    sweep.run(run, engine)
    asked = replace(asked, points=[{"rule": "v3", "alpha": [0.5, 0.4]}, {"rule": "v1"}], measured=run.output)
    records = replay.run(asked, engine)
    assert [bool(r["measured"]) for r in records] == [True, False, False]
    with pytest.raises(ConfigError, match=r"another models\.dtype"):
        replay.run(replace(asked, models=Models("toy", "toy")), engine)
    with pytest.raises(ConfigError, match=r"another task\.limit"):
        replay.run(replace(asked, task=replace(task, limit=2)), engine)


def test_the_command_prices_and_refuses(tmp_path, task, capsys, monkeypatch):
    monkeypatch.setattr("spec_cascades.engine.Engine", lambda **models: toys.engine())
    path = tmp_path / "r.yaml"
    path.write_text(
        f"task: {{path: {task.path}}}\noutput: {tmp_path / 'out'}\nmodels: {{dtype: float32}}\n"
        "base: {temperature: 1, max_new_tokens: 8}\npoints: [{rule: v3, alpha: [0.2, 0.8]}]\n"
    )
    assert cli.main(["replay", str(path)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "v3 alpha=0.8" in told
    assert "estimates past the first divergence" in told
    assert cli.main(["replay", str(path), "base.temperatur=0"]) == 2
    assert "did you mean 'temperature'" in capsys.readouterr().err


def test_the_configuration_that_ships_is_read():
    asked = load(Replay, Path(__file__).parents[1] / "configs" / "checks" / "replay.yaml")
    assert {p["rule"] for p in asked.points} <= set(RULES)
    assert asdict(asked)["base"]["temperature"] == 1
