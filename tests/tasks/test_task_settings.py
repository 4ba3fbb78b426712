"""The `task` part of a configuration: what goes together, shorthand, defaults of answers."""

import pytest

from spec_cascades.config import ConfigError, Decoding, Evaluate, Sweep, load
from spec_cascades.metrics.names import TITLES
from spec_cascades.metrics.scoring import METRICS as SCORED
from spec_cascades.tasks.settings import METRICS, NAMES, Task, parts


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, ["path: missing", "gsm8k"]),
        ({"name": "local"}, ["path: missing", "'local'"]),
        ({"name": "gsm8"}, ["name: 'gsm8'", "did you mean 'gsm8k'"]),
        ({"name": "gsm8k", "view": "t5"}, ["view: 't5'", "encdec"]),
        ({"name": "gsm8k", "shots": -1}, ["shots: -1", "0 or more"]),
        ({"name": "gsm8k", "metric": "f1"}, ["metric: 'f1'", "task.name: local"]),
        ({"name": "gsm8k", "template": "x"}, ["template", "task.name: local"]),
        ({"name": "gsm8k", "join": 2}, ["join", "task.name"]),
        ({"name": "gsm8k", "max_input_tokens": 0}, ["max_input_tokens: 0"]),
        ({"path": "x.tsv", "view": "chat"}, ["view: 'chat'", "task.name"]),
        ({"path": "x.tsv", "metric": "rouge2"}, ["metric", "task.name"]),
        ({"path": "x", "name": "local", "metric": "rouge"}, ["metric: 'rouge'", "did you mean 'rouge"]),
        ({"path": "x.tsv", "shard": "2/2"}, ["shard: '2/2'", "0 <= i < n"]),
        ({"path": "x.tsv", "shard": "1"}, ["shard: '1'"]),
    ],
)
def test_what_means_nothing_is_refused(given, words):
    with pytest.raises(ConfigError) as error:
        Task(**given)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_names_of_metrics_are_known_to_all():
    assert set(METRICS) == {"bleu", *SCORED}
    assert set(TITLES) == {*METRICS, "pass@1", "none"}


def test_shards():
    assert parts(None) == (0, 1)
    assert parts("3/8") == (3, 8)


def test_a_name_stands_for_the_task(tmp_path):
    for overrides in (["task=gsm8k", "task.limit=3"], ["task.name=gsm8k", "task.limit=3"]):
        config = load(Evaluate, None, [*overrides, "output=o"])
        assert config.task == Task(name="gsm8k", limit=3)
    (tmp_path / "c.yaml").write_text("task: gsm8k\noutput: o\n")
    assert load(Sweep, tmp_path / "c.yaml", ["task.limit=3"]).task == Task(name="gsm8k", limit=3)
    assert load(Sweep, None, ["task={path: x.tsv}", "output=o"]).task == Task("x.tsv")
    with pytest.raises(ConfigError, match=r"task\.name: 'gsm8' is not one of"):
        load(Evaluate, None, ["task=gsm8", "output=o"])


@pytest.mark.parametrize("name", NAMES[:-1])
def test_answers_are_as_long_as_the_task_wants(name):
    config = load(Evaluate, None, [f"task={name}", "output=o", "decoding.gamma=3"])
    assert config.decoding.gamma == 3
    assert config.decoding.max_new_tokens >= 32
    assert bool(config.decoding.stop) == (name != "spec_bench")
    chat = load(Evaluate, None, [f"task={name}", "output=o", "models.chat=true"])
    assert chat.decoding.stop == []


def test_what_a_decoding_gives_stands():
    given = ["decoding.max_new_tokens=7", "decoding.stop=[]"]
    assert load(Evaluate, None, ["task=gsm8k", "output=o", *given]).decoding == Decoding(max_new_tokens=7)
    swept = load(Sweep, None, ["task=gsm8k", "output=o", "base.stop=[x]", "points=[{max_new_tokens: 9}, {}]"])
    assert (swept.base.stop, swept.base.max_new_tokens) == (["x"], 256)
    assert load(Evaluate, None, ["task.path=x.tsv", "output=o"]).decoding == Decoding()
