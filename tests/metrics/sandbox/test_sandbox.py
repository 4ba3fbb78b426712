"""Verdicts of the sandbox at every level, many programs at once, what is said of gaps, and pass@k."""

import json
import os
import re
from fractions import Fraction
from itertools import combinations
from math import comb
from pathlib import Path

import pytest
from jails import SHORT, gaps

from spec_cascades.metrics import sandbox
from spec_cascades.metrics.sandbox import Limits

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the sandbox needs a POSIX system")


# --- verdicts -----------------------------------------------------------------------------------------------


def test_a_program_whose_assertions_hold_passes(run):
    out = run("def f(x): return x + 1\nprint('called')\nassert f(1) == 2")
    assert (out.passed, out.reason, out.output) == (True, "passed", "called\n")


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("assert 1 == 2, 'no'", "failed"),
        ("def f(:", "failed"),
        ("\0", "failed"),
        ("'\ud800'", "failed"),
        ("input()", "failed"),
        ("def f(): return f()\nf()", "failed"),
        ("import os; os._exit(0)\nassert False", "exited"),
        ("import sys; sys.exit(0)\nassert False", "exited"),
        ("raise SystemExit(0)", "exited"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "exited"),
        ("try:\n    assert False\nexcept AssertionError:\n    import os; os._exit(0)", "exited"),
        ("import builtins; builtins.AssertionError = type('A', (SystemExit,), {})\nassert False", "failed"),
        ("import builtins; builtins.BaseException = builtins.Exception = int\nassert False", "failed"),
        ("import os, sys; os._exit = sys.exit = exit = lambda *a: None\nassert False", "failed"),
        ("import os; os.read = os.write = lambda *a: b'passed'\nassert False", "failed"),
        ("import sys, os; sys.modules.clear(); sys.stdout.close()\nassert False", "failed"),
        ("import sys; sys.excepthook = lambda *a: None\nassert False", "failed"),
        ("class E(Exception):\n    def __str__(self): raise SystemExit(0)\nraise E", "failed"),
        ("class E(Exception):\n    def __str__(self):\n        import os; os._exit(0)\nraise E", "exited"),
    ],
)
def test_nothing_but_the_end_of_the_program_passes(run, program, reason):
    out = run(program)
    assert (out.passed, out.reason) == (False, reason), out.output


def test_printed_verdicts_do_not_count(run):
    forged = '{"reason": "passed", "seconds": 0, "output": "", "missing": []}'
    out = run(
        f"import os\nprint('passed', {forged!r})\n"
        "for fd in range(64):\n    try: os.write(fd, b'passed ' + bytes(16))\n"
        "    except OSError: pass\nos._exit(0)"
    )
    assert (out.passed, out.reason) == (False, "exited")
    assert "passed" in out.output


def test_a_fork_that_reaches_the_end_does_not_vouch_for_its_parent(run):
    out = run("import os, time\nif os.fork():\n    time.sleep(0.3)\n    assert False")
    assert (out.passed, out.reason) == (False, "failed")


def test_a_program_cannot_swallow_its_assertions(run):
    out = run('x = """', assertions='assert False\n"""')
    assert (out.passed, out.reason) == (False, "failed")
    assert run("def f(): return 3", assertions="assert f() == 3").passed


def test_the_failure_is_told(run):
    out = run("def f(x):\n    return x\nassert f(2) == 3, 'two is not three'")
    assert "AssertionError: two is not three" in out.output
    assert str(Path(sandbox.__file__).parent) not in out.output


def test_ordinary_programs_find_what_they_need(run):
    program = """
import dataclasses, decimal, heapq, itertools, pickle, tempfile, threading, typing
@dataclasses.dataclass
class P:
    x: int
assert pickle.loads(pickle.dumps(P(1))) == P(1)
assert __name__ != "__main__"
with tempfile.TemporaryDirectory() as folder:
    open(folder + "/a.txt", "w").write("ü")
    assert open(folder + "/a.txt").read() == "ü"
found = []
t = threading.Thread(target=lambda: found.append(1)); t.start(); t.join()
assert found == [1]
print("\\ud800")
"""
    out = run(program)
    assert out.passed, out.output


def test_the_hash_seed_is_fixed(run):
    shown = {run("print(hash('a'), {'a', 'b', 'c'})").output for _ in range(2)}
    assert len(shown) == 1


# --- many, and what is said ---------------------------------------------------------------------------------


def test_check_keeps_the_order():
    pairs = [
        (f"import time; time.sleep({(5 - i) / 20})\nx = {i}", "assert x % 2 == 0\nprint(x)") for i in range(6)
    ]
    outcomes = sandbox.check(pairs, SHORT, workers=3)
    assert [o.passed for o in outcomes] == [True, False] * 3
    assert [o.output for o in outcomes][::2] == ["0\n", "2\n", "4\n"]
    assert sandbox.check([], SHORT) == []
    assert sandbox.run("assert True", SHORT).passed


def test_what_is_open_is_said(run):
    told = gaps(run.level)
    assert bool(told) == (run.level != "namespaces")
    assert all(line.endswith(".") for line in told)
    assert ("audit hooks" in " ".join(told)) == (run.level == "hooks")


def test_the_next_level_is_taken_and_the_refusal_said(monkeypatch):
    real = sandbox._ask
    refuse = lambda parts, limits, level, root: (
        {"error": "unshare: Operation not permitted"}
        if level == "namespaces"
        else real(parts, limits, level, root)
    )
    monkeypatch.setattr(sandbox, "_ask", refuse)
    level, told = sandbox._level.__wrapped__()
    assert level in ("landlock", "hooks")
    assert "namespaces is refused here (unshare: Operation not permitted)" in told[0]


def test_no_level_at_all_is_an_error(monkeypatch):
    monkeypatch.setattr(sandbox, "_ask", lambda *a: {"error": "nothing works"})
    monkeypatch.setattr(sandbox, "_level", sandbox._level.__wrapped__)
    assert "cannot be run here" in sandbox.available()[0]
    with pytest.raises(sandbox.SandboxError, match="nothing works"):
        sandbox.run("pass")


@pytest.mark.parametrize(
    "wrong",
    [
        {"cpu_seconds": 0},
        {"cpu_seconds": 1.5},
        {"memory_mb": True},
        {"wall_seconds": -1},
        {"wall_seconds": float("nan")},
        {"output_kb": "4"},
    ],
)
def test_limits_are_positive(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=name):
        Limits(**wrong)


# --- pass@k -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 5, 7])
def test_pass_at_k_is_the_share_of_subsets(n):
    for c in range(n + 1):
        for k in range(1, n + 1):
            subsets = list(combinations(range(n), k))
            share = sum(min(s) < c for s in subsets) / len(subsets)
            assert sandbox.pass_at_k(n, c, k) == pytest.approx(share, abs=1e-15)


def test_pass_at_k_is_exact_for_many_samples():
    n, c, k = 100_000, 1, 100
    assert sandbox.pass_at_k(n, c, k) == float(1 - Fraction(comb(n - c, k), comb(n, k))) == 0.001


@pytest.mark.parametrize("wrong", [(5, 6, 1), (5, -1, 1), (5, 2, 0), (5, 2, 6), (0, 0, 1)])
def test_pass_at_k_says_what_it_needs(wrong):
    with pytest.raises(ValueError, match=re.escape(f"n={wrong[0]}, c={wrong[1]}, k={wrong[2]}")):
        sandbox.pass_at_k(*wrong)


@pytest.mark.slow
@pytest.mark.long
def test_the_reference_solutions_of_mbpp_pass(data):
    rows = [json.loads(line) for line in (data / "mbpp.jsonl").read_text().splitlines()]
    assert len(rows) == 974
    pairs = [
        (r["code"], "\n".join([r["test_setup_code"], *r["test_list"], *r["challenge_test_list"]]))
        for r in rows
    ]
    limits = Limits(cpu_seconds=20, wall_seconds=60.0)
    outcomes = sandbox.check(pairs, limits, workers=os.cpu_count() or 1)
    failed = [(r["task_id"], o) for r, o in zip(rows, outcomes, strict=True) if not o.passed]
    assert not failed
