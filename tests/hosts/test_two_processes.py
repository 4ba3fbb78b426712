"""Real processes over `jax.distributed`: one is killed, all start again, and the records are the same."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from spec_cascades import runlog

WORKER = Path(__file__).with_name("worker.py")
KILLED, GONE = -signal.SIGKILL, {75, -signal.SIGABRT}
"""How a process ends that is killed, and one that lost another: told so by a collective, or ended by jax."""


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """Starts one process of two (or the only one), what it compiles kept for the others."""
    folder = tmp_path_factory.mktemp("run")
    prompts = ["1 3 2", "0 1 1", "2 2 3", "3 0 1", "1 1 1", "2 3 0"]
    (folder / "pairs.tsv").write_text("".join(f"{prompt}\t1 2 3\n" for prompt in prompts))
    config = {
        "task": {"path": str(folder / "pairs.tsv")},
        "base": {"temperature": 1.0, "max_new_tokens": 8},
        "points": [{"rule": "v3", "alpha": 0.5, "gamma": 2}],
    }
    (folder / "sweep.yaml").write_text(yaml.safe_dump(config))
    kept = {
        "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }

    def begin(out, *flags, own=()):
        asked = ("sweep", str(folder / "sweep.yaml"), f"output={out}") if out else ("generate",)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        command = [sys.executable, str(WORKER), *own, *asked, *flags]
        return subprocess.Popen(command, env=os.environ | kept, **pipes)

    return begin


def both(start, outs, own=((), ()), more=((), ())):
    """Exit codes and what was printed, (out, err), of two processes that meet."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    flags = ("--coordinator", address, "--processes", "2", "--heartbeat", "10")
    running = [start(outs[i], *flags, "--process", str(i), *more[i], own=own[i]) for i in (0, 1)]
    said = [process.communicate() for process in running]
    return [process.returncode for process in running], said


@pytest.fixture(scope="module")
def alone(start, tmp_path_factory):
    """The run folder of one process."""
    folder = tmp_path_factory.mktemp("alone") / "out"
    process = start(folder)
    _, err = process.communicate()
    assert process.returncode == 0, err
    return folder


def timeless(record):
    """A record without seconds."""
    timed = ("latency", "time_to_first_token", "time_per_output_token", "compile_seconds")
    return {key: value for key, value in record.items() if key not in timed}


def answers(folder):
    lines = [line for line in runlog.read_lines(folder) if line["kind"] == "batch"]
    return {(b["point"], b["repeat"], a["index"]): (b["seed"], a) for b in lines for a in b["answers"]}


def batches(folder):
    return [(x["point"], x["first"]) for x in runlog.read_lines(folder) if x["kind"] == "batch"]


def same(folder, alone):
    assert answers(folder) == answers(alone)
    found, wanted = runlog.read_records(folder), runlog.read_records(alone)
    assert list(map(timeless, found)) == list(map(timeless, wanted))


def test_killed_and_started_again_the_records_are_those_of_one_process(start, alone, tmp_path):
    outs = [tmp_path / "host0", tmp_path / "host1"]  # a disk each
    shard = outs[1] / "shards" / "1-of-2"
    codes, said = both(start, outs, own=((), ("--die", "1")))
    assert codes[1] == KILLED
    assert codes[0] in GONE, said[0]
    assert not (outs[0] / runlog.RECORDS).exists()
    assert len(batches(shard)) == 1
    kept = (shard / runlog.EXAMPLES).read_bytes()
    codes, said = both(start, outs)
    assert codes == [0, 0], said
    assert (shard / runlog.EXAMPLES).read_bytes().startswith(kept)
    assert len(batches(shard)) == len(set(batches(shard))) == 3
    same(outs[0], alone)
    assert not (outs[1] / runlog.RECORDS).exists()
    # Gloo has a line of its own.
    assert ["v3 alpha=0.5" in out for out, _ in said] == [True, False]


def test_models_on_the_devices_of_both_run_in_step(start, alone, tmp_path):
    """From a log in which process 0, and it alone, has one batch."""
    outs = [tmp_path / "host0", tmp_path / "host1"]
    shutil.copytree(alone, outs[0])
    lines = (alone / runlog.EXAMPLES).read_text().splitlines(keepends=True)
    first = [json.loads(line)["kind"] for line in lines].index("batch")
    (outs[0] / runlog.EXAMPLES).write_text("".join(lines[: first + 1]))
    (outs[0] / runlog.RECORDS).unlink()
    traces = tmp_path / "profile"  # one disk, and perhaps one second
    everywhere, profile = ("--everywhere",), ("--profile", str(traces))
    codes, said = both(start, outs, own=(everywhere, everywhere), more=(profile, profile))
    assert codes == [0, 0], said
    folders = sorted(path.relative_to(traces).parts[:2] for path in traces.rglob("*.xplane.pb"))
    assert folders == [(f"process-{i}-of-2", "0-speculative-v3") for i in (0, 1)]
    assert ["0-speculative-v3, process 0 of 2" in err for _, err in said] == [True, False]
    assert not any("process 1 of 2" in err for _, err in said)
    assert len(batches(outs[0])) == len(set(batches(outs[0]))) == 6
    same(outs[0], alone)
    assert not outs[1].exists()


def test_prompts_are_those_of_process_0_and_so_is_what_is_printed(start):
    prompts = (("we are at home",), ("--file", "nowhere.txt"))
    codes, said = both(start, [None, None], own=(("--pretend",), ("--pretend",)), more=prompts)
    assert codes == [0, 0], said
    assert ["home" in out for out, _ in said] == [True, False]
    assert ["1 answers" in err for _, err in said] == [True, False]


def test_answers_that_all_would_give_alike_are_refused(start):
    codes, said = both(start, [None, None], more=(("hello",), ("hello",)))
    assert codes == [2, 2], said
    for _, err in said:
        assert "let mesh span the processes" in err
