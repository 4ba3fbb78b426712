"""q and p along texts, and commands that read them, on a mesh: in a process that sees eight devices."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_meshes import FLAGS, VOCAB

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def found():
    """{what: what came out of it}"""
    paths = os.pathsep.join(map(str, (HERE.parents[1], HERE.parent, HERE)))
    there = os.environ | {"XLA_FLAGS": FLAGS, "JAX_PLATFORMS": "cpu", "PYTHONPATH": paths}
    ran = subprocess.run([sys.executable, HERE / "reading.py"], env=there, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-4000:]
    return {k: v for line in ran.stdout.splitlines() if line[0] == "{" for k, v in json.loads(line).items()}


def test_q_and_p_along_texts_are_those_of_one_device(found):
    """Filtered and edited scores, rows that do not divide, a drafter over fewer devices."""
    assert found["pairs"]["shapes"] == [[4, VOCAB], [1, VOCAB], [7, VOCAB]]
    assert found["pairs"]["off"] < 2e-6
    assert found["pairs"]["kept"]


def test_laws_stay_divided_until_they_are_on_the_host(found):
    """Half of the rows and a quarter of the vocabulary on each device; nothing as large as that travels."""
    rows, length, ids = 2, 32, VOCAB // 4
    assert found["pairs"]["laws"] == [[rows, length, ids]] * 2
    assert 0 < max(found["pairs"]["moved"].values()) < rows * length * ids // 8
    for said in found["widths"].values():  # 16 of 32 positions a device
        assert said["held"] == [16, ids]
        assert 0 < max(said["moved"].values()) <= 16 * ids // 4


def test_rules_are_priced_along_texts_of_a_mesh_as_of_one_device(found):
    said = found["replay"]
    code, out, err = said["code"]
    assert code == 0, err
    assert "v3 alpha=0.8" in out
    assert said["off"] < 1e-6


def test_a_trace_on_a_mesh_draws_what_was_decoded_and_has_the_figures_of_one_device(found):
    said = found["trace"]
    assert said["tokens"] > 2
    assert said["disagreements"] == 0
    assert said["off"] < 1e-6


def test_the_attention_kernel_reads_rows_and_heads_where_they_lie(found):
    """Two of four rows a device, and two of eight query heads of eight numbers, or four of a drafter's."""
    said = found["kernel"]
    assert max(case["off"] for case in said.values()) < 2e-6
    assert [case["shard"] for case in said.values()] == [[2, 3, 16], [2, 3, 32]]


def test_bfloat16_on_a_mesh_follows_its_own_law(found):
    said = found["bfloat16"]
    assert said["passed"], said["p_value"]
    assert said["cells"] > 8


def test_bfloat16_tokens_on_a_mesh_are_those_of_one_device_but_for_near_ties(found):
    """Both read the same answers; what differs between the two is the noise, as in an audit."""
    said = found["bfloat16"]
    assert said["distinct"] > 20
    assert 1e-4 < said["noise"] < 0.5, "nothing was rounded on the way between devices, or all was"
    assert max(said["gaps"], default=0.0) < 2 * said["noise"]
    assert len(said["gaps"]) < 4


def test_a_mesh_that_cannot_be_is_refused_by_each_command(found):
    said = found["refusals"]
    assert {code for code, _, _ in said.values()} == {2}
    assert "the target's heads, 4, cannot be divided in 8 parts" in said.pop("heads")[2]
    assert sorted(said) == ["audit", "replay", "trace", "tune"]
    for _, _, err in said.values():
        assert "mesh: data=8 x model=2 wants 16 devices, and there are 8 (cpu)" in err
