"""Training configurations: what is read, what is refused, and which change a resume allows."""

import subprocess
import sys
from dataclasses import replace

import pytest
from copying import MODEL, settings

from spec_cascades.config import ConfigError, load
from spec_cascades.train import runfolder
from spec_cascades.train.settings import ACTIVATIONS, Teacher, Train


def test_a_file_round_trips(write):
    given = settings("out", teacher=Teacher("somewhere", "tv", 0.5, 2.0))
    assert load(Train, write(given)) == given
    assert load(Train, write(replace(given, teacher=None))).teacher is None


def test_overrides_reach_into_an_absent_teacher(write):
    path = write(settings("out"))
    loaded = load(Train, path, ["teacher.ref=somewhere", "teacher.temperature=2", "model.heads=3"])
    assert loaded.teacher == Teacher("somewhere", temperature=2.0)
    assert loaded.model == replace(MODEL, heads=3)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["steps=0"], ["steps", "0", "1 or more"]),
        (["rows=0"], ["rows", "1 or more"]),
        (["eval_every=0"], ["eval_every", "1 or more"]),
        (["save_every=-1"], ["save_every", "-1"]),
        (["warmup=60"], ["warmup", "60", "steps"]),
        (["warmup=-1"], ["warmup", "-1"]),
        (["dropout=1"], ["dropout", "[0, 1)"]),
        (["dropout=-0.1"], ["dropout", "-0.1"]),
        (["dtype=float16"], ["dtype", "float16", "bfloat16"]),
        (["peak_lr=0"], ["peak_lr", "positive"]),
        (["final_lr=-1"], ["final_lr", "-1"]),
        (["clip=0"], ["clip", "positive"]),
        (["weight_decay=-1"], ["weight_decay"]),
        (["seed=-1"], ["seed", "-1"]),
        (["step=5"], ["'step'", "did you mean 'steps'"]),
        (["model.heads=0"], ["model.heads", "1 or more"]),
        (["model.activation=swish"], ["model.activation", "'swish'", "gelu, relu"]),
        (["data.join=0"], ["data.join", "1 or more"]),
        (["data.train=null"], ["data.train"]),
        (["teacher=3"], ["teacher", "3", "mapping"]),
        (["teacher.loss=kl"], ["missing", "teacher.ref"]),
        (["teacher.ref=x", "teacher.los=tv"], ["teacher.los", "did you mean 'loss'"]),
        (["teacher.ref=x", "teacher.loss=js"], ["teacher.loss", "'js'", "kl, reverse_kl, tv"]),
        (["teacher.ref=x", "teacher.temperature=0"], ["teacher.temperature", "positive"]),
        (["teacher.ref=x", "teacher.nll_weight=1.5"], ["teacher.nll_weight", "[0, 1]"]),
    ],
)
def test_bad_values_are_named(write, overrides, words):
    with pytest.raises(ConfigError) as error:
        load(Train, write(settings("out")), overrides)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_the_schema_knows_the_models_activations():
    from spec_cascades.models import t5

    assert set(ACTIVATIONS) == set(t5.ACTIVATIONS)


def test_reading_a_configuration_imports_no_jax():
    code = "import sys, spec_cascades.train.runfolder; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.fixture
def run(tmp_path):
    """Settings of a run that has a finished checkpoint."""
    given = settings(tmp_path / "out")
    runfolder.claim(given)
    (tmp_path / "out" / "checkpoints" / "20").mkdir(parents=True)
    return given


def test_a_resume_may_change_the_pace_of_reports(run, tmp_path):
    changed = replace(run, eval_every=3, save_every=7)
    runfolder.claim(changed)
    assert load(Train, tmp_path / "out" / "config.yaml") == changed


def test_a_run_may_be_moved(run, tmp_path):
    (tmp_path / "out").rename(tmp_path / "moved")
    runfolder.claim(replace(run, out=str(tmp_path / "moved")))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (dict(steps=80), "steps was 60 and is 80"),
        (dict(peak_lr=1e-4), "peak_lr was 0.01 and is 0.0001"),
        (dict(seed=1), "seed was 0 and is 1"),
        (dict(model=replace(MODEL, d_ff=64)), "model.d_ff was 32 and is 64"),
        (dict(teacher=Teacher("x")), "teacher.ref was None and is 'x'"),
    ],
)
def test_a_resume_with_other_settings_is_refused(run, change, words, tmp_path):
    before = (tmp_path / "out" / "config.yaml").read_text()
    with pytest.raises(ConfigError, match=words):
        runfolder.claim(replace(run, **change))
    assert (tmp_path / "out" / "config.yaml").read_text() == before


def test_a_folder_without_a_checkpoint_or_a_configuration_binds_nobody(run, tmp_path):
    other = replace(run, steps=80)
    (tmp_path / "out" / "config.yaml").unlink()
    runfolder.claim(other)
    assert load(Train, tmp_path / "out" / "config.yaml") == other
    # A checkpoint that a kill cut short has another name until it is whole.
    (tmp_path / "out" / "checkpoints" / "20").rename(tmp_path / "out" / "checkpoints" / "20.partial")
    runfolder.claim(run)


def test_a_log_loses_the_rows_after_the_restored_step(tmp_path, capsys):
    path = tmp_path / "log.jsonl"
    with runfolder.Log(path, 60, 0) as log:
        for step in (10, 20, 30):
            log.report(step, {"loss": 1.0})
    assert "loss" in capsys.readouterr().err
    path.write_text(path.read_text().replace('"seconds": 0.0', '"seconds": 5.0') + '{"step": 4')
    with runfolder.Log(path, 60, 20) as log:
        log.report(30, {"loss": 0.5})
    rows = list(runfolder._rows(path))
    assert [(row["step"], row["loss"]) for row in rows] == [(10, 1.0), (20, 1.0), (30, 0.5)]
    assert rows[-1]["seconds"] >= 5.0
