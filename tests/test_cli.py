import json
import subprocess
import sys
from pathlib import Path

import pytest

FAKES = Path(__file__).with_name("fakes.py")
TASK = "task: {path: embedded:en-de-everyday, limit: 3}\noutput: %s\n"


def cli(*arguments, stdin=None, engine=False):
    """The command line as a process of its own; with a fake engine when one would be loaded."""
    head = [sys.executable, str(FAKES)] if engine else [sys.executable, "-m", "spec_cascades.cli"]
    return subprocess.run([*head, *map(str, arguments)], input=stdin, capture_output=True, text=True)


def config(tmp_path, text=""):
    path = tmp_path / "run.yaml"
    path.write_text(TASK % (tmp_path / "out") + text)
    return path


@pytest.mark.parametrize("arguments", [["--help"], ["sweep", "--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments):
    code = (
        "import sys; from spec_cascades import cli\n"
        f"try: cli.main({arguments!r})\n"
        "except SystemExit as e: assert e.code == 0\n"
        "heavy = {'jax', 'numpy', 'omegaconf', 'rich', 'matplotlib', 'yaml'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "spec-cascades" in done.stdout


def test_no_command_and_unknown_commands_exit_with_2():
    assert cli().returncode == 2
    done = cli("swep")
    assert done.returncode == 2
    assert "sweep" in done.stderr


@pytest.mark.parametrize("command", ["evaluate", "sweep"])
@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("taks.limit=2", ["'taks'", "did you mean 'task'"]),
        ("task.limti=2", ["'task.limti'", "did you mean 'limit'"]),
        ("repeats=0", ["repeats", "1 or more"]),
        ("repeats=many", ["repeats", "many"]),
        ("models.dtype=fp16", ["models.dtype", "'fp16'", "bfloat16"]),
    ],
)
def test_bad_input_is_one_line_and_2(tmp_path, command, override, words):
    done = cli(command, config(tmp_path), override)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    for word in words:
        assert word in done.stderr
    assert not (tmp_path / "out").exists()


def test_traceback_on_demand(tmp_path):
    done = cli("--traceback", "evaluate", tmp_path / "nowhere.yaml")
    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_generate_from_arguments_file_and_stdin_alike(tmp_path):
    prompts = ["The sun is shining today.", "We are at home."]
    (tmp_path / "p.txt").write_text("\n".join(prompts) + "\n")
    (tmp_path / "p.jsonl").write_text("".join(json.dumps({"input": p}) + "\n" for p in prompts))
    ways = [
        cli("generate", *prompts, engine=True),
        cli("generate", "--file", tmp_path / "p.txt", engine=True),
        cli("generate", "--file", tmp_path / "p.jsonl", engine=True),
        cli("generate", stdin="\n".join(prompts) + "\n", engine=True),
    ]
    assert {w.returncode for w in ways} == {0}
    assert len({w.stdout for w in ways}) == 1
    assert ways[0].stdout.count("\n") == 2
    assert ways[0].stderr.count("\n") == 1
    assert "2 answers" in ways[0].stderr
    assert "tokens per target call" in ways[0].stderr


def test_generate_compares_with_the_target_alone_when_asked():
    done = cli("generate", "--compare", "The sun is shining today.", engine=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    ours, alone = done.stderr.splitlines()
    assert ours.startswith("1 answers")
    assert alone.startswith("target alone: 1 answers")
    assert alone.endswith("times as long")


def test_generate_leaves_a_trace_and_a_table_where_it_is_asked(tmp_path):
    done = cli("generate", "--profile", tmp_path / "p", "The sun is shining today.", engine=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    assert "0-speculative-v3" in done.stderr
    assert [p.suffix for p in (tmp_path / "p").rglob("*.xplane.pb")] == [".pb"]
    assert (tmp_path / "p" / "0-speculative-v3" / "scopes.json.gz").is_file()


def test_evaluate_traces_what_it_runs_and_says_when_that_is_nothing(tmp_path):
    run = ["evaluate", config(tmp_path), "--profile", tmp_path / "p"]
    done = [cli(*run, engine=True) for _ in range(2)]
    assert [d.returncode for d in done] == [0, 0], done[0].stderr
    assert "trace: " in done[0].stderr
    assert "nothing was traced" in done[1].stderr
    assert done[0].stdout == done[1].stdout


def test_generate_jsonl_holds_the_whole_answer():
    done = cli("generate", "--jsonl", "--set", "decoding.alpha=0.5", "Good morning, Tom.", engine=True)
    (row,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert row["input"] == "Good morning, Tom."
    assert {
        "text",
        "tokens",
        "finish_reason",
        "target_calls",
        "drafter_calls",
        "judged",
        "accepted",
    } < row.keys()


def test_generate_takes_a_configuration_and_a_batch(tmp_path):
    path = tmp_path / "g.yaml"
    path.write_text("decoding: {method: target, batch_size: 2, temperature: 1}\nprefix: 'x '\n")
    done = cli("generate", "--config", path, "--jsonl", "a", "b", "c", engine=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [r["input"] for r in rows] == ["a", "b", "c"]
    assert all(r["judged"] == [] for r in rows)


@pytest.mark.parametrize(
    ("arguments", "stdin", "word"),
    [
        (["generate"], "\n\n", "no prompt"),
        (["generate", "a", "--file", "b"], None, "not both"),
        (["generate", "--file", "nowhere.txt"], None, "nowhere.txt"),
        (["generate", "a", "--set", "decoding.rule=v4"], None, "'v4'"),
        (["generate", "a", "--set", "decodng.rule=v3"], None, "did you mean 'decoding'"),
        (["report", "nowhere"], None, "nowhere"),
    ],
)
def test_bad_input_elsewhere(arguments, stdin, word):
    done = cli(*arguments, stdin=stdin, engine=True)
    assert done.returncode == 2
    assert word in done.stderr
    assert done.stderr.count("\n") == 1


def test_evaluate_sweep_and_report_end_to_end(tmp_path):
    done = cli("evaluate", config(tmp_path, "decoding: {alpha: 0.5}\n"), engine=True)
    assert done.returncode == 0, done.stderr
    assert "v3 alpha=0.5" in done.stdout
    points = "points: [{method: target}, {rule: v3, alpha: [0.1, 0.9]}, {method: target, min_p: 0.9}]\n"
    asked = ("base.temperature=1", f"output={tmp_path / 'sweep'}")
    done = cli("sweep", config(tmp_path, points), *asked, engine=True)
    assert done.returncode == 0, done.stderr
    records = tmp_path / "sweep" / "records.jsonl"
    assert len(records.read_text().splitlines()) == 4
    done = cli("report", tmp_path / "sweep")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "sweep" / "report.md").is_file()
    moved = tmp_path / "elsewhere.jsonl"
    records.rename(moved)
    assert cli("report", moved, "--out", tmp_path / "drawn").returncode == 0
    assert (tmp_path / "drawn" / "report.csv").is_file()


def test_rules_are_listed():
    pytest.importorskip("spec_cascades.rules", reason="the rules need jax")
    done = cli("rules")
    assert done.returncode == 0, done.stderr
    for word in ("lossless", "v3", "topk", "bild", "inf", "max q < max p - alpha (eq. 5)"):
        assert word in done.stdout


def test_the_shipped_pair_answers_alike_with_and_without_a_drafter():
    """Greedy lossless speculation in float32 is the target's own answer, from a fresh process."""
    folder = Path(__file__).parents[1] / "spec_cascades" / "embedded" / "en-de-target"
    if not folder.is_dir():
        pytest.skip("the embedded models are not in this checkout")
    prompts = ["The train is late.", "We are eating bread and cheese."]
    shared = ("generate", *prompts, "--set", "models.dtype=float32", "--set")
    alone, both = cli(*shared, "decoding.method=target"), cli(*shared, "decoding.rule=lossless")
    assert alone.returncode == both.returncode == 0, alone.stderr + both.stderr
    assert alone.stdout == both.stdout
    assert len(alone.stdout.split()) > 4


@pytest.mark.parametrize(
    ("folder", "asked", "kept"), [(None, None, None), ("here", None, "0"), ("here", "5", "5")]
)
def test_what_compiles_is_kept_where_jax_keeps_programs(folder, asked, kept, monkeypatch, capsys):
    from spec_cascades import cli as command_line

    names = {"JAX_COMPILATION_CACHE_DIR": folder, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": asked}
    others = {key: value for key, value in command_line.os.environ.items() if key not in names}
    given = others | {key: value for key, value in names.items() if value is not None}
    monkeypatch.setattr(command_line.os, "environ", given)
    assert command_line.main(["rules"]) == 0
    assert command_line.os.environ.get("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS") == kept
