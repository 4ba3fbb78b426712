"""Files and overrides to plain data: what YAML's and gin's readers have in common and of their own."""

import subprocess
import sys
from pathlib import Path

import pytest

from spec_cascades.config import ConfigError, Decoding, Evaluate, Generate, Models, Sweep, Task, load
from spec_cascades.reading import over

SWEEP = """
ALPHAS = [0.1, 0.3]  # a macro
Sweep.output = 'out'
Sweep.repeats = 3
Sweep.task = @Task()
Sweep.points = [{'rule': 'v3', 'alpha': %ALPHAS}, {'method': 'target'}]
Task.path = 'embedded:en-de-everyday'
Models.drafter = None
Decoding:
    draft_max = 5
    temperature = %HEAT
HEAT = 1.0
"""


@pytest.fixture
def gin(tmp_path):
    pytest.importorskip("gin", reason="gin files need gin-config")

    def write(text, name="run.gin"):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


def yaml(tmp_path, text, name="run.yaml"):
    (tmp_path / name).write_text(text)
    return tmp_path / name


SAME = """
output: out
repeats: 3
points: [{rule: v3, alpha: [0.1, 0.3]}, {method: target}]
task: {path: embedded:en-de-everyday}
base: {gamma: 5, temperature: 1.0}
"""


def test_gin_and_yaml_build_the_same_sweep(tmp_path, gin):
    text = SWEEP.replace("Models.drafter = None\n", "")
    assert load(Sweep, gin(text)) == load(Sweep, yaml(tmp_path, SAME))
    assert load(Sweep, gin(text), ["base.gamma=2", "task.limit=7"]) == load(
        Sweep, yaml(tmp_path, SAME), ["base.gamma=2", "task.limit=7"]
    )


def test_every_dataclass_goes_by_its_name(gin):
    sweep = (
        "Task.path = 'x.tsv'\nModels.dtype = 'float32'\nDecoding.alpha = 0.5\nDecoding.method = 'target'\n"
    )
    found = load(Evaluate, gin(sweep + "Evaluate.output = 'o'"))
    assert found == Evaluate(
        Task("x.tsv"), "o", Models(dtype="float32"), Decoding(method="target", alpha=0.5)
    )
    generate = load(Generate, gin("Generate.prefix = 'a '\nDecoding.stop = ('.', '!')"))
    assert generate == Generate(prefix="a ", decoding=Decoding(stop=[".", "!"]))


def test_a_file_overrides_what_it_includes_macros_as_well(gin):
    gin(SWEEP.replace("Models.drafter = None\n", ""), "base.gin")
    config = load(Sweep, gin("include 'base.gin'\nALPHAS = [0.7]\nSweep.repeats = 1\n"))
    assert config.points[0]["alpha"] == [0.7]
    assert (config.repeats, config.base.gamma, config.base.temperature) == (1, 5, 1.0)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("Sweep.repeets = 3", ["run.gin:3", "'Sweep.repeets'", "did you mean 'repeats'"]),
        ("Swep.repeats = 3", ["run.gin:3", "'Swep'", "did you mean 'Sweep'", "Decoding"]),
        ("Swep:\n  repeats = 3", ["'Swep'", "did you mean 'Sweep'"]),
        ("Decoding.alpha = %ALPHA\nALPHAS = [1]", ["%ALPHA", "did you mean 'ALPHAS'"]),
        ("A = %B\nB = [%A]\nDecoding.stop = %A", ["%A", "made of itself"]),
        ("import os", ["run.gin:3", "nothing is imported"]),
        ("small/Decoding.gamma = 3", ["run.gin:3", "'small'"]),
        ("Decoding.gamma = ", ["run.gin is not gin", "line 3"]),
        ("Decoding.stop = [", ["run.gin is not gin"]),
        ("Sweep.task = @Models()", ["@Models"]),
        ("Decoding.stop = [@os.system()]", ["@os.system"]),
        ("include 'nowhere.gin'", ["run.gin:3", "nowhere.gin"]),
        ("include 'run.gin'", ["includes itself"]),
        ("Sweep.task = 'xsum'\nTask.limit = 3", ["task", "'xsum'"]),
        ("Decoding.gamma = 0", ["base.gamma", "1 or more"]),
    ],
)
def test_a_bad_gin_line_is_named(gin, line, words):
    path = gin(f"Sweep.output = 'x'\nTask.path = 'x.tsv'\n{line}\n")
    with pytest.raises(ConfigError) as error:
        load(Sweep, path)
    assert "\n" not in str(error.value)
    for word in words:
        assert word in str(error.value)


def test_the_command_line_takes_gin_and_exits_with_2_for_a_bad_one(tmp_path, gin):
    fakes = Path(__file__).with_name("fakes.py")
    text = SWEEP.replace("Models.drafter = None\n", "").replace("'out'", repr(str(tmp_path / "out")))
    run = lambda path, *more: subprocess.run(
        [sys.executable, str(fakes), "sweep", str(path), *more], capture_output=True, text=True
    )
    done = run(gin(text), "task.limit=2", "repeats=1")
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "out" / "records.jsonl").read_text().splitlines()) == 3
    bad = run(gin("Swep.repeats = 3\n"))
    assert (bad.returncode, bad.stderr.count("\n")) == (2, 1)
    assert "did you mean 'Sweep'" in bad.stderr


def test_without_gin_config_one_line_says_what_to_install(tmp_path):
    (tmp_path / "run.gin").write_text("Sweep.repeats = 3\n")
    code = (
        "import sys; sys.modules['gin'] = None\n"
        "from spec_cascades import config\n"
        f"config.load(config.Sweep, {str(tmp_path / 'run.gin')!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "ConfigError" in done.stderr
    assert "pip install 'spec-cascades[gin]'" in done.stderr


def test_gin_config_is_imported_for_gin_files_alone(tmp_path):
    path = yaml(tmp_path, SAME)
    code = (
        "import sys; from spec_cascades import config\n"
        f"config.load(config.Sweep, {str(path)!r}); sys.exit('gin' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_yaml_includes_another_file(tmp_path):
    (tmp_path / "inner").mkdir()
    yaml(tmp_path, SAME, "inner/base.yaml")
    path = yaml(
        tmp_path, "include: inner/base.yaml\nbase: {draft_max: 2}\npoints: [{alpha: 0.5}]\ntask: {limit: 4}\n"
    )
    assert load(Sweep, path, ["repeats=2"]) == Sweep(
        Task("embedded:en-de-everyday", limit=4),
        "out",
        base=Decoding(gamma=2, temperature=1.0),
        points=[{"alpha": 0.5}],
        repeats=2,
    )


@pytest.mark.parametrize("name", ["nowhere.yaml", "run.yaml"])
def test_a_bad_include_is_named(tmp_path, name):
    with pytest.raises(ConfigError, match=f"include.*{name}"):
        load(Sweep, yaml(tmp_path, f"include: {name}\n" + SAME))


def test_mappings_are_joined_and_lists_replaced():
    below = {"a": {"x": 1, "y": [1, 2]}, "b": 3, "c": {"z": 1}}
    assert over(below, {"a": {"y": [3]}, "c": 5}) == {"a": {"x": 1, "y": [3]}, "b": 3, "c": 5}
    assert below["a"] == {"x": 1, "y": [1, 2]}
