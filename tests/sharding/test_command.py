"""`generate` with a mesh, in a process that sees eight devices."""

import json
import os
import subprocess
import sys

import pytest
from test_meshes import FLAGS

CODE = """
import contextlib, io, json
from spec_cascades import cli

plain = ["generate", "--jsonl", "The cat sat on the mat.", "We are hungry.", "Where is he?"]
for setting in (
    "models.target=embedded:en-de-drafter models.dtype=float32 decoding.rule=lossless decoding.gamma=2 "
    "decoding.max_new_tokens=8 decoding.batch_size=3"
).split():
    plain += ["--set", setting]
for mesh in ([], ["mesh.data=4", "mesh.model=2"], ["mesh={data: 8, model: 2}"], ["mesh.model=8"]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main(plain + [x for setting in mesh for x in ("--set", setting)])
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""


@pytest.fixture(scope="module")
def said():
    """[exit code, stdout, stderr] without a mesh, with one that fits, and with two too large."""
    there = os.environ | {"XLA_FLAGS": FLAGS, "JAX_PLATFORMS": "cpu"}
    ran = subprocess.run([sys.executable, "-c", CODE], env=there, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-4000:]
    return [json.loads(line) for line in ran.stdout.splitlines()]


def test_generate_says_the_same_on_a_mesh(said):
    plain, sharded = ([json.loads(line) for line in out.splitlines()] for _, out, _ in said[:2])
    assert [code for code, _, _ in said[:2]] == [0, 0]
    assert len(plain) == 3
    assert len({row["text"] for row in plain}) == 3
    assert sharded == plain


def test_a_mesh_that_does_not_fit_is_a_clear_error(said):
    (many, _, devices), (parts, _, heads) = said[2:]
    assert (many, parts) == (2, 2)
    assert "mesh: data=8 x model=2 wants 16 devices, and there are 8 (cpu)" in devices
    assert "mesh: the drafter's heads, 2, cannot be divided in 8 parts; mesh.drafter may be smaller" in heads
