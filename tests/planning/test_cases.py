"""A plan is read from the configuration of the run that it is for."""

import json
from pathlib import Path

import pytest

from spec_cascades import cli, planning
from spec_cascades.config import Mesh, Models
from spec_cascades.planning.settings import Plan
from spec_cascades.reproduce import Chip

CONFIGS = Path(__file__).parents[2] / "configs"


def one(path, *overrides):
    (case,) = planning.read(path and str(path), overrides)
    return case


def written(tmp_path, text):
    path = tmp_path / "run.yaml"
    path.write_text(text)
    return path


def test_without_a_run_a_plan_is_its_own():
    assert one(None) == ("", Plan(), None)
    assert one(None, "chip=h100", "mesh.model=2").plan == Plan(Models(mesh=Mesh(1, 2)), "h100")


def test_a_sweep_says_what_is_planned_for():
    """Gamma 4 in all points, 130 examples at batch 1, prompts of a file taken to have 128 tokens."""
    plan = Plan(Models(), batch=1, prompt=128, answer=64, gamma=4)
    assert one(CONFIGS / "quickstart.yaml") == ("", plan, 130)
    told = one(CONFIGS / "quickstart.yaml", "base.batch_size=8", "gamma=2", "chip=h100", "repeats=3")
    assert (told.plan.batch, told.plan.gamma, told.plan.chip, told.batches) == (8, 2, "h100", 3 * 17)


def test_points_of_several_gammas_are_planned_for_the_best():
    plan = one(CONFIGS / "quickstart.yaml", "points=[{rule: lossless, gamma: [2, 14], batch_size: 4}]").plan
    assert (plan.gamma, plan.most_gamma, plan.batch) == (0, 14, 4)


def test_an_evaluation_is_a_sweep_of_one_point(tmp_path):
    """With the models as they are held, the mesh, and the answers that the task is known to have."""
    path = written(
        tmp_path,
        "models: {target: gemma-2-2b, drafter: gemma-2-2b, weights: int8, drafter_cache: int8}\n"
        "mesh: {data: 2, model: 4, drafter: 1}\n"
        "task: {name: xsum, limit: 10, view: encdec}\n"
        "decoding: {gamma: 7, batch_size: 4}\n"
        "repeats: 2\n",
    )
    plan, batches = one(path)[1:]
    own = Models("gemma-2-2b", "gemma-2-2b", weights="int8", drafter_cache="int8", mesh=Mesh(2, 4, 1))
    assert (plan.models, plan.gamma, plan.batch, batches) == (own, 7, 4, 6)
    assert (plan.prompt, plan.answer) == (1024, 64)
    assert plan.over("drafter") == 1
    assert one(path, "task.max_input_tokens=99", "answer=5").plan.prompt == 99


def test_a_generation_has_no_task(tmp_path):
    path = written(tmp_path, "decoding: {method: target, max_new_tokens: 9}\nprefix: Say\nrefill: false\n")
    assert one(path) == ("", Plan(answer=9), None)


@pytest.mark.parametrize("ending", ["yaml", "gin"])
def test_an_experiment_is_a_plan_for_each_column(ending):
    if ending == "gin":
        pytest.importorskip("gin", reason="gin files need gin-config")
    cases = planning.read(str(CONFIGS / "paper" / f"table2.{ending}"))
    assert [case.name for case in cases][:2] == ["WMT14 EN-DE, small to large", "WMT14 EN-DE, small to XL"]
    assert [case.plan.models.target.rpartition("-")[2] for case in cases] == ["large", "xl"] * 3
    assert {case.plan.answer for case in cases} == {80, 64, 128}
    assert cases[0].plan.peaks == Chip("TPUv4", 275.0, 1200.0, 34.4)
    assert cases[0].batches == 1500
    chosen = planning.read(str(CONFIGS / "paper" / f"table2.{ending}"), ["chip=v5e"])[0].plan
    assert (chosen.chip, chosen.peaks) == ("v5e", None)


def test_the_command_plans_a_run(capsys):
    times = "chip=docs/records/simulate/call_times.jsonl"
    assert cli.main(["plan", "configs/simulate/measured.yaml", times]) == 0
    told = capsys.readouterr().out
    assert "answers of 64 tokens" in told
    assert "A decoding of the run is 72 batches: target" in told


def test_the_command_plans_every_column(tmp_path, capsys):
    path = written(
        tmp_path,
        "title: two\nkind: tradeoff\ntask: {path: embedded:en-de-everyday}\n"
        "chip: {name: mine, tflops: 1, gb_per_second: 10, memory_gb: 4}\n"
        "models: {target: smollm2-135m, drafter: lookup}\n"
        "columns: [{name: one}, {name: more, base: {batch_size: 8}}]\n",
    )
    assert cli.main(["plan", str(path)]) == 0
    head, rule, *rows = capsys.readouterr().out.splitlines()
    assert [row.split(" | ")[:3] for row in rows] == [["| one", "mine", "1"], ["| more", "mine", "1"]]
    assert {row.count("|") for row in (head, rule, *rows)} == {head.count("|")}
    assert cli.main(["plan", str(path), "--json"]) == 0
    assert [plan["asked"]["batch"] for plan in json.loads(capsys.readouterr().out)] == [1, 8]
