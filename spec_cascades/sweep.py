"""All points of a sweep in one alternating pass, resumable after a kill at any moment.

For every repeat and every chunk of examples each point takes its turn, the order rotating, so that a drift
of the machine meets all points alike and times can be compared in pairs. Each batch is logged at once.
"""

import math
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from spec_cascades import runlog
from spec_cascades.config import ConfigError, Decoding, Point, Sweep, expand
from spec_cascades.metrics.scoring import Check
from spec_cascades.progress import progress
from spec_cascades.records import build_records
from spec_cascades.tasks.asked import Asked, ask
from spec_cascades.tasks.examples import fingerprint
from spec_cascades.tasks.fitting import Cut, fit

Watch = Callable[[list[Any]], None]
"""Shown the answers so far after each block: a stream."""


class Runner(Protocol):
    """What a sweep asks of `spec_cascades.engine.Engine`."""

    def run(
        self, texts: list[str], decoding: Decoding | Sequence[Decoding], watch: Watch | None = None
    ) -> Any: ...

    def serve(
        self, texts: list[str], decoding: Decoding | Sequence[Decoding], slots: int
    ) -> Iterator[tuple[int, Any]]: ...

    def first_block(self, texts: list[str], decoding: Decoding | Sequence[Decoding]) -> float: ...

    def encode(self, text: str) -> list[int]: ...

    def model(self, role: str) -> Any: ...

    def flops_per_token(self) -> dict[str, float]: ...


class Unit(NamedTuple):
    """One batch of one point: `first` is the index of its first example."""

    point: Point
    repeat: int
    first: int

    @property
    def key(self) -> tuple[str, int, int]:
        return (self.point.name, self.repeat, self.first)


class Bar(NamedTuple):
    """How progress is told: its label, and batches of other sweeps done before and left behind this one."""

    label: str = "batches"
    before: int = 0
    behind: int = 0


ALONE = Bar()


class Lines(Protocol):
    """What a sweep asks of `runlog.Log`."""

    lines: list[dict[str, Any]]

    def append(self, line: dict[str, Any]) -> None: ...


class Work(NamedTuple):
    """A sweep with its examples read and its points laid out."""

    sweep: Sweep
    asked: Asked
    points: list[Point]

    @property
    def identity(self) -> dict[str, Any]:
        return identity(self.sweep, self.asked)


def run(
    sweep: Sweep, engine: Runner | None = None, check: Check | None = None, bar: Bar = ALONE
) -> list[dict[str, Any]]:
    """Runs what is not yet done and returns (and writes to OUT/records.jsonl) one record a point.

    The engine is made from `sweep.models` unless one is given, and only when there is work left. check: runs
    generated programs (`metrics.scoring.score`); answers of coding tasks are not scored without it. Raises
    ConfigError when OUT belongs to another configuration.
    """
    work = prepared(sweep)
    with runlog.opened(Path(sweep.output), work.identity) as log:
        answer(work, log, engine, bar)
        return finished(work, log, check)


def prepared(sweep: Sweep) -> Work:
    """The first of `run`'s three steps; nothing is written. Raises ConfigError for unreadable examples."""
    asked = ask(sweep.task, sweep.models.chat)
    return Work(sweep, asked, [Point(p.name, settled(p.decoding, asked)) for p in expand(sweep)])


def answer(work: Work, log: Lines, engine: Runner | None = None, bar: Bar = ALONE) -> None:
    """The second: answers that the log does not have are added to it."""
    sweep, asked, points = work
    done = {(u["point"], u["repeat"], u["first"]) for u in log.lines if u["kind"] == "batch"}
    units = [u for u in schedule(points, sweep.repeats, len(asked.examples)) if u.key not in done]
    if units:
        role = "drafter" if sweep.models.target is None else "target"
        _work(engine or _engine(sweep), log, units, asked, len(done), role, bar)


def finished(work: Work, log: Lines, check: Check | None = None) -> list[dict[str, Any]]:
    """The third: the log's answers scored, OUT/records.jsonl written."""
    records = build_records(asdict(work.sweep), work.points, work.asked, log.lines, check)
    runlog.write_records(Path(work.sweep.output) / runlog.RECORDS, records)
    return records


def settled(decoding: Decoding, asked: Asked) -> Decoding:
    """The decoding with an alpha; a cascade over whole answers does without the stop strings of a task.

    It knows none, and what a task scores ends at its own stop strings anyway.
    """
    if asked.about and decoding.method in ("sequence", "hybrid"):
        decoding = replace(decoding, stop=[])
    return with_alpha(decoding)


def with_alpha(decoding: Decoding) -> Decoding:
    """The decoding with its rule's own default where no alpha is given (0 where alpha means nothing)."""
    if decoding.alpha is not None:
        return decoding
    if not decoding.tuned:
        return replace(decoding, alpha=0.0)
    from spec_cascades.methods import default_alpha  # jax

    return replace(decoding, alpha=default_alpha(decoding))


def schedule(points: list[Point], repeats: int, n: int) -> Iterator[Unit]:
    """Every batch of every point, points alternating within a chunk and each chunk led by the next point."""
    # Of whole batches of every size: a batch that passed its end would ask the next chunk's examples twice.
    chunk = math.lcm(*(p.decoding.batch_size for p in points))
    starts = range(0, n, chunk)
    for repeat in range(repeats):
        for turn, start in enumerate(starts, repeat * len(starts)):
            lead = turn % len(points)
            for point in points[lead:] + points[:lead]:
                for first in range(start, min(start + chunk, n), point.decoding.batch_size):
                    yield Unit(point, repeat, first)


def identity(sweep: Sweep, asked: Asked) -> dict[str, Any]:
    """What a run folder belongs to: the configuration but for its place, and the hash of the examples."""
    own = asdict(sweep) | {"examples_sha256": fingerprint(asked.examples)}
    return {key: value for key, value in own.items() if key != "output"}


def batches(sweep: Sweep) -> int:
    """How many there are to run, done or not. Raises ConfigError where the examples cannot be read."""
    n = len(ask(sweep.task, sweep.models.chat).examples)
    return sum(1 for _ in schedule(expand(sweep), sweep.repeats, n))


def _work(
    engine: Runner, log: Lines, units: list[Unit], asked: Asked, done: int, role: str, bar: Bar
) -> None:
    longest = max(u.point.decoding.max_new_tokens for u in units)
    texts, cut = fitted(engine, asked, longest, role)
    session = {"versions": versions(), "flops_per_token": engine.flops_per_token()}
    log.append({"kind": "session", **session, "cut": cut and cut._asdict()})
    warm = list({u.point.name: u.point for u in units}.values())
    with progress("warm-up", len(warm)) as advance:
        for point in warm:
            batch = engine.run(texts[: point.decoding.batch_size], point.decoding)
            log.append({"kind": "warmup", "point": point.name, "compile_seconds": batch.compile_seconds})
            advance(1)
    done += bar.before
    with progress(bar.label, done + len(units) + bar.behind, done) as advance:
        for unit in units:
            log.append(_run_unit(engine, unit, texts, asked))
            advance(1)


def fitted(engine: Runner, asked: Asked, answer: int, role: str) -> tuple[list[str], Cut | None]:
    """The prompts, cut to the task's limit or what an answer leaves of the window, whichever is less."""
    window = _window(engine.model(role), asked, answer)
    limits = [limit for limit in (asked.limit, window) if limit is not None]
    if not limits:
        return [p.text for p in asked.prompts], None
    return fit(asked.prompts, engine.encode, min(limits))


def _window(model: Any, asked: Asked, answer: int) -> int | None:
    """Tokens that a prompt may have beside an answer; None for an encoder's, and for a model without a limit.

    Raises ConfigError where the view does not suit the model.
    """
    encodes, view = getattr(model.lm, "encodes", False), asked.about.get("view")
    if view is not None and encodes != (view == "encdec"):
        kind = "has an encoder: set task.view=encdec" if encodes else "has none: set task.view=few_shot"
        raise ConfigError(f"task.view: {view!r} is for models of the other kind; {model.ref} {kind}")
    context = None if encodes else getattr(model.config, "context", None)
    return None if context is None else max(1, context - answer)


def _run_unit(engine: Runner, unit: Unit, texts: list[str], asked: Asked) -> dict[str, Any]:
    decoding = unit.point.decoding
    rows = range(unit.first, min(unit.first + decoding.batch_size, len(texts)))
    seed = decoding.seed + unit.repeat * asked.total + asked.first + unit.first
    # The engine gives row i the seed + i, so that every (repeat, example) has one whatever the batch size.
    asking = ([texts[i] for i in rows], replace(decoding, seed=seed))
    batch = engine.run(*asking)
    info = getattr(batch, "info", None)
    if len(batch.answers) != len(rows):
        raise RuntimeError(f"{unit.point.name}: {len(rows)} prompts, but {len(batch.answers)} answers")
    answers = [{"index": i, **a._asdict()} for i, a in zip(rows, batch.answers, strict=True)]
    return {
        "kind": "batch",
        "point": unit.point.name,
        "repeat": unit.repeat,
        "first": unit.first,
        "seed": seed,
        "seconds": batch.seconds,
        "compile_seconds": batch.compile_seconds,
        "first_seconds": _first(info) if info else _probed(engine, unit, *asking),
        "bytes_per_call": batch.bytes_per_call,
        "answers": answers,
        "info": info,
    }


def _probed(engine: Runner, unit: Unit, texts: list[str], decoding: Decoding) -> list[float] | None:
    """Seconds to each answer's first block; in the first repeat only, since it takes a run of its own."""
    return [engine.first_block(texts, decoding)] * len(texts) if unit.repeat == 0 else None


def _first(info: dict[str, Any]) -> list[float]:
    """When each answer of a sequence cascade showed: kept, once it was drafted; deferred, after the wait."""
    return [info["waiting_seconds"] if deferred else info["drafter_seconds"] for deferred in info["deferred"]]


def _engine(sweep: Sweep) -> Runner:
    from spec_cascades.engine import engine_of  # jax

    return engine_of(sweep.models)


def versions() -> dict[str, Any]:
    """Package, Python, jax and its device, and the machine: what a time depends on."""
    import os

    import jax

    try:
        package = version("spec-cascades")
    except PackageNotFoundError:
        package = "not installed"
    return {
        "spec_cascades": package,
        "python": platform.python_version(),
        "jax": jax.__version__,
        "backend": jax.default_backend(),
        "device": jax.devices()[0].device_kind,
        "platform": platform.platform(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
    }
