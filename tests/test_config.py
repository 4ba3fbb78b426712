import math
import subprocess
import sys

import pytest

from spec_cascades.checks import nearest
from spec_cascades.config import (
    ConfigError,
    Decoding,
    Evaluate,
    Generate,
    Models,
    Sweep,
    Task,
    expand,
    load,
    plain,
)

TASK = "task: {path: embedded:en-de-everyday}\noutput: out\n"


def write(tmp_path, text):
    path = tmp_path / "run.yaml"
    path.write_text(text)
    return path


def sweep_of(*points, **base):
    return Sweep(Task("embedded:en-de-everyday"), "out", base=Decoding(**base), points=list(points))


def test_yaml_then_overrides_then_types(tmp_path):
    path = write(tmp_path, TASK + "decoding: {rule: opt, alpha: 1, temperature: 1}\nrepeats: 2\n")
    config = load(
        Evaluate, path, ["decoding.alpha=-inf", "task.limit=7", "decoding.gamma=3", "models.drafter=null"]
    )
    assert config.decoding == Decoding(rule="opt", alpha=-math.inf, temperature=1.0, gamma=3)
    assert isinstance(config.decoding.temperature, float)
    assert (config.task.limit, config.repeats) == (7, 2)
    assert config.models == Models("embedded:en-de-target", None)


def test_generate_needs_no_file():
    config = load(Generate, None, ["decoding.rule=chow"])
    assert config.models.target == "embedded:en-de-target"
    assert config.decoding.rule == "chow"


@pytest.mark.parametrize("alias", ["num_speculative_tokens", "num_assistant_tokens", "draft_max"])
def test_aliases_of_gamma(tmp_path, alias):
    path = write(tmp_path, TASK + f"decoding: {{{alias}: 7}}\n")
    assert load(Evaluate, path).decoding.gamma == 7
    assert load(Evaluate, path, [f"decoding.{alias}=2"]).decoding.gamma == 2
    assert [p.decoding.gamma for p in expand(sweep_of({alias: [1, 2]}))] == [1, 2]


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("decoding.alhpa=1", ["decoding.alhpa", "did you mean 'alpha'"]),
        ("repeat=1", ["'repeat'", "did you mean 'repeats'"]),
        ("decoding.gamma=0", ["decoding.gamma", "0", "1 or more"]),
        ("decoding.gamma=2.5", ["decoding.gamma", "2.5"]),
        ("decoding.temperature=-1", ["decoding.temperature", "-1"]),
        ("decoding.temperature=inf", ["decoding.temperature", "inf"]),
        ("decoding.top_p=0", ["decoding.top_p", "(0, 1]"]),
        ("decoding.top_p=1.1", ["decoding.top_p", "(0, 1]"]),
        ("decoding.min_p=1", ["decoding.min_p", "[0, 1)"]),
        ("decoding.top_k=-1", ["decoding.top_k"]),
        ("decoding.alpha=nan", ["decoding.alpha", "nan"]),
        ("decoding.alpha=high", ["decoding.alpha", "high"]),
        ("decoding.method=beam", ["decoding.method", "'beam'", "speculative"]),
        ("decoding.rule=v4", ["decoding.rule", "'v4'", "v3"]),
        ("models.dtype=float16", ["models.dtype", "float16", "bfloat16"]),
        ("task.join=0", ["task.join"]),
        ("decoding=3", ["decoding", "3"]),
        ("models.target=null", ["models.target", "needs it"]),
        ("decoding.gamma", ["key=value"]),
    ],
)
def test_a_bad_override_is_named(tmp_path, override, words):
    path = write(tmp_path, TASK)
    if override == "models.target=null":
        with pytest.raises(ConfigError) as error:
            load(Sweep, path, [override])
    else:
        with pytest.raises(ConfigError) as error:
            load(Evaluate, path, [override])
    assert "\n" not in str(error.value)
    for word in words:
        assert word in str(error.value)


def test_missing_keys_and_files_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"missing: task, output"):
        load(Evaluate, write(tmp_path, "repeats: 1\n"))
    with pytest.raises(ConfigError, match=r"task\.path: missing"):
        load(Evaluate, write(tmp_path, "task: {limit: 3}\noutput: x\n"))
    with pytest.raises(ConfigError, match=r"nowhere\.yaml"):
        load(Evaluate, tmp_path / "nowhere.yaml")
    with pytest.raises(ConfigError, match="not YAML"):
        load(Evaluate, write(tmp_path, "a: [1\n"))
    with pytest.raises(ConfigError, match="both mean 'gamma'"):
        load(Evaluate, write(tmp_path, TASK + "decoding: {gamma: 1, draft_max: 2}\n"))


def test_points_multiply_and_are_named():
    points = expand(
        sweep_of({"method": "target", "min_p": [0.0, 0.1]}, {"rule": ["v3", "opt"], "alpha": [0.1, 0.5]})
    )
    assert [p.name for p in points] == [
        "target",
        "target min_p=0.1",
        "v3 alpha=0.1",
        "v3 alpha=0.5",
        "opt alpha=0.1",
        "opt alpha=0.5",
    ]
    assert points[1].decoding == Decoding(method="target", min_p=0.1)
    named = expand(sweep_of({"name": "mine", "gamma": [1, 2]}, {"name": "alone"}))
    assert [p.name for p in named] == ["mine gamma=1", "mine gamma=2", "alone"]


def test_points_that_cannot_be_told_apart_are_refused():
    with pytest.raises(ConfigError, match=r"two are named 'v3 alpha=0\.5'"):
        sweep_of({"alpha": [0.5, 0.5]})
    with pytest.raises(ConfigError, match=r"points\[1\].*did you mean 'alpha'"):
        sweep_of({}, {"alhpa": 1})
    with pytest.raises(ConfigError, match=r"points\[0\]\.gamma.*1 or more"):
        sweep_of({"gamma": [2, 0]})
    with pytest.raises(ConfigError, match="at least one point"):
        sweep_of()


def test_overrides_reach_into_points(tmp_path):
    path = write(tmp_path, TASK + "points: [{rule: v3, alpha: 0.1}, {method: target}]\n")
    config = load(Sweep, path, ["points[0].alpha=[0.2,0.3]", "base.temperature=1"])
    assert [p.name for p in expand(config)] == ["v3 alpha=0.2", "v3 alpha=0.3", "target"]
    with pytest.raises(ConfigError, match="list index out of range"):
        load(Sweep, path, ["points[5].alpha=1"])


def test_plain_data_is_json():
    assert plain(Decoding(alpha=-math.inf))["alpha"] == "-inf"
    assert plain([1.5, {"a": (math.inf,)}]) == [1.5, {"a": ["inf"]}]


def test_nearest_stays_silent_without_a_neighbour():
    assert nearest("zzz", ("alpha", "gamma")) == ""


def test_rule_names_are_the_registrys():
    rules = pytest.importorskip("spec_cascades.rules", reason="the rules need jax")
    from spec_cascades.config import RULES

    assert set(RULES) == set(rules.RULES)


@pytest.mark.parametrize(
    "module", ["config", "tasks.examples", "metrics.rates", "metrics.text", "report", "records", "sweep"]
)
def test_no_jax_is_imported(module):
    code = f"import sys, spec_cascades.{module}; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
