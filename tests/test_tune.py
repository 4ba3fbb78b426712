"""A setting for a demand: the bounds that a choice needs, and choosing, confirming and resuming with them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml
from fakes import FakeEngine
from scipy import stats

from spec_cascades import runlog, sweep, tuning
from spec_cascades.config import ConfigError, Decoding, Evaluate, Generate, Sweep, Task, load
from spec_cascades.tasks.asked import ask
from spec_cascades.tuning import bounds, showing
from spec_cascades.tuning.settings import Demand, Tune

FAKES = Path(__file__).with_name("fakes.py")
EVERYDAY = "embedded:en-de-everyday"
POINTS = [{"rule": "lossless"}, {"rule": "v3", "alpha": [0.0, 0.5, 0.9]}, {"method": "drafter"}]


def settings(tmp_path, **more):
    given = {"points": POINTS, "base": Decoding(temperature=1.0)} | more
    if "records" not in given:
        given["task"] = given.get("task", Task(EVERYDAY, limit=60))
    return Tune(str(tmp_path / "out"), **given)


def engine():
    return FakeEngine("t", "d", "float32")


# ------------------------------------------------------------------------------------------
# Bounds


def test_one_bound_is_the_ordinary_one():
    x = np.random.default_rng(0).normal(40, 10, 80)
    (low,) = bounds.bounds(bounds.scores([x], 0), 0.95)
    assert low == pytest.approx(x.mean() - stats.t.ppf(0.95, 79) * x.std(ddof=1) / np.sqrt(80), abs=0.15)
    (high,) = bounds.bounds(bounds.scores([x], 0), 0.95, upper=True)
    assert high - x.mean() == pytest.approx(x.mean() - low, abs=0.3)


def test_more_points_cost_more_and_points_that_err_alike_cost_nothing():
    rng = np.random.default_rng(1)
    rows = list(rng.normal(0, 1, (20, 100)))
    alone, among = (bounds.bounds(bounds.scores(r, 0), 0.95)[0] for r in (rows[:1], rows))
    assert among < alone - 0.5 * rows[0].std() / 10
    alike = bounds.bounds(bounds.scores([rows[0]] * 20, 0), 0.95)
    np.testing.assert_allclose(alike, alone)


def test_what_does_not_vary_is_its_own_bound_and_few_examples_bound_nothing():
    same, noisy = np.full(30, 5.0), np.random.default_rng(0).normal(0, 1, 30)
    assert bounds.bounds(bounds.scores([same, noisy], 0), 0.95)[0] == 5.0
    with pytest.raises(ConfigError, match="at least 20"):
        bounds.bounds(bounds.scores([same[:19]], 0), 0.95)


def one(sampled, j):
    """The same sample as if point j had been the only one."""
    value, error, draws, errors, n = sampled
    return bounds.Sampled(value[[j]], error[[j]], draws[:, [j]], errors[:, [j]], n)


def test_the_error_of_a_bleu_is_that_of_its_bootstrap():
    rng = np.random.default_rng(0)
    length = rng.integers(5, 15, (400, 1))  # of an answer; its reference is longer
    totals = length - np.arange(4)
    right = rng.binomial(totals, [0.7, 0.5, 0.35, 0.25])
    rows = np.concatenate([right, totals, length, length + rng.integers(0, 4, (400, 1))], axis=1)
    other = rows.copy()
    other[:, :4] = rng.binomial(rows[:, :4], 0.9)
    for less in (None, other):
        found = bounds.scores([rows], 0, less)
        assert found.error[0] == pytest.approx(found.draws.std(), rel=0.1)
        assert found.errors.mean() == pytest.approx(found.error[0], rel=0.1)
    assert found.value[0] == pytest.approx(
        bounds.text.bleu_of(rows.sum(0)) - bounds.text.bleu_of(other.sum(0))
    )


def answers(rng, n, m, p):
    """Right or wrong [m, n], 0 or 100: examples are easy or hard for all points, each right with chance p."""
    ease = stats.norm.ppf(p) * np.sqrt(2) + rng.normal(0, 1, n)
    return 100.0 * (ease + rng.normal(0, 1, (m, n)) > 0)


@pytest.mark.parametrize("p", [0.5, 0.8])
def test_the_chance_to_certify_a_point_that_violates_is_the_stated_one(p, monkeypatch):
    """Many points, all of them just below the floor: what looks good among them is noise."""
    monkeypatch.setattr(bounds, "RESAMPLES", 400)
    rng, trials, delta, floor = np.random.default_rng(2), 400, 0.1, 100 * p + 1e-9
    simultaneous = singly = 0
    for trial in range(trials):
        sampled = bounds.scores(answers(rng, 60, 15, p), trial)
        simultaneous += (bounds.bounds(sampled, 1 - delta) >= floor).any()
        singly += any(bounds.bounds(one(sampled, j), 1 - delta)[0] >= floor for j in range(15))
    within = delta + 3 * np.sqrt(delta * (1 - delta) / trials)
    assert simultaneous / trials <= within
    assert singly / trials > 2 * within


def test_times_are_medians_of_pairs_resampled_by_batch():
    target = np.random.default_rng(0).uniform(1, 9, (2, 40))
    found = bounds.times([0.5 * target, target + 1], target, 0)
    assert found.n == 40
    assert found.value.tolist() == [0.5, np.median((target + 1) / target)]
    low, high = (bounds.bounds(found, 0.95, upper) for upper in (False, True))
    assert low[0] == high[0] == 0.5
    assert low[1] < found.value[1] < high[1]


# ------------------------------------------------------------------------------------------
# Choosing


def row(name, score, relative, meets):
    return tuning.Row(name, score, relative, 0.0, 0.0, meets)


def test_the_fastest_under_a_demand_on_quality_and_the_best_under_one_on_time():
    rows = [row("a", 9.0, 0.9, True), row("b", 5.0, 0.2, True), row("c", 99.0, 0.1, False)]
    assert [tuning.best(Demand(kind, 1.0), rows).point for kind in ("floor", "loss")] == ["b", "b"]
    assert [tuning.best(Demand(kind, 1.0), rows).point for kind in ("ceiling", "ceiling_ms")] == ["a", "a"]
    assert tuning.best(Demand("floor", 1.0), rows[2:]) is None


def lines(folder):
    rows = [json.loads(x) for x in (folder / runlog.EXAMPLES).read_text().splitlines()]
    return [x for x in rows if x["kind"] == "batch"]


def test_a_loss_is_met_on_one_part_and_confirmed_on_the_other(tmp_path):
    config = settings(tmp_path, loss=60.0)
    tuned = tuning.run(config, engine())
    assert tuned.succeeded
    assert tuned.chosen.relative == min(r.relative for r in tuned.rows if r.meets)
    assert len(tuned.rows) == 5
    tried, held = lines(tmp_path / "out/validation"), lines(tmp_path / "out/held_out")
    assert {x["point"] for x in held} == {"target", tuned.chosen.point.name}
    assert (len(tried), len(held)) == (6 * 30, 2 * 30)
    assert not {x["seed"] for x in tried} & {x["seed"] for x in held}
    both = [load_task(tmp_path / "out" / part) for part in ("validation", "held_out")]
    assert both == [(30, None, 0), (30, 30, 0)]
    parts = [ask(Task(EVERYDAY, limit=n, skip=m, shuffle=s)).examples for n, m, s in both]
    assert set(parts[0]) | set(parts[1]) == set(ask(Task(EVERYDAY, limit=60, shuffle=0)).examples)
    # The held-out figure is what a run of these examples gives.
    name, base = tuned.chosen.point.name, Decoding(temperature=1.0, seed=30)
    plain = Sweep(
        Task(EVERYDAY, limit=30, skip=30, shuffle=0), str(tmp_path / "plain"), base=base, points=POINTS
    )
    (record,) = [r for r in sweep.run(plain, engine()) if r["name"] == name]
    assert tuned.confirmed.score == record["quality"]["bleu"]


def load_task(folder):
    task = yaml.safe_load((folder / runlog.CONFIG).read_text())["task"]
    return tuple(task[key] for key in ("limit", "skip", "shuffle"))


def test_what_is_written_is_what_generate_and_evaluate_take(tmp_path):
    tuned = tuning.run(settings(tmp_path, ceiling=0.99), engine())
    path = tmp_path / "tuned.yaml"
    path.write_text(showing.configuration(tuned))
    decoding = tuned.chosen.point.decoding
    assert load(Generate, path).decoding == decoding
    assert load(Evaluate, path, [f"task.path={EVERYDAY}", "output=x"]).decoding == decoding
    assert all(line.startswith("#") for line in path.read_text().splitlines()[:3])


def test_a_choice_that_does_not_hold_is_said_to_be_unconfirmed(tmp_path):
    """The held-out references have nothing to do with the prompts."""
    texts = [f"one two three four five six seven {i}" for i in range(30)]
    (tmp_path / "tried.tsv").write_text("".join(f"{x}\t{x}\n" for x in texts))
    (tmp_path / "held.tsv").write_text("".join(f"{x}\tnothing of the kind at all\n" for x in texts))
    tried, held = (Task(str(tmp_path / name)) for name in ("tried.tsv", "held.tsv"))
    tuned = tuning.run(settings(tmp_path, task=tried, held_out=held, floor=20.0), engine())
    assert tuned.chosen is not None
    assert not tuned.succeeded
    assert "not confirmed" in showing.verdict(tuned)
    assert "held out: not confirmed" in showing.table(tuned)


def test_nothing_is_chosen_where_nothing_meets_the_demand(tmp_path):
    tuned = tuning.run(settings(tmp_path, floor=101.0), engine())
    assert tuned.chosen is tuned.confirmed is None
    assert "No setting meets the demand" in showing.verdict(tuned)
    assert not (tmp_path / "out/held_out").exists()
    assert "yes" not in showing.table(tuned)


def test_a_second_task_is_held_out(tmp_path):
    config = settings(tmp_path, ceiling_ms=1e6, held_out=Task(EVERYDAY, skip=70, limit=25))
    assert tuning.run(config, engine()).succeeded
    assert load_task(tmp_path / "out/validation") == (60, None, None)
    assert load_task(tmp_path / "out/held_out") == (25, 70, None)


def test_a_finished_run_is_chosen_from_without_decoding(tmp_path):
    base = Decoding(max_new_tokens=32)
    points = [{"method": "target"}, *POINTS, {"method": "target", "temperature": 1.0}]
    done = Sweep(Task(EVERYDAY), str(tmp_path / "done"), base=base, points=points)
    sweep.run(done, engine())
    tuned = tuning.run(settings(tmp_path, records=done.output, points=[], base=Decoding(), loss=60.0))
    anew = tuning.run(settings(tmp_path / "anew", task=Task(EVERYDAY), base=base, loss=60.0), engine())
    # Greedy answers are the same: so are the parts, though in another order.
    for ours, theirs in zip([*tuned.rows, tuned.confirmed], [*anew.rows, anew.confirmed], strict=True):
        assert ours.point.name == theirs.point.name
        assert ours[1:4] == pytest.approx(theirs[1:4])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "exactly one of floor, loss"),
        ({"floor": 1.0, "loss": 1.0}, "exactly one"),
        ({"loss": 1.0, "validation": 1.0}, "validation"),
        ({"loss": 1.0, "ceiling": None, "points": []}, "points"),
        ({"loss": 1.0, "records": "x"}, "points, held_out, repeats"),
        ({"loss": 1.0, "points": [{"batch_size": 4}]}, "batch_size"),
        ({"loss": 1.0, "points": [{"rule": "v33"}]}, "rule"),
        ({"ceiling": -1.0}, "ceiling"),
    ],
)
def test_bad_settings_are_named(tmp_path, more, words):
    with pytest.raises(ConfigError, match=words):
        settings(tmp_path, **more)


def test_examples_are_skipped_before_they_are_limited(tmp_path):
    whole = ask(Task(EVERYDAY)).examples
    assert ask(Task(EVERYDAY, skip=3, limit=4)).examples == whole[3:7]
    assert ask(Task(EVERYDAY, skip=3)).examples == whole[3:]
    rows = tmp_path / "own.jsonl"
    rows.write_text("".join(json.dumps({"input": f"i{i}", "target": f"t{i}"}) + "\n" for i in range(9)))
    named = ask(Task(str(rows), name="local", skip=7))
    assert [e.source for e in named.examples] == ["i7", "i8"]
    for task in (Task(EVERYDAY, skip=10**6), Task(str(rows), name="local", skip=9)):
        with pytest.raises(ConfigError, match=r"task\.skip"):
            ask(task)
    mixed = ask(Task(EVERYDAY, shuffle=1)).examples
    assert mixed != whole
    assert sorted(mixed) == sorted(whole)
    assert ask(Task(EVERYDAY, shuffle=1, skip=5, limit=2)).examples == mixed[5:7]
    for key in ("skip", "shuffle"):
        with pytest.raises(ConfigError, match=key):
            Task(EVERYDAY, **{key: -1})


# ------------------------------------------------------------------------------------------
# As a process


def command(tmp_path, *overrides, delay="0"):
    path = tmp_path / "tune.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "task": {"path": EVERYDAY, "limit": 60},
                "base": {"temperature": 1.0},
                "points": POINTS,
                "output": str(tmp_path / "out"),
                "loss": 60.0,
            }
        )
    )
    return [sys.executable, str(FAKES), "--delay", delay, "tune", str(path), *overrides]


def test_killed_in_either_part_it_goes_on_and_chooses_the_same(tmp_path):
    for part, goal in (("validation", 40), ("held_out", 10)):
        log = tmp_path / "out" / part / runlog.EXAMPLES
        process = subprocess.Popen(
            command(tmp_path, delay="0.01"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 60
        count = lambda log=log: log.read_bytes().count(b'"kind": "batch"') if log.exists() else 0
        while count() < goal and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert goal <= count() < (180 if part == "validation" else 60)
    done = subprocess.run(command(tmp_path), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    straight = subprocess.run(
        command(tmp_path, f"output={tmp_path / 'straight'}"), capture_output=True, text=True
    )
    assert done.stdout == straight.stdout
    assert "chosen" in done.stdout
    assert (tmp_path / "out/tuned.yaml").read_text() == (tmp_path / "straight/tuned.yaml").read_text()
    for part, n in (("validation", 180), ("held_out", 60)):
        units = [(x["point"], x["repeat"], x["first"]) for x in lines(tmp_path / "out" / part)]
        assert len(units) == len(set(units)) == n


def test_without_a_setting_it_exits_with_1_and_leaves_no_configuration(tmp_path):
    assert subprocess.run(command(tmp_path), capture_output=True).returncode == 0
    assert (tmp_path / "out/tuned.yaml").exists()
    done = subprocess.run(command(tmp_path, "loss=-50"), capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "No setting meets the demand" in done.stdout
    assert not (tmp_path / "out/tuned.yaml").exists()
    done = subprocess.run(command(tmp_path, "loss=null"), capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
