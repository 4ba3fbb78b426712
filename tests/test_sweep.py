import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from fakes import FakeEngine

from spec_cascades import evaluate, records, runlog, sweep
from spec_cascades.config import ConfigError, Decoding, Evaluate, Sweep, Task, expand, plain
from spec_cascades.metrics import rates

FAKES = Path(__file__).with_name("fakes.py")
EVERYDAY = "embedded:en-de-everyday"
POINTS = [
    {"method": "target"},
    {"method": "target", "min_p": 0.5},
    {"method": "drafter"},
    {"rule": "lossless"},
    {"rule": "v3", "alpha": [0.2, 0.8]},
]


@pytest.fixture
def engine():
    return FakeEngine("t", "d", "float32")


def make(tmp_path, points=POINTS, limit=12, repeats=2, **base):
    base = Decoding(**{"temperature": 1.0, **base})
    return Sweep(
        Task(EVERYDAY, limit=limit), str(tmp_path / "out"), base=base, points=points, repeats=repeats
    )


def lines(config):
    return [json.loads(line) for line in (Path(config.output) / runlog.EXAMPLES).read_text().splitlines()]


def batches(config):
    return [(b["point"], b["repeat"], b["first"]) for b in lines(config) if b["kind"] == "batch"]


def test_every_point_meets_every_example_once_a_repeat_in_turns(tmp_path, engine):
    config = make(tmp_path)
    sweep.run(config, engine)
    done = batches(config)
    names = [p.name for p in expand(config)]
    assert sorted(done) == sorted((n, r, i) for n in names for r in range(2) for i in range(12))
    leads = [done[k][0] for k in range(0, len(done), len(names))]
    assert leads == [names[k % len(names)] for k in range(24)]


def test_every_answer_has_a_seed_of_its_own_whatever_the_batch(tmp_path, engine):
    config = make(tmp_path, points=[{}], seed=5, alpha=0.5)
    sweep.run(config, engine)
    alone = {text: [] for text, _ in engine.asked}
    for text, seed in engine.asked[1:]:
        alone[text].append(seed)
    assert sorted(s for seeds in alone.values() for s in seeds) == list(range(5, 5 + 24))
    other = FakeEngine("t", "d", "float32")
    sweep.run(make(tmp_path / "b", points=[{}], seed=5, alpha=0.5, batch_size=5), other)
    assert sorted(other.asked[5:]) == sorted(engine.asked[1:])


def test_records_hold_what_a_reader_needs(tmp_path, engine):
    config = make(tmp_path)
    records = {r["name"]: r for r in sweep.run(config, engine)}
    assert list(records.values()) == runlog.read_records(Path(config.output))
    target, v3, drafter = records["target"], records["v3 alpha=0.2"], records["drafter"]
    assert "version:" in v3["quality"]["bleu_signature"]
    low, high = v3["quality"]["bleu_interval"]
    assert low < v3["quality"]["bleu"] < high
    assert target["against_target"]["relative_seconds"] == 1.0
    assert target["against_target"]["bleu_difference"] == 0.0
    assert records["target min_p=0.5"]["against_target"]["name"] == "target"
    assert drafter["against_target"]["bleu_difference"] < 0
    assert drafter["rates"]["rejection_rate"] is None
    assert drafter["tokens_per_target_call"] is None
    assert target["tokens_per_target_call"] == 1.0
    assert 1 < v3["tokens_per_target_call"] <= 2
    assert v3["latency"]["p50"] <= v3["latency"]["p90"]
    assert v3["latency"]["total"] == pytest.approx(24 * v3["latency"]["mean"])
    assert target["compile_seconds"] == drafter["compile_seconds"] == 2.0
    assert v3["decoding"] == plain(Decoding(temperature=1.0, alpha=0.2))
    assert v3["sampling"] == {"greedy": False, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    assert v3["seeds"]["last"] == 23
    assert {"jax", "python", "backend", "platform", "cpus", "spec_cascades"} <= v3["versions"].keys()
    assert (v3["n_examples"], v3["repeats"], v3["task"]["path"]) == (12, 2, EVERYDAY)


def test_greedy_echoes_no_filters_and_infinite_alpha_is_json(tmp_path, engine):
    config = make(tmp_path, points=[{"rule": "v3", "alpha": "-inf"}], temperature=0.0)
    (record,) = sweep.run(config, engine)
    assert record["sampling"] == {"greedy": True}
    text = (Path(config.output) / runlog.RECORDS).read_text()
    assert json.loads(text, parse_constant=lambda c: pytest.fail(c))["decoding"]["alpha"] == "-inf"
    assert record["against_target"] is None


def test_no_example_is_asked_twice_whatever_the_batch_sizes(tmp_path, engine):
    config = make(tmp_path, points=[{"batch_size": [2, 3, 4]}], limit=11, repeats=1, alpha=0.5)
    sweep.run(config, engine)
    for name in {line["point"] for line in lines(config) if line["kind"] == "batch"}:
        asked = [a["index"] for b in lines(config) if b.get("point") == name for a in b.get("answers", ())]
        assert sorted(asked) == list(range(11)), name


def test_batches_of_unlike_size_share_a_chunk(tmp_path, engine):
    config = make(tmp_path, points=[{"method": "target", "batch_size": [1, 5]}], repeats=1)
    records = sweep.run(config, engine)
    order = [(point, first) for point, _, first in batches(config)]
    assert order[:6] == [("target", i) for i in range(5)] + [("target batch_size=5", 0)]
    # The next chunk is led by the other point.
    assert order[6:8] == [("target batch_size=5", 5), ("target", 5)]
    assert sorted(order) == sorted(
        [("target", i) for i in range(12)] + [("target batch_size=5", i) for i in (0, 5, 10)]
    )
    assert [r["against_target"]["name"] for r in records] == ["target", "target batch_size=5"]
    assert all(len(r["quality"]["bleu_interval"]) == 2 for r in records)


def test_a_finished_sweep_runs_nothing_and_gives_the_same_records(tmp_path, engine):
    config = make(tmp_path)
    first = sweep.run(config, engine)
    asked = len(engine.asked)
    (Path(config.output) / runlog.RECORDS).unlink()
    assert sweep.run(config, engine) == first
    assert len(engine.asked) == asked


def test_another_configuration_is_refused_and_nothing_lost(tmp_path, engine):
    config = make(tmp_path)
    sweep.run(config, engine)
    before = {p.name: p.read_bytes() for p in Path(config.output).iterdir()}
    for other in (make(tmp_path, gamma=5), make(tmp_path, limit=11), make(tmp_path, points=POINTS[:3])):
        with pytest.raises(ConfigError, match="another configuration"):
            sweep.run(other, engine)
    assert {p.name: p.read_bytes() for p in Path(config.output).iterdir()} == before


def test_a_run_goes_on_under_a_schema_that_has_grown(tmp_path, engine):
    config = make(tmp_path)
    records = sweep.run(config, engine)
    path = Path(config.output) / runlog.CONFIG
    stored = yaml.safe_load(path.read_text())
    assert stored["models"].pop("weights") == "dtype"
    assert stored["base"].pop("samples") == 1
    path.write_text(yaml.safe_dump(stored))
    asked = len(engine.asked)
    assert sweep.run(config, engine) == records
    assert len(engine.asked) == asked
    other = replace(config, models=replace(config.models, weights="int8"))
    with pytest.raises(ConfigError, match=r"differs in models\.weights\)"):
        sweep.run(other, engine)


def test_other_examples_under_the_same_path_are_refused(tmp_path, engine):
    path = tmp_path / "pairs.tsv"
    path.write_text("a b\tA B\nc d\tC D\n")
    config = Sweep(Task(str(path)), str(tmp_path / "out"), base=Decoding(alpha=0.5))
    sweep.run(config, engine)
    path.write_text("a b\tA B\nc d\tC E\n")
    with pytest.raises(ConfigError, match="examples_sha256"):
        sweep.run(config, engine)


def test_each_batch_is_on_disk_before_the_next_begins(tmp_path, engine):
    config = make(tmp_path, points=POINTS[:3], repeats=1)
    log, seen = Path(config.output) / runlog.EXAMPLES, []

    def run(texts, decoding, real=engine.run):
        seen.append(count(log))
        return real(texts, decoding)

    engine.run = run
    sweep.run(config, engine)
    assert seen == [0] * 3 + list(range(36))


def test_a_torn_last_line_is_dropped_and_done_again(tmp_path, engine):
    config = make(tmp_path)
    whole = sweep.run(config, engine)
    log = Path(config.output) / runlog.EXAMPLES
    data = log.read_bytes()
    log.write_bytes(data[:-40])
    again = sweep.run(config, FakeEngine("t", "d", "float32"))
    assert len(set(batches(config))) == len(batches(config)) == 6 * 24
    assert [r["quality"] for r in again] == [r["quality"] for r in whole]


def test_a_damaged_line_inside_is_named(tmp_path, engine):
    config = make(tmp_path, points=[{"method": "target"}])
    sweep.run(config, engine)
    log = Path(config.output) / runlog.EXAMPLES
    rows = log.read_bytes().split(b"\n")
    log.write_bytes(b"\n".join([*rows[:2], b'{"kind": ', *rows[3:]]))
    with pytest.raises(ConfigError, match=r"examples\.jsonl:3"):
        sweep.run(config, engine)


def test_evaluate_is_a_sweep_of_one_point(tmp_path, engine):
    asked = Evaluate(Task(EVERYDAY, limit=4), str(tmp_path / "out"), decoding=Decoding(alpha=0.3))
    record = evaluate.run(asked, engine)
    assert record["name"] == "v3 alpha=0.3"
    assert record["n_examples"] == 4


# ------------------------------------------------------------------------------------------
# As a process


def command(tmp_path, *overrides, delay="0.01"):
    config = {
        "task": {"path": EVERYDAY, "limit": 12},
        "base": {"temperature": 1.0},
        "points": POINTS,
        "repeats": 2,
        "output": str(tmp_path / "out"),
    }
    path = tmp_path / "sweep.yaml"
    path.write_text(yaml.safe_dump(config))
    return [sys.executable, str(FAKES), "--delay", delay, "sweep", str(path), *overrides]


def count(path):
    return path.read_bytes().count(b'"kind": "batch"') if path.exists() else 0


def test_killed_at_any_moment_nothing_is_lost_and_nothing_done_twice(tmp_path):
    log = tmp_path / "out" / runlog.EXAMPLES
    kept = b""
    for goal in (20, 60):
        process = subprocess.Popen(command(tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while count(log) < goal and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert goal <= count(log) < 6 * 24
        assert not (tmp_path / "out" / runlog.RECORDS).exists()
        data = log.read_bytes()
        assert data.startswith(kept)
        kept = data[: data.rfind(b"\n") + 1]
    # What a kill inside a write leaves behind.
    log.write_bytes(kept + b'{"kind": "batch", "point": "targ')
    subprocess.run(command(tmp_path, delay="0"), check=True, capture_output=True)
    assert log.read_bytes().startswith(kept)
    found = [json.loads(line) for line in log.read_text().splitlines()]
    units = [(b["point"], b["repeat"], b["first"]) for b in found if b["kind"] == "batch"]
    assert len(units) == len(set(units)) == 6 * 24
    records = runlog.read_records(tmp_path / "out")
    straight = make(tmp_path / "straight")
    assert [r["quality"] for r in records] == [
        r["quality"] for r in sweep.run(straight, FakeEngine("t", "d", "float32"))
    ]


def test_a_changed_command_exits_with_2_and_one_line(tmp_path):
    subprocess.run(command(tmp_path, "task.limit=2", delay="0"), check=True, capture_output=True)
    before = (tmp_path / "out" / runlog.EXAMPLES).read_bytes()
    again = subprocess.run(command(tmp_path, "task.limit=3", delay="0"), capture_output=True, text=True)
    assert again.returncode == 2
    assert again.stderr.count("\n") == 1
    assert "task.limit" in again.stderr
    assert (tmp_path / "out" / runlog.EXAMPLES).read_bytes() == before


def test_two_processes_do_not_share_a_folder(tmp_path):
    first = subprocess.Popen(
        command(tmp_path, delay="0.05"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 60
    while count(tmp_path / "out" / runlog.EXAMPLES) < 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    second = subprocess.run(command(tmp_path), capture_output=True, text=True)
    first.kill()
    first.wait()
    assert second.returncode == 2
    assert "another process" in second.stderr


@pytest.mark.parametrize(
    ("decoding", "target", "drafter"),
    [
        (Decoding(method="target"), 10, 0),
        (Decoding(rule="v3", gamma=4), 10 * 5, 50),
        # A block's first draft call reads the last draft of the block before with the newest token.
        (Decoding(rule="lossless", gamma=4), 10 * 5, 50 + 10),
        (Decoding(method="bild", gamma=4), 10 * 5, 50),
        (Decoding(method="token"), 10 * 8, 50),
    ],
)
def test_arithmetic_follows_the_tokens_that_calls_read(decoding, target, drafter):
    counts = rates.Counts(30, 10, 0 if decoding.method == "target" else 50, [10] * 4, [5] * 4)
    found = records._gflops(decoding, counts, {"target": 2e9, "drafter": 1e9})
    assert found == 2 * target + drafter
