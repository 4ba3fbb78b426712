import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_traces import answer, batch, run_folder

from spec_cascades import config, simulate
from spec_cascades.checks import ConfigError
from spec_cascades.simulate import costs, curves, plans, traces
from spec_cascades.simulate.settings import Bursts, Simulate

POINTS = [
    {"method": "target"},
    {"rule": "lossless"},
    {"method": "token", "rule": "chow", "alpha": 0.5},
    {"method": "sequence", "alpha": 0.3},
]


@pytest.fixture
def asked(tmp_path, call_times):
    """Three examples under four methods; the sequence cascade defers the second alone."""
    lines = []
    for i, n in enumerate((6, 9, 20)):
        lines += [
            batch("target", 0, [answer(i, n, n)], seconds=1e-3 * (6 + 4 * n)),
            batch("lossless", 0, [answer(i, n, n // 3, n // 3 * 4)], seconds=1.0),
            batch("token chow alpha=0.5", 0, [answer(i, n, n // 2, n)], seconds=1.0),
            batch("sequence alpha=0.3", 0, [answer(i, n, n * (i == 1), n)], seconds=1.0),
        ]
    folder = run_folder(tmp_path / "run", POINTS, lines)
    out = str(tmp_path / "out")
    return Simulate(run=str(folder), call_times=str(call_times), output=out, rates=[1.0, 40.0], requests=400)


def trace_of(asked, name):
    return traces.read(Path(asked.run), [name])[1][0]


def test_one_request_at_a_time_is_the_sum_of_its_steps(asked, call_times):
    table = costs.read(call_times)
    alone = lambda name: curves.one_at_a_time(asked, trace_of(asked, name), table)
    assert alone("target") == pytest.approx(1e-3 * np.array([6 + 4 * n for n in (6, 9, 20)]))
    assert alone("lossless") == pytest.approx(1e-3 * np.array([4 + 8 * n for n in (2, 3, 6)]))
    token = [11.4 + 7 * (n // 2) + 0.6 * (n - n // 2) for n in (6, 9, 20)]
    assert alone("token chow alpha=0.5") == pytest.approx(1e-3 * np.array(token))
    sequence = [3.45 + 0.55 * n + (n == 9) * (6.8 + 4.2 * n) for n in (6, 9, 20)]
    assert alone("sequence alpha=0.3") == pytest.approx(1e-3 * np.array(sequence))
    row = curves.agreement(asked, trace_of(asked, "target"), table)
    assert row["mean_ratio"] == pytest.approx(1)
    assert row["off_by_10_percent"] == 0
    apart = replace(asked, servers=5, drafter_servers=2)
    assert curves.one_at_a_time(apart, trace_of(apart, "sequence alpha=0.3"), table) == pytest.approx(
        1e-3 * np.array(sequence)
    )


@pytest.mark.parametrize("apart", [0, 1])
def test_a_sequence_cascade_shows_a_token_once_it_is_known_who_answers(asked, call_times, apart):
    """A kept answer all at once; a deferred one after the drafter's 9 steps, a start and one step."""
    table, trace = costs.read(call_times), trace_of(asked, "sequence alpha=0.3")
    pools = plans.pools(trace, table, replace(asked, servers=2, drafter_servers=apart), 0)
    times = plans.simulate(pools, np.array([0.0, 10.0, 20.0]), np.arange(3), 4)
    assert times.first[[0, 2]] == pytest.approx(times.latency[[0, 2]])
    assert times.first[1] == pytest.approx(1e-3 * (3.45 + 0.55 * 9 + 6.8 + 4.2))
    assert times.latency[1] == pytest.approx(times.first[1] + 1e-3 * 4.2 * 8)


def test_capacity_is_what_a_full_server_answers(asked, call_times):
    """Equal answers of a start and 6 steps: 8 rows leave in a cycle worked out by hand."""
    table = costs.read(call_times)
    trace = trace_of(asked, "target")
    trace = trace._replace(answers=trace.answers[:1])
    grown = lambda ms, rows: 1e-3 * ms * (1 + 0.1 * (rows - 1))
    most = plans.capacity(plans.pools(trace, table, replace(asked, servers=3), 0), 8, 0)
    # The first comes alone and stays a step ahead of the other seven: in a cycle either starts once.
    cycle = grown(6, 1) + grown(4, 7) + grown(6, 7) + grown(4, 1) + 5 * grown(4, 8)
    assert most == pytest.approx(3 * 8 / cycle)
    # A row for itself cannot overlap with another: exactly one answer in each sum of steps.
    alone = plans.capacity(plans.pools(trace, table, replace(asked, servers=3), 0), 1, 0)
    assert alone == pytest.approx(3 / 0.030)


def test_the_slower_pool_bounds_a_sequence_cascade_whose_pools_are_apart(asked, call_times):
    table, trace = costs.read(call_times), trace_of(asked, "sequence alpha=0.3")
    apart = replace(asked, servers=12, drafter_servers=2)
    pools = plans.pools(trace, table, apart, 0)
    assert [pool.servers for pool in pools] == [2, 10]
    draft = np.mean([3.45 + 0.55 * n for n in (6, 9, 20)]) * 1e-3
    assert plans.capacity(pools, 1, 0) == pytest.approx(2 / draft, rel=0.1)
    pools = plans.pools(trace, table, replace(apart, drafter_servers=11), 0)
    # A third of the requests reach the one target.
    assert plans.capacity(pools, 1, 0) == pytest.approx(3 / (44.6e-3), rel=0.01)


def test_every_request_of_two_pools_is_answered(asked, call_times):
    table, trace = costs.read(call_times), trace_of(asked, "sequence alpha=0.3")
    pools = plans.pools(trace, table, replace(asked, servers=3, drafter_servers=1), 0)
    at = np.cumsum(np.random.default_rng(0).exponential(0.03, 500))
    which = np.arange(500) % 3
    times = plans.simulate(pools, at, which, 4)
    assert (times.waiting >= 0).all()
    assert (times.first > times.waiting).all()
    assert (times.first <= times.latency + 1e-12).all()
    kept = which != 1
    assert times.first[kept] == pytest.approx(times.latency[kept])
    assert (times.first[~kept] < times.latency[~kept]).all()
    assert times.row_seconds == pytest.approx(np.sum(times.latency - times.waiting))


def test_a_run_is_reproducible_and_its_seed_matters(asked):
    one, two = simulate.run(asked), simulate.run(asked)
    assert one == two
    assert simulate.run(replace(asked, seed=1)).rows != one.rows
    assert len(one.rows) == 4 * 2 * 2
    assert {row["point"] for row in one.agreement} == set(one.methods)


def test_load_shows_in_waits_and_in_cost(asked):
    asked = replace(asked, requests=4000, bursts=Bursts(seconds=0.5), points=["target"])
    quiet, busy, _, bursty = simulate.run(asked).rows
    rows = [quiet, busy]
    lone = 1e-3 * np.mean([6 + 4 * n for n in (6, 9, 20)])
    assert quiet["latency"]["mean"] == pytest.approx(lone, rel=0.1)
    assert busy["latency"]["mean"] > 1.3 * lone
    assert busy["busy_seconds_per_answer"] < quiet["busy_seconds_per_answer"]
    assert quiet["utilisation"] == pytest.approx(lone, rel=0.2)
    assert 0.2 < busy["utilisation"] <= 1
    assert busy["rows_in_batch"] > 1.5 > 1.2 > quiet["rows_in_batch"]
    for row in rows:
        assert row["latency"]["p50"] <= row["latency"]["p90"] <= row["latency"]["p99"]
        assert row["first_token"]["mean"] < row["latency"]["mean"]
    assert bursty["dispersion"] > 10
    assert bursty["latency"]["p99"] > 1.5 * busy["latency"]["p99"]


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("rates=[2,1]", ["rates", "ascending"]),
        ("rates=[]", ["rates", "at least one"]),
        ("arrivals=[posson]", ["arrivals", "posson", "poisson, bursty"]),
        ("max_batch=9", ["max_batch: 9", "8 or less"]),
        ("bursts.factor=20", ["bursts.factor", "20", "(1, 10]"]),
        ("drafter_servers=1", ["drafter_servers", "less than servers"]),
        ("points=[v4]", ["'v4'", "lossless"]),
        ("call_times=nowhere", ["call_times", "nowhere"]),
        ("run=nowhere", ["nowhere"]),
        ("sevrers=2", ["sevrers", "did you mean 'servers'"]),
    ],
)
def test_bad_input_is_named(asked, tmp_path, override, words):
    path = write(asked, tmp_path)
    with pytest.raises(ConfigError) as error:
        simulate.run(config.load(Simulate, path, [override]))
    for word in words:
        assert word in str(error.value)


def test_call_times_of_other_models_are_refused(asked, call_times):
    record = json.loads(call_times.read_text())
    record["models"]["target"] = "elsewhere"
    call_times.write_text(json.dumps(record))
    with pytest.raises(ConfigError, match="measured with target 'elsewhere'"):
        simulate.run(asked)


def write(asked, folder):
    path = folder / "simulate.yaml"
    own = {"run": asked.run, "call_times": asked.call_times, "output": asked.output}
    path.write_text(json.dumps(own | {"rates": asked.rates, "requests": asked.requests}))
    return path


def test_the_command_writes_rows_and_a_picture_and_says_what_it_found(asked, tmp_path):
    command = [
        sys.executable,
        "-m",
        "spec_cascades.cli",
        "simulate",
        str(write(asked, tmp_path)),
        "servers=2",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "one request at a time" in done.stdout
    assert "poisson: sequence alpha=0.3 against lossless: at 1/s" in done.stdout
    assert "bursty: sequence" in done.stdout
    assert "1 core " in done.stdout
    rows = [json.loads(line) for line in (Path(asked.output) / simulate.CURVES).read_text().splitlines()]
    assert len(rows) == 16
    assert {row["servers"] for row in rows} == {2}
    pytest.importorskip("matplotlib")
    from spec_cascades.simulate import plot

    drawn = (Path(asked.output) / simulate.PICTURE).read_bytes()
    assert drawn.startswith(b"\x89PNG")
    plot.draw(rows, tmp_path / "again.png")
    assert (tmp_path / "again.png").read_bytes() == drawn
