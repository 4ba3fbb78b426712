"""`plan` as a whole: published sizes on a chip, and the command line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from planned import plan

from spec_cascades import cli, planning
from spec_cascades.checks import ConfigError
from spec_cascades.config import Models
from spec_cascades.planning import machine, pair
from spec_cascades.reproduce import sizes
from spec_cascades.reproduce.sizes import Room

TIMES = "chip=docs/records/simulate/call_times.jsonl"


def grown(model):
    """Bytes of a cache that another token of the prompt takes."""
    return model.cache(65) - model.cache(64)


@pytest.fixture(scope="module")
def models():
    return pair.pair(plan(models=Models("t5-v1_1-small", "smollm2-135m"), prompt=64))


def test_a_published_size_is_known_by_its_name(models):
    t5, smol = models["target"], models["drafter"]
    assert (t5.parameters, smol.parameters) == (76_961_152, 134_515_008)
    assert (t5.layers, t5.kv_heads, t5.reduces, t5.prefill_reduces) == (8, 6, 25, 17)
    assert (smol.layers, smol.kv_heads, smol.reduces, smol.prefill_reduces) == (30, 3, 61, 61)
    assert t5.held == 2 * t5.parameters
    # Keys and values of three heads of 64 numbers in 30 layers, a token of the prompt.
    assert grown(smol) == 2 * 3 * 64 * 30 * 4
    # A prompt's token passes through every kernel once, but for T5's decoder and both heads.
    assert smol.prefill_flops == 2 * (134_515_008 - 49_152 * 576 - 61 * 576)
    assert t5.prefill_flops < 2 * t5.parameters


def test_int8_takes_a_byte_a_number(models):
    """And a scale, of four bytes, a cached token and head of 64 numbers."""
    own = Models("smollm2-135m", "smollm2-135m", weights="int8", cache="int8", drafter_cache="bfloat16")
    small = pair.pair(plan(models=own, prompt=64))
    assert small["target"].held == small["target"].parameters
    assert small["target"].read == small["drafter"].read == models["drafter"].read / 2
    assert grown(small["target"]) == grown(models["drafter"]) * 68 / 256
    assert grown(small["drafter"]) == grown(models["drafter"]) / 2


def test_a_cache_is_what_the_model_makes_on_either_side_of_its_window():
    asked = plan(models=Models("gemma-3-1b", "lookup", cache="bfloat16"), prompt=64, answer=40)
    model = pair.pair(asked)["target"]
    assert (model.near, model.window, model.chunk) == (22, 512, 512)
    for prompt in (20, 470, 480, 3000, 30_000):
        size = sizes.size("gemma-3-1b", "bfloat16", 1, prompt, Room(51, 11), ("dtype", "bfloat16"))
        assert model.cache(prompt) == pytest.approx(size.cache), prompt


def test_an_unknown_model_is_named():
    with pytest.raises(ConfigError, match="'gemma-9' is not known"):
        planning.run(plan(models=Models("gemma-9", "lookup"), chip="v5e"))


def test_the_plan_of_a_chip_hangs_together(models, monkeypatch):
    monkeypatch.setattr("spec_cascades.planning.planner.pair", lambda asked: models)
    got = planning.run(plan(chip="v5e", models=Models("t5-v1_1-small", "smollm2-135m"), prompt=64))
    assert [m.name for m in got.methods] == ["target", "lossless", "cascade", "token", "sequence", "drafter"]
    assert got.methods[0].speed_up == 1
    assert got.fit.fits
    assert sorted(got.calls.values()) == list(got.calls.values())
    assert json.loads(json.dumps(got.as_json()))["fit"]["total"] == got.fit.total


def test_this_machine_has_peaks(monkeypatch):
    monkeypatch.setattr(machine, "WIDTH", 32)
    monkeypatch.setattr(machine, "READ", 1024)
    chip = machine.measure()
    assert min(chip.flops, chip.int8_ops, chip.bandwidth, chip.memory) > 0


def test_the_command_compares_with_a_record_and_needs_no_jax():
    code = (
        "import sys; from spec_cascades import cli\n"
        f"code = cli.main(['plan', {TIMES!r}, 'answer=16', '--record', 'docs/records/speed'])\n"
        "sys.exit('imported jax' if 'jax' in sys.modules else code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "as measured in docs/records/simulate" in done.stdout
    assert "lossless gamma=2 batch_size=8" in done.stdout
    assert "break-even" in done.stdout
    assert "28 points, 27 within 20%" in done.stdout


def test_json_and_a_table_of_chips(capsys):
    assert cli.main(["plan", TIMES, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (
        told["calls"]["1"]
        == json.loads(Path(TIMES.removeprefix("chip=")).read_text())["calls"]["target"]["1"][0]
    )
    assert told["asked"]["models"]["target"] == "embedded:en-de-target"
    assert cli.main(["plan", "answer=16", "--chips", TIMES.removeprefix("chip=")]) == 0
    head, rule, row = capsys.readouterr().out.splitlines()
    assert head.count("|") == rule.count("|") == row.count("|")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["chip=v7"], "v5e, v5p, v6e, h100, h200, cpu"),
        ([TIMES, "batch=16"], "largest is 8"),
        ([TIMES, "gama=2"], "did you mean 'gamma'"),
        (["mesh.model=0"], "models.mesh.model: 0 must be 1 or more"),
        (["weights=int8"], "weights: a plan reads models.weights"),
        (["cache=int8"], "cache: a plan reads models.cache"),
        (["drafter_mesh=replicated"], "drafter_mesh: a plan reads mesh.drafter"),
        (["models.target=t5-v1_1-small", "mesh.model=4"], "heads, 6, cannot be divided in 4 parts"),
        ([TIMES, "models.cache=int8"], "models.cache=float32, not int8"),
        ([TIMES, "mesh.data=2"], "models.mesh=None"),
        (["configs/checks/tune.yaml"], "unknown key 'loss'"),
        (["configs/paper/table2.yaml", "mesh.model=2"], "TPUv4 states no interconnect"),
    ],
)
def test_bad_input_is_one_line_and_2(arguments, words, capsys):
    assert cli.main(["plan", *arguments]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
