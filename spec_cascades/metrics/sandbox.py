"""Runs generated Python programs, one process tree each, behind the strongest wall that the system allows.

What a wall is made of, in the order tried (`available` says what this machine leaves open):

* namespaces (Linux 5.12, as root or where users may create them): processes, mounts, network and IPC of its
  own; a root that shows Python and the system's libraries read-only, and an empty /tmp; no /proc; no
  capabilities; as root, another user.
* Landlock and a system-call filter (Linux 5.13, also in most containers): reads Python and the system's
  libraries, writes in its folder, opens no socket and starts no process.
* Python's audit hooks, elsewhere on POSIX: they stop accidents, not attacks.

Everywhere: an empty environment, an empty stdin, `Limits`, the standard library alone, a fixed hash seed, and
a folder that is removed. A program passes when the line behind its last one was reached: leaving early,
printing, and replacing modules or builtins do not count.

What this cannot do: program and assertions share an interpreter, as the benchmarks ask. An answer whose
objects equal everything passes its assertions, and one written against this very code could search the
interpreter's frames or its open descriptors for the token's pipe and vouch for itself. It would still be
behind the wall.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from functools import cache
from math import comb
from pathlib import Path

LEVELS = ("namespaces", "landlock", "hooks")
GRACE = 60  # seconds that a supervisor may take beyond the program's wall clock
PROBE = """import decimal, os, random, tempfile, time
tempfile.TemporaryFile().write(b"x")
for _ in range(100):  # a wall that does not bound these is none
    try:
        child = os.fork()
    except OSError:
        break
    if not child:
        time.sleep(60)
        os._exit(0)
else:
    raise SystemError("processes are not bounded")
"""


class SandboxError(ValueError):
    """Programs cannot be run here, or a supervisor failed."""


@dataclass(frozen=True)
class Limits:
    """Bounds of one program; ValueError unless positive.

    CPU seconds of a process (whole), wall seconds, MiB of address space of a process and of private memory of
    all, processes at a time, MiB of a file (in namespaces: of all files), KiB of output that is kept.
    """

    cpu_seconds: int = 5
    wall_seconds: float = 10.0
    memory_mb: int = 1024
    processes: int = 16
    file_mb: int = 16
    output_kb: int = 16

    def __post_init__(self):
        for field in fields(self):
            value, kind = getattr(self, field.name), field.type
            fits = type(value) is int or type(value) is kind
            if not fits or not 0 < value < 1e6:
                raise ValueError(
                    f"{field.name}: {value!r} must be a positive {kind.__name__} below a million"
                )


@dataclass(frozen=True)
class Outcome:
    """What became of a program.

    `reason` is passed, failed (an exception), exited (ended before its last line), timeout, memory or
    processes; `seconds` are of the wall clock; `output` is stdout and stderr, less its middle if long.
    """

    passed: bool
    reason: str
    seconds: float
    output: str


DEFAULT = Limits()


def run(program: str, limits: Limits = DEFAULT, assertions: str = "") -> Outcome:
    """Runs a program, and then `assertions` in the same module; SandboxError where nothing can be run.

    The two are compiled apart, so that a program that ends within a string cannot swallow what follows. The
    module's __name__ is "program", as in the benchmarks' own runners: a main block does not run.
    """
    return _run([program, assertions], limits, _level()[0])


def check(pairs: Iterable[tuple[str, str]], limits: Limits = DEFAULT, workers: int = 1) -> list[Outcome]:
    """Outcomes of (program, assertions), in order, `workers` of them at a time."""
    level = _level()[0]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(lambda pair: _run(list(pair), limits, level), pairs))


def available() -> list[str]:
    """Sentences on what cannot be enforced here, to be shown before anything runs; empty where all is."""
    try:
        return list(_level()[1])
    except SandboxError as error:
        return [str(error)]


def pass_at_k(n: int, c: int, k: int) -> float:
    """Unbiased chance that one of k samples passes, of n drawn and c passed: 1 - C(n-c, k) / C(n, k).

    Chen et al. 2021, equation 1; exact integers, rounded once. ValueError unless 0 <= c <= n and 1 <= k <= n.
    """
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"pass@k needs 0 <= c <= n and 1 <= k <= n, not n={n}, c={c}, k={k}")
    return (comb(n, k) - comb(n - c, k)) / comb(n, k)


@cache
def _level() -> tuple[str, tuple[str, ...]]:
    """The first level whose probe passes, and what it leaves open."""
    if os.name != "posix":
        raise SandboxError(f"Generated code cannot be run on {sys.platform}: its limits need a POSIX system.")
    refused = []
    for level in LEVELS:
        with tempfile.TemporaryDirectory(prefix="spec-cascades-") as root:
            result = _ask([PROBE], DEFAULT, level, root)
        if result.get("reason") == "passed":
            return level, (*refused, *result["missing"])
        why = result.get("error") or result["output"].strip() or result["reason"]
        refused.append(f"The wall of {level} is refused here ({why}).")
    raise SandboxError("Generated code cannot be run here. " + " ".join(refused))


def _run(parts: list[str], limits: Limits, level: str) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="spec-cascades-", ignore_cleanup_errors=True) as root:
        result = _ask(parts, limits, level, root)
    if "error" in result:
        raise SandboxError(f"the sandbox failed: {result['error']}")
    return Outcome(result["reason"] == "passed", result["reason"], result["seconds"], result["output"])


def _ask(parts: list[str], limits: Limits, level: str, root: str) -> dict:
    """One supervisor's answer, or its `error`."""
    # the interpreter that a virtual environment was made from is the one that can be seen behind the wall
    python = getattr(sys, "_base_executable", None) or sys.executable
    jail = Path(__file__).resolve().with_name("_jail.py")
    process = subprocess.Popen(
        [python, "-s", "-S", "-P", "-B", "-X", "utf8", str(jail)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=root,
        env={"PYTHONHASHSEED": "0"},  # verdicts on programs that print or compare sets repeat
        start_new_session=True,
    )
    request = {"parts": parts, "root": root, "level": level, **asdict(limits)}
    try:
        answer, errors = process.communicate(json.dumps(request).encode(), limits.wall_seconds + GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        answer, errors = process.communicate()
    if process.returncode == 0:
        return json.loads(answer)
    if (
        process.returncode < 0 and level != "namespaces"
    ):  # there a program may be able to signal its supervisor
        return {"reason": "exited", "seconds": 0.0, "output": "", "missing": []}
    told = errors.decode(errors="replace").strip()[-500:]
    return {"error": f"the supervisor ended with {process.returncode}: {told}"}
