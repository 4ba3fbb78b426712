"""The scopes of the decode loop in what is compiled, in a trace, and in the table of it."""

import gzip
import json
from dataclasses import replace
from types import SimpleNamespace

import jax
import pytest
import toys
from fakes import FakeEngine

from spec_cascades.checks import ConfigError
from spec_cascades.config import Decoding
from spec_cascades.decode import loop
from spec_cascades.profiling import Profiled, scopes

LOSSLESS = Decoding(rule="lossless", alpha=0.0, gamma=2, max_new_tokens=6, temperature=1.0)
EXPECTED = {
    "speculative": {"prefill", "draft", "score", "verify"},
    "token": {"prefill", "draft", "score", "verify"},
    "oracle": {"prefill", "draft", "score", "verify"},
    "target": {"prefill", "score", "verify"},
    "drafter": {"prefill", "draft"},
}


@pytest.fixture(scope="module")
def engine():
    return toys.engine()


@pytest.fixture(scope="module")
def traced(engine, tmp_path_factory):
    """A profiled run of the toy pair: (the runner, what it answered, its instructions)."""
    profiled = Profiled(engine, tmp_path_factory.mktemp("profile"))
    batches = [profiled.run(["1 2 3"], replace(LOSSLESS, seed=seed)) for seed in (0, 1)]
    (folder,) = profiled.folders.values()
    return profiled, batches, scopes.read(folder)


@pytest.mark.parametrize("method", EXPECTED)
def test_every_method_names_its_phases_in_what_is_compiled(engine, method):
    rule = "chow" if method == "token" else "lossless"
    call = engine.call(["1 2 3"], replace(LOSSLESS, method=method, rule=rule, alpha=0.5))
    begin = jax.eval_shape(lambda params: loop.start(*call._replace(params=params)), call.params)
    lowered = [
        loop.start.lower(*call).as_text(debug_info=True),
        loop.run.lower(call.method, call.params, begin, call.request).as_text(debug_info=True),
    ]
    found = {scope for scope in scopes.SCOPES for text in lowered if f"/{scope}/" in text}
    assert found == EXPECTED[method]


def test_a_trace_knows_the_scope_of_every_phase_and_holds_no_compiling(traced):
    profiled, _, ops = traced
    assert list(profiled.folders) == ["0-speculative-lossless"]
    found = {share.scope: share for share in scopes.shares(ops)}
    assert {"prefill", "draft", "score", "verify", "rest"} == found.keys()
    assert all(share.seconds > 0 and share.ops > 0 for share in found.values())
    assert any("/draft/" in op.origin for op in ops)
    (path,) = next(iter(profiled.folders.values())).rglob("*.xplane.pb")
    assert b"jit_run" in path.read_bytes()
    assert b"backend_compile" not in path.read_bytes()


def test_the_host_phases_are_annotated(traced):
    from jax.profiler import ProfileData

    (path,) = next(iter(traced[0].folders.values())).rglob("*.xplane.pb")
    planes = ProfileData.from_file(str(path)).planes
    names = {event.name for plane in planes for line in plane.lines for event in line.events}
    assert {"prefill", "run"} <= names


def test_a_profiled_run_answers_as_one_that_is_not(traced, engine):
    _, batches, _ = traced
    for seed, batch in enumerate(batches):
        assert batch.answers == engine.run(["1 2 3"], replace(LOSSLESS, seed=seed)).answers


def test_what_a_refilled_batch_and_a_sweep_ask_is_passed_on(tmp_path):
    fake = FakeEngine("t", "d", "float32")
    profiled = Profiled(fake, tmp_path)
    assert [i for i, _ in profiled.serve(["a b", "a"], [LOSSLESS] * 2, 2)] == [1, 0]
    assert profiled.encode("a b") == [0, 1]
    assert profiled.flops_per_token() == fake.flops_per_token()
    assert profiled.first_block(["a"], LOSSLESS) == 0.004
    assert profiled.model("target").ref == "fake"
    assert not profiled.folders


def _event(name, start, end, **stats):
    return SimpleNamespace(name=name, start_ns=start, end_ns=end, stats=list(stats.items()))


PATHS = {
    "while.1": "jit(run)/while",
    "while.2": "jit(run)/while/body/draft/while",
    "dot": "jit(run)/while/body/draft/while/body/dot_general",
    "copy": "",
    "sort": "jit(run)/while/body/verify/jit(sort)/sort",
}


def _made():
    stat = lambda name: dict(hlo_op=name, hlo_module="jit_run", program_id=7)
    events = [
        _event("while.1", 0, 100, **stat("while.1")),
        _event("while.2", 10, 60, **stat("while.2")),
        _event("dot", 20, 50, **stat("dot")),
        _event("copy", 60, 65, **stat("copy")),
        _event("sort", 65, 95, **stat("sort")),
        _event("end: sort", 95, 96, _c="1"),
    ]
    return scopes._ops("line", events, {"jit_run(7)": PATHS})


def test_an_instruction_counts_without_those_inside_it():
    seconds = {op.name: round(op.seconds * 1e9) for op in _made()}
    assert seconds == {"while.1": 15, "while.2": 20, "dot": 30, "copy": 5, "sort": 30}
    shares = {s.scope: (round(s.seconds * 1e9), s.ops) for s in scopes.shares(_made())}
    assert shares == {"draft": (50, 2), "verify": (30, 1), "rest": (20, 2)}
    assert list(shares) == ["draft", "verify", "rest"]
    assert scopes.span(_made()) == pytest.approx(100e-9)


def test_a_run_that_was_interrupted_does_not_count_as_typical():
    stat = dict(hlo_op="dot", hlo_module="jit_run", program_id=7)
    events = [_event("dot", 100 * i, 100 * i + long, **stat) for i, long in enumerate((2, 3, 90, 3, 1))]
    (share,) = scopes.shares(scopes._ops("line", events, {"jit_run(7)": PATHS}))
    assert share.seconds == pytest.approx(99e-9)
    assert share.typical == pytest.approx(15e-9)
    assert share.largest == [(PATHS["dot"], share.typical)]


def test_an_instruction_without_an_origin_is_of_the_scope_it_ran_in():
    path = "jit(run)/while/body/{}/x".format
    told = [
        "",
        path("draft"),
        "",
        path("draft"),
        "",
        "",
        path("score"),
        "jit(run)/add",
        "",
        path("score"),
        "",
    ]
    found = scopes._between(told, [f"dot.{i}" for i in range(len(told))])
    assert found[2] == "draft/dot"
    assert [i for i, origin in enumerate(found) if not origin] == [0, 4, 5, 8, 10]


def test_the_slices_of_one_scope_are_joined_and_the_loop_itself_is_not_drawn():
    drawn = [(e["name"], e["ts"], e["dur"]) for e in scopes.slices(_made()) if e["ph"] == "X"]
    assert drawn == [("draft", 0.01, 0.05), ("rest", 0.06, 0.005), ("verify", 0.065, 0.03)]


def test_the_slices_are_written_as_perfetto_reads_them(tmp_path):
    with gzip.open(scopes.write(tmp_path, _made()), "rt") as file:
        assert json.load(file)["traceEvents"] == scopes.slices(_made())


def test_a_run_without_instructions_makes_an_empty_table(capsys):
    scopes.show("nothing", [])
    assert "0.00 ms" in capsys.readouterr().err


def test_a_folder_without_a_trace_is_an_error_that_names_it(tmp_path):
    with pytest.raises(ConfigError, match="holds no trace"):
        scopes.read(tmp_path)
