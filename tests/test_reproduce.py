"""Tables and figures from one file: what a file means, what would run, and what survives a kill."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from experiments import EVERYDAY, POINTS, experiment, given
from fakes import FakeEngine

from spec_cascades import config, merging, runlog, sweep
from spec_cascades.config import ConfigError, Decoding, Models, expand
from spec_cascades.reproduce import columns, running
from spec_cascades.tradeoffs import families

FAKES = Path(__file__).with_name("fakes.py")
CONFIGS = Path(__file__).parents[1] / "configs"


# ------------------------------------------------------------------------------------------
# What a file means


def test_a_column_says_what_differs(tmp_path):
    one, two = columns(experiment(tmp_path, repeats=2))
    assert (one.name, one.folder) == ("one", tmp_path / "out" / "one")
    assert two.folder == tmp_path / "out" / "two-joined"
    assert (two.sweep.task.join, two.sweep.task.limit, two.sweep.repeats) == (2, 6, 2)
    assert one.sweep.task.join == 1
    assert [p.name for p in expand(one.sweep)] == [p.name for p in expand(two.sweep)]
    (own,) = columns(
        experiment(
            tmp_path,
            columns=[
                {"name": "x", "models": {"target": "t"}, "points": [{}], "base": {"gamma": 2}, "repeats": 5}
            ],
        )
    )
    assert own.sweep.models == Models("t")
    assert (own.sweep.base.gamma, own.sweep.base.temperature, own.sweep.repeats) == (2, 1.0, 5)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kind": "table3"}, ["kind", "'table3'", "did you mean 'table2'"]),
        ({"columns": []}, ["columns", "at least one"]),
        ({"columns": [{"task": {"join": 2}}]}, ["columns[0]", "name"]),
        ({"columns": [{"name": "a"}, {"name": "A!"}]}, ["columns", "names differ"]),
        ({"columns": [{"name": "a", "taks": {}}]}, ["columns[0].taks", "did you mean 'task'"]),
        ({"columns": [{"name": "a", "task": {"jion": 2}}]}, ["columns[0].task.jion", "did you mean 'join'"]),
        ({"columns": [{"name": "a", "base": {"gamma": 0}}]}, ["columns[0]", "gamma", "1 or more"]),
        ({"columns": [{"name": "a", "points": [{"rule": "v4"}]}]}, ["columns[0]", "'v4'"]),
        ({"slack": -1.0}, ["slack", "0 or more"]),
        ({"chip": {"name": "c", "tflops": 0.0, "gb_per_second": 1.0, "memory_gb": 1.0}}, ["chip.tflops"]),
    ],
)
def test_a_bad_experiment_is_named(tmp_path, changes, words):
    with pytest.raises(ConfigError) as error:
        experiment(tmp_path, **changes)
    for word in words:
        assert word in str(error.value)


# ------------------------------------------------------------------------------------------
# Running


def test_columns_run_and_the_table_has_two_numbers_of_each_method(tmp_path, capsys):
    asked = experiment(tmp_path)
    engine = FakeEngine("t", "d", "float32")
    running.run(asked, engine)
    files = running.show(asked)
    out = capsys.readouterr().out
    heads = next(line for line in out.splitlines() if line.startswith("| method"))
    for name in ("one", "Two, joined"):
        assert f"{name}: speed-up at the target's BLEU" in heads
        assert f"{name}: best BLEU within its time" in heads
    for method in ("target alone", "drafter", "lossless", "v3", "target alone, truncated"):
        assert f"| {method} |" in out
    assert all(path.is_file() for path in files)
    records = [json.loads(line) for line in (tmp_path / "out" / runlog.RECORDS).read_text().splitlines()]
    assert [r["column"] for r in records] == ["one"] * 6 + ["Two, joined"] * 6
    assert {r["n_examples"] for r in records} == {8, 6}
    asked_before = len(engine.asked)
    running.run(asked, engine)
    assert len(engine.asked) == asked_before


def test_the_table_can_be_printed_again_from_its_numbers(tmp_path):
    asked = experiment(tmp_path)
    running.run(asked, FakeEngine("t", "d", "float32"))
    found = running.numbers(asked)
    again = running.read_numbers(tmp_path / "out" / running.NUMBERS)
    assert running.table2(again) == running.table2(found)
    assert list(again) == ["one", "Two, joined"]


def test_a_figure_is_drawn_from_records_alone(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    for kind in ("tradeoff", "rejection"):
        asked = experiment(tmp_path, kind=kind)
        running.run(asked, FakeEngine("t", "d", "float32"))
        picture, records = running.show(asked)
        first = picture.read_bytes()
        assert (picture.name, records.name) == (f"{kind}.png", runlog.RECORDS)
        for column in columns(asked):
            (column.folder / runlog.EXAMPLES).rename(column.folder / "kept")
        picture.unlink()
        assert running.show(asked)[0].read_bytes() == first
        for column in columns(asked):
            (column.folder / "kept").rename(column.folder / runlog.EXAMPLES)
    out = capsys.readouterr().out
    assert "Two, joined" in out
    assert "v3 alpha=0.8" in out


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        ("tradeoff", lambda r: r["against_target"]["relative_seconds"]),
        ("rejection", lambda r: r["rates"]["rejection_rate"]),
    ],
)
def test_a_figure_shows_what_the_records_say(tmp_path, kind, where):
    pytest.importorskip("matplotlib")
    from spec_cascades.reproduce.figures import picture

    asked = experiment(tmp_path, points=[*POINTS, {"rule": "lossless", "min_p": [0.5, 0.2]}])
    running.run(asked, FakeEngine("t", "d", "float32"))
    panels = running.by_panel(running.gather(asked))
    axes = picture(panels, kind, "A figure").axes
    assert [axis.get_title() for axis in axes] == ["one (8 examples)", "Two, joined (6 examples)"]
    for axis, group in zip(axes, panels.values(), strict=True):
        lines = {c.get_label(): c.lines[0] for c in axis.containers}
        line = [r for r in group if r["decoding"]["rule"] == "v3" and r["name"].startswith("v3")]
        assert list(lines["v3"].get_xdata()) == [where(r) for r in line]
        assert list(lines["v3"].get_ydata()) == [r["quality"]["bleu"] for r in line]
        assert len(lines["lossless, truncated"].get_xdata()) == 2
        assert len(lines["lossless"].get_xdata()) == 1
        # Nothing is drafted by a model alone: it has no rejection rate, and a level in place of a point.
        assert ("target alone" in lines) == (kind == "tradeoff")
        levels = [line.get_label() for line in axis.get_lines()]
        assert "target's quality" in levels
        assert ("drafter's quality" in levels) == (kind == "rejection")
        assert ("target's best quality, truncated" in levels) == (kind == "rejection")
    none = [{"quality": {"metric": "none", "score": None}}]
    assert picture({"unscored": none}, kind, "A figure") is None


def test_bild_and_its_rule_are_two_methods_of_a_table():
    both = [Decoding(method="bild", alpha=2.0), Decoding(rule="bild", alpha=2.0)]
    records = [{"name": str(i), "decoding": config.plain(d)} for i, d in enumerate(both)]
    assert list(families(records)) == ["BiLD", "bild"]


def test_what_is_not_finished_is_named(tmp_path):
    asked = experiment(tmp_path)
    sweep.run(columns(asked)[0].sweep, FakeEngine("t", "d", "float32"))
    with pytest.raises(ConfigError, match="Two, joined: no records"):
        running.show(asked)


def test_one_bar_counts_the_batches_of_all_columns(tmp_path, monkeypatch):
    asked, seen = experiment(tmp_path, repeats=2), []

    def progress(label, total, done=0, real=sweep.progress):
        seen.append((label, total, done))
        return real(label, total, done)

    monkeypatch.setattr(sweep, "progress", progress)
    running.run(asked, FakeEngine("t", "d", "float32"))
    each = [2 * 6 * 8, 2 * 6 * 6]
    assert [sweep.batches(c.sweep) for c in columns(asked)] == each
    bars = [bar for bar in seen if bar[0] != "warm-up"]
    assert bars == [("one (1 of 2)", sum(each), 0), ("Two, joined (2 of 2)", sum(each), each[0])]


def test_hosts_share_an_experiment_by_shards(tmp_path):
    whole = experiment(tmp_path)
    running.run(whole, FakeEngine("t", "d", "float32"))
    straight = running.gather(whole), running.table2(running.numbers(whole))
    parts = [
        experiment(
            tmp_path,
            output=str(tmp_path / f"host{i}"),
            task={"path": EVERYDAY, "limit": 8, "shard": f"{i}/2"},
        )
        for i in range(2)
    ]
    for part in parts:
        running.run(part, FakeEngine("t", "d", "float32"))
    joined = experiment(tmp_path, output=str(tmp_path / "joined"))
    for column, *shards in zip(columns(joined), *map(columns, parts), strict=True):
        merging.merge([shard.folder for shard in shards], column.folder)
    told = lambda records: [(r["column"], r["name"], r["quality"]) for r in records]
    assert told(running.gather(joined)) == told(straight[0])
    assert running.table2(running.numbers(joined)) == straight[1]


# ------------------------------------------------------------------------------------------
# As a process


def command(tmp_path, *arguments, delay="0.01"):
    text = yaml.safe_dump(given(tmp_path, columns=[{"name": "one"}, {"name": "two", "task": {"join": 2}}]))
    (tmp_path / "e.yaml").write_text(text)
    return [sys.executable, str(FAKES), "--delay", delay, "reproduce", str(tmp_path / "e.yaml"), *arguments]


def units(folder):
    path = folder / runlog.EXAMPLES
    lines = path.read_text().splitlines() if path.exists() else []
    found = [json.loads(line) for line in lines if line.endswith("}")]
    return [(b["point"], b["repeat"], b["first"]) for b in found if b["kind"] == "batch"]


def test_killed_in_any_column_it_goes_on_and_repeats_nothing(tmp_path):
    folders = [tmp_path / "out" / name for name in ("one", "two")]
    kept = {}
    for folder, goal in zip(folders, (10, 20), strict=True):
        process = subprocess.Popen(command(tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while len(units(folder)) < goal and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert goal <= len(units(folder)) < 48
        kept[folder] = (folder / runlog.EXAMPLES).read_bytes().rpartition(b"\n")[0]
    assert not (tmp_path / "out" / runlog.RECORDS).exists()
    unfinished = subprocess.run(command(tmp_path, "--report"), capture_output=True, text=True)
    assert (unfinished.returncode, unfinished.stdout) == (2, "")
    done = subprocess.run(command(tmp_path, delay="0"), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for folder in folders:
        assert (folder / runlog.EXAMPLES).read_bytes().startswith(kept[folder])
        assert len(units(folder)) == len(set(units(folder))) == 48
    straight = experiment(
        tmp_path / "straight", columns=[{"name": "one"}, {"name": "two", "task": {"join": 2}}]
    )
    running.run(straight, FakeEngine("t", "d", "float32"))
    quality = lambda path: [json.loads(line)["quality"] for line in path.read_text().splitlines()]
    running.gather(straight)
    assert quality(tmp_path / "out" / runlog.RECORDS) == quality(
        tmp_path / "straight" / "out" / runlog.RECORDS
    )


def test_a_dry_run_prints_what_would_run_and_runs_nothing(tmp_path):
    done = subprocess.run(command(tmp_path, "repeats=3", "--dry-run"), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"| one | {EVERYDAY} | 8 | 3 | 6 | 144 | 64 |" in done.stdout
    assert f"| two | {EVERYDAY} x2 | 8 | 3 | 6 | 144 | 64 |" in done.stdout
    assert "| all |  |  |  | 12 | 288 |" in done.stdout
    for word in ("embedded:en-de-target", "v3 alpha=0.2, 0.8", "Time: unknown"):
        assert word in done.stdout
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["base.gama=3"], "did you mean 'gamma'"),
        (["--measured", "records.jsonl"], "--dry-run"),
        (["--dry-run", "--measured", "nowhere"], "nowhere"),
    ],
)
def test_bad_input_exits_with_2_and_one_line(tmp_path, arguments, word):
    done = subprocess.run(command(tmp_path, *arguments), capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert word in done.stderr
    assert not (tmp_path / "out").exists()
