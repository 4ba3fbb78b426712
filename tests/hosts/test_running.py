"""Both ways of sharing a sweep, with an engine of no model, processes as threads."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from fakes import FakeEngine
from many import Many

from spec_cascades import runlog, sweep
from spec_cascades.checks import ConfigError
from spec_cascades.config import Decoding, Sweep, Task
from spec_cascades.hosts import lockstep, running, shards

EVERYDAY = "embedded:en-de-everyday"
POINTS = [{"method": "target"}, {"rule": "v3", "alpha": 0.2}, {"method": "target", "min_p": 0.5}]


def asked(folder, points=POINTS, limit=7, **task):
    base = Decoding(temperature=1.0)
    return Sweep(Task(EVERYDAY, limit=limit, **task), str(folder), base=base, points=points, repeats=2)


def fake():
    return FakeEngine("t", "d", "float32")


def records(folder):
    """Without what compiling cost, which each process pays for itself."""
    return [{k: v for k, v in r.items() if k != "compile_seconds"} for r in runlog.read_records(folder)]


@pytest.fixture
def alone(tmp_path):
    sweep.run(asked(tmp_path / "alone"), fake())
    return records(tmp_path / "alone")


@pytest.fixture
def three(monkeypatch):
    return Many(monkeypatch, 3)


def divided(three, folders, engines):
    found = three.all(lambda i: shards.run(asked(folders[i]), engines[i], None, sweep.ALONE))
    return [x for x in found if x]


@pytest.mark.parametrize("disks", [["d"] * 3, ["d0", "d1", "d2"]], ids=["one disk", "a disk each"])
def test_parts_of_the_examples_make_the_records_of_the_whole(three, tmp_path, alone, disks):
    folders, engines = [tmp_path / disk for disk in disks], [fake() for _ in range(3)]
    (whole,) = divided(three, folders, engines)
    assert whole == runlog.read_records(folders[0])
    assert records(folders[0]) == alone
    texts = [{text for text, _ in engine.asked} for engine in engines]
    assert not texts[0] & texts[1] | texts[1] & texts[2] | texts[0] & texts[2]
    assert [(f / runlog.RECORDS).exists() for f in folders] == [True] + [disks[0] == disks[1]] * 2


def test_once_more_nothing_is_asked_and_the_records_stay(three, tmp_path):
    folders = [tmp_path / "d"] * 3
    first = divided(three, folders, [fake() for _ in range(3)])
    again = [fake() for _ in range(3)]
    assert divided(three, folders, again) == first
    assert not any(engine.asked for engine in again)


def test_who_fails_stops_all_after_their_work_and_loses_none(three, tmp_path, alone):
    folders, engines = [tmp_path / f"d{i}" for i in range(3)], [fake() for _ in range(3)]
    engines[1].first_block = lambda *_: 1 / 0
    first, second, third = divided(three, folders, engines)
    assert isinstance(second, ZeroDivisionError)
    assert "process 1 of 3: division by zero" in str(first)
    assert str(first) == str(third)
    engines = [fake() for _ in range(3)]
    divided(three, folders, engines)
    assert [bool(engine.asked) for engine in engines] == [False, True, False]
    assert records(folders[0]) == alone


def test_what_cannot_be_divided_is_refused_before_any_work(three, tmp_path):
    engine = fake()
    refused = lambda config: three.all(lambda i: shards.run(config, engine, None, sweep.ALONE))
    for error in refused(asked(tmp_path / "a", limit=2)):
        assert "examples: 2, which cannot be divided among 3 processes" in str(error)
    for error in refused(asked(tmp_path / "a", shard="0/2")):
        assert "task.shard: '0/2'" in str(error)
    sweep.run(asked(tmp_path / "b"), fake())
    for error in refused(asked(tmp_path / "b")):
        assert isinstance(error, ConfigError)
        assert "the run of a single process" in str(error)
    assert engine.asked == []
    assert not (tmp_path / "a").exists()


def in_step(three, folders, engines, **changes):
    config = lambda i: replace(asked(folders[i]), **changes)
    return three.all(lambda i: lockstep.run(config(i), engines[i], None, sweep.ALONE))


def test_in_step_all_run_the_same_and_one_writes(three, tmp_path, alone):
    folders, engines = [tmp_path / f"d{i}" for i in range(3)], [fake() for _ in range(3)]
    found = in_step(three, folders, engines)
    assert found == [runlog.read_records(folders[0]), [], []]
    assert engines[0].asked == engines[1].asked == engines[2].asked
    assert records(folders[0]) == alone
    assert not folders[1].exists()


def test_in_step_what_is_done_is_what_process_0_has_done(three, tmp_path, alone):
    folders = [tmp_path / f"d{i}" for i in range(3)]
    in_step(three, folders, [fake() for _ in range(3)])
    log = folders[0] / runlog.EXAMPLES
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[:9]) + lines[9][:20])
    engines = [fake() for _ in range(3)]
    in_step(three, folders, engines)
    assert engines[0].asked == engines[1].asked == engines[2].asked
    kinds = [json.loads(line)["kind"] for line in lines[:9]]
    # One more for each point, to warm up.
    assert len(engines[0].asked) == 2 * 7 * 3 - kinds.count("batch") + 3
    assert records(folders[0]) == alone


def test_in_step_what_process_0_refuses_all_refuse(three, tmp_path):
    folders = [tmp_path / f"d{i}" for i in range(3)]
    in_step(three, folders, [fake() for _ in range(3)])
    for error in in_step(three, folders, [fake() for _ in range(3)], repeats=1):
        assert "another configuration (it differs in repeats)" in str(error)


def test_a_mesh_larger_than_a_process_is_run_in_step(monkeypatch):
    import jax

    monkeypatch.setattr(jax, "local_device_count", lambda: 4)
    mesh = lambda data, model: SimpleNamespace(mesh=SimpleNamespace(data=data, model=model))
    assert not running.spans(SimpleNamespace(mesh=None))
    assert [running.spans(mesh(*size)) for size in ((1, 1), (2, 2), (1, 4), (4, 2))] == [False] * 3 + [True]


def test_the_way_follows_the_mesh(three, tmp_path, monkeypatch, alone):
    for spanning in (False, True):
        monkeypatch.setattr(running, "spans", lambda models, spanning=spanning: spanning)
        folder = tmp_path / str(spanning)
        three.all(lambda i, folder=folder: running.run(asked(folder), fake()))
        assert records(folder) == alone
        assert (folder / shards.SHARDS).exists() is not spanning
        refused = three.all(lambda i: running.refuse_copies(None))
        assert [isinstance(x, ConfigError) for x in refused] == [not spanning] * 3


def test_a_process_alone_is_a_plain_sweep(monkeypatch, tmp_path, alone):
    one = Many(monkeypatch, 1)
    one.all(lambda i: running.run(asked(tmp_path / "one"), fake()))
    assert records(tmp_path / "one") == alone
    assert not (tmp_path / "one" / shards.SHARDS).exists()
