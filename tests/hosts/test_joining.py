import pytest

from spec_cascades import cli
from spec_cascades.checks import ConfigError
from spec_cascades.hosts import Join, join


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"distributed": "yes"}, "none, auto"),
        ({"coordinator": "a:1"}, "--processes: missing"),
        ({"processes": 2, "process": 0}, "--coordinator: missing"),
        ({"coordinator": "a:1", "processes": 2}, "--process: missing"),
        ({"distributed": "auto", "processes": 2}, "leave out"),
        ({"coordinator": "a", "processes": 2, "process": 0}, "HOST:PORT"),
        ({"coordinator": "a:0", "processes": 2, "process": 0}, "HOST:PORT"),
        ({"coordinator": "a:65536", "processes": 2, "process": 0}, "HOST:PORT"),
        ({"coordinator": "a:1", "processes": 0, "process": 0}, "--processes: 0"),
        ({"coordinator": "a:1", "processes": 2, "process": 2}, "0 to 1"),
        ({"coordinator": "a:1", "processes": 2, "process": -1}, "0 to 1"),
        ({"heartbeat": 0}, "--heartbeat: 0"),
    ],
)
def test_what_does_not_go_together_is_named(given, word):
    with pytest.raises(ConfigError) as raised:
        Join(**given)
    assert word in str(raised.value)


@pytest.mark.parametrize("address", ["localhost:8476", "10.0.0.1:1", "[::1]:65535"])
def test_addresses(address):
    assert not Join(coordinator=address, processes=1, process=0).alone


@pytest.fixture
def initialize(monkeypatch):
    """What `jax.distributed.initialize` was called with; an exception put at its end is raised."""
    import jax

    asked = []

    def pretended(*given, **named):
        asked.append((given, named))
        if len(asked) > 1:
            raise asked[0]

    monkeypatch.setattr(jax.distributed, "initialize", pretended)
    return asked


def test_flags_reach_jax_as_they_are(initialize):
    join(Join(coordinator="a:1", processes=3, process=2, heartbeat=7))
    patience = {"heartbeat_timeout_seconds": 7, "shutdown_timeout_seconds": 7}
    assert initialize == [(("a:1", 3, 2), patience)]


def test_auto_leaves_all_to_jax_and_none_joins_nothing(initialize):
    join(Join())
    assert initialize == []
    join(Join(distributed="auto"))
    assert initialize[0][0] == (None, None, None)


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        (Join(distributed="auto"), "give --coordinator HOST:PORT"),
        (Join(coordinator="a:1", processes=3, process=2), "the 3 processes did not meet (no coordinator)"),
    ],
)
def test_who_is_not_met_is_said(initialize, asked, word):
    initialize.append(RuntimeError("no coordinator\nand much more"))
    with pytest.raises(ConfigError) as raised:
        join(asked)
    assert word in str(raised.value)
    assert "much more" not in str(raised.value)


@pytest.mark.parametrize("command", ["sweep", "evaluate", "reproduce", "generate"])
def test_commands_take_the_flags_and_name_bad_ones(command, capsys, tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(
        "{title: t, kind: table2, output: o, columns: [{name: a, task: {path: p}}]}"
        if command == "reproduce"
        else "{task: {path: p}, output: o}"
    )
    given = ["--file", "prompts"] if command == "generate" else [str(path)]
    assert cli.main([command, *given, "--coordinator", "nowhere", "--processes", "2", "--process", "0"]) == 2
    assert "--coordinator: 'nowhere' must be HOST:PORT" in capsys.readouterr().err


def test_what_runs_nothing_needs_one_process(capsys, tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("{title: t, kind: table2, output: o, columns: [{name: a, task: {path: p}}]}")
    assert cli.main(["reproduce", str(path), "--dry-run", "--distributed", "auto"]) == 2
    assert "one process is enough" in capsys.readouterr().err
