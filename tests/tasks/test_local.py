"""A user's own file: field names, templates, metrics."""

import json

import pytest

from spec_cascades.checks import ConfigError
from spec_cascades.metrics import scoring
from spec_cascades.tasks import registry
from spec_cascades.tasks.asked import ask
from spec_cascades.tasks.settings import Task


def own(tmp_path, rows, **more):
    path = tmp_path / "own.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return Task(name="local", path=str(path), **more)


def test_fields_and_template(tmp_path):
    rows = [{"text": "a {title} b", "title": "T", "sum": "ab", "year": 1999}]
    asked = ask(
        own(tmp_path, rows, input="text", target="sum", metric="rouge2", template="{title} {year}: {input}")
    )
    assert asked.examples == [("T 1999: a {title} b", "ab")]
    assert asked.metric == "rouge2"
    plain = ask(own(tmp_path, rows, input="text", target="sum"))
    assert plain.examples == [("a {title} b", "ab")]
    assert (plain.metric, plain.limit) == ("bleu", None)


def test_several_references_and_none(tmp_path):
    rows = [{"input": "q", "target": ["A", "B"]}, {"input": "q2", "target": []}]
    asked = ask(own(tmp_path, rows, metric="f1"))
    references = [e.reference for e in asked.examples]
    assert references == [["A", "B"], []]
    assert scoring.score("f1", ["b", ""], references)["f1"] == [100, 100]
    with pytest.raises(ConfigError, match=r"row 0.*rouge2 takes one reference, not 2"):
        ask(own(tmp_path, rows, metric="rouge2"))


def test_a_tsv_has_the_named_columns(tmp_path):
    (tmp_path / "own.tsv").write_text("a\tA\nb\tB\n")
    asked = ask(Task(name="local", path=str(tmp_path / "own.tsv"), template="Say {input}:", metric="em"))
    assert asked.examples == [("Say a:", ["A"]), ("Say b:", ["B"])]


def test_a_field_that_is_not_there_is_named(tmp_path):
    rows = [{"input": "q", "target": "a"}]
    with pytest.raises(ConfigError, match=r"task\.template: no field 'titel' in a row with input, target"):
        ask(own(tmp_path, rows, template="{titel}"))
    with pytest.raises(ConfigError, match=r"row 0.*accuracy compares numbers, and 'a' has none"):
        ask(own(tmp_path, rows, metric="accuracy"))
    with pytest.raises(ConfigError, match=r"row 0.*KeyError 'answer'"):
        ask(own(tmp_path, rows, target="answer"))


def test_shots_from_a_file_of_ones_own(tmp_path):
    rows = [{"input": f"q{i}", "target": f"a{i}"} for i in range(3)]
    (tmp_path / "train.jsonl").write_text('{"input": "x", "target": "y"}\n')
    task = own(tmp_path, rows, shots=1, shots_path=str(tmp_path / "train.jsonl"), template="Q {input} A")
    assert registry.prompts(task)[0][0].text == "Q x A y\n\nQ q0 A"


def test_a_missing_package_is_said_before_anything_is_decoded(tmp_path, monkeypatch):
    monkeypatch.setattr(scoring.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"rouge2 needs rouge-score: pip install"):
        ask(own(tmp_path, [{"input": "q", "target": "a"}], metric="rouge2"))
