from dataclasses import replace

import pytest
from made import EVERYDAY, made, run

from spec_cascades import runlog
from spec_cascades.checks import ConfigError
from spec_cascades.config import Task
from spec_cascades.report import runs

V3 = ("v3", 21.0, 0.8, {"rule": "v3", "alpha": 0.5})
XSUM = Task(name="xsum")


def titles(records):
    return [part.title for part in runs.parts(records)]


def test_a_part_is_one_task_of_one_file():
    records = run([V3]) + run([V3], task=XSUM) + run([V3], task=XSUM, file="b.jsonl")
    found = runs.parts(records)
    assert [len(part.records) for part in found] == [2, 2, 2]
    assert [part.title for part in found] == ["en-de-everyday (a.jsonl)", "xsum (a.jsonl)", "xsum (b.jsonl)"]


def test_a_title_says_what_makes_it_another_task():
    joined = replace(EVERYDAY, join=4, limit=120)
    assert titles(run([V3]) + run([V3], task=joined)) == [
        "en-de-everyday",
        "en-de-everyday, join 4, limit 120",
    ]
    assert titles(run([V3], task=Task("data/news.jsonl", name="local"))) == ["news"]
    assert titles([{k: v for k, v in made(*V3[:3]).items() if k != "task"}]) == ["task not recorded"]


def test_other_models_are_kept_apart_and_never_compared():
    other = [r | {"models": r["models"] | {"drafter": "other"}} for r in run([V3], file="b.jsonl")]
    found = runs.parts(run([V3]) + other)
    assert len(found) == 2
    assert "other -> " in found[1].title
    settings = runs.settings(found)
    assert [len(s.tasks) for s in settings] == [1, 1]
    assert len({s.title for s in settings}) == 2


def test_one_task_twice_in_a_setting_is_refused():
    twice = run([V3]) + run([V3], file="b.jsonl")
    with pytest.raises(ConfigError, match=r"a\.jsonl and b\.jsonl both hold temperature 1, batch 1 of en-de"):
        runs.settings(runs.parts(twice))
    fewer = run([V3]) + run([V3], file="b.jsonl", task=replace(EVERYDAY, limit=20))
    with pytest.raises(ConfigError, match="measured in turns"):
        runs.settings(runs.parts(fewer))


def test_a_named_set_is_one_task_wherever_its_file_lies():
    records = run([V3], task=XSUM) + run([V3], file="b.jsonl", task=replace(XSUM, path="data/xsum.jsonl"))
    with pytest.raises(ConfigError):
        runs.settings(runs.parts(records))
    elsewhere = run([V3], task=Task("a.tsv")) + run([V3], file="b.jsonl", task=Task("b.tsv"))
    assert [len(s.tasks) for s in runs.settings(runs.parts(elsewhere))] == [2]


def test_another_temperature_of_a_task_is_another_setting():
    greedy = run([V3], file="b.jsonl")
    for record in greedy:
        record["decoding"] |= {"temperature": 0.0}
    assert [s.title for s in runs.settings(runs.parts(run([V3]) + greedy))] == [
        "temperature 1, batch 1",
        "greedy, batch 1",
    ]


def test_a_record_knows_its_line(tmp_path):
    bare = [{k: v for k, v in r.items() if k != "source"} for r in run([V3])]
    runlog.write_records(tmp_path / "records.jsonl", bare)
    read = runs.read([tmp_path])
    assert [r["source"] for r in read] == [
        {"file": str(tmp_path / "records.jsonl"), "line": n} for n in (1, 2)
    ]
    assert runs.source(read[1]) == f"{tmp_path / 'records.jsonl'}:2 v3"
