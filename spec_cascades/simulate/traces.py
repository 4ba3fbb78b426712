"""A run's logged answers as work: which steps of which loop each of them takes."""

from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spec_cascades import merging, runlog
from spec_cascades.checks import ConfigError
from spec_cascades.config import Decoding, Point, Sweep, expand
from spec_cascades.simulate.queue import Work

METHODS = ("target", "drafter", "speculative", "token", "sequence")


class Answer(NamedTuple):
    """What one answer took; seconds: of its batch, where it was alone in it, else None."""

    tokens: int
    target_calls: int
    drafter_calls: int
    seconds: float | None


class Trace(NamedTuple):
    """A point's answers, in the order of (repeat, example); quality: its record's, None without one."""

    name: str
    decoding: Decoding
    answers: list[Answer]
    quality: dict[str, Any] | None


def read(folder: Path, names: list[str]) -> tuple[Sweep, list[Trace]]:
    """The run's configuration and its points, these or all. ConfigError for what cannot be simulated."""
    sweep = merging.configuration(folder)
    points = {p.name: p for p in expand(sweep)}
    for name in names:
        if name not in points:
            raise ConfigError(f"points: {name!r} is none of the run's: {', '.join(points)}")
    lines = [line for line in runlog.read_lines(folder) if line["kind"] == "batch"]
    scored = _qualities(folder)
    traces = [_trace(points[name], lines, scored.get(name)) for name in names or points]
    return sweep, traces


def _qualities(folder: Path) -> dict[str, dict[str, Any]]:
    if not (folder / runlog.RECORDS).is_file():
        return {}
    return {record["name"]: record["quality"] for record in runlog.read_records(folder)}


def _trace(point: Point, lines: list[dict[str, Any]], quality: dict[str, Any] | None) -> Trace:
    check(point)
    mine = [line for line in lines if line["point"] == point.name]
    if not mine:
        raise ConfigError(f"points: the log has no answer of {point.name!r}")
    found = {(line["repeat"], a["index"]): _answer(line, a) for line in mine for a in line["answers"]}
    return Trace(point.name, point.decoding, [found[key] for key in sorted(found)], quality)


def _answer(line: dict[str, Any], answer: dict[str, Any]) -> Answer:
    seconds = line["seconds"] if len(line["answers"]) == 1 else None
    return Answer(len(answer["tokens"]), answer["target_calls"], answer["drafter_calls"], seconds)


def check(point: Point) -> None:
    """Raises ConfigError for a method or a policy of drafts that has no measured step."""
    d = point.decoding
    if d.method not in METHODS:
        raise ConfigError(
            f"points: {point.name!r} is of method {d.method!r}; simulated are {', '.join(METHODS)}"
        )
    if d.method == "speculative" and d.lengths != "fixed":
        raise ConfigError(f"points: {point.name!r} has lengths {d.lengths!r}; simulated is 'fixed'")


def target_alone(steps: int) -> Work:
    """Start, a first step that shows a token, and the rest: also of the drafter alone, and of blocks."""
    return work((0, 1), (1, 1), (1, steps - 1), shown=1)


def token_cascade(answer: Answer, rng: np.random.Generator) -> Work:
    """A step a token, and in target_calls of them the target is called, the first time apart.

    In which ones the log does not say: they are drawn anew for each answer, all choices alike.
    """
    kinds = np.ones(answer.tokens, int)
    called = np.sort(rng.choice(answer.tokens, answer.target_calls, replace=False))
    kinds[called] = 2
    kinds[called[:1]] = 3
    edges = np.flatnonzero(np.diff(kinds[1:])) + 2  # where a run of like steps ends; the first is its own
    bounds = [0, 1, *edges.tolist(), answer.tokens] if answer.tokens > 1 else [0, 1]
    runs = [(int(kinds[a]), b - a) for a, b in pairwise(bounds)]
    return work((0, 1), *runs, shown=1)


def sequence_cascade(answer: Answer) -> tuple[Work, Work | None]:
    """The drafter's stage, and the target's where it ran: nothing is shown before the choice is made."""
    steps = answer.drafter_calls
    if not answer.target_calls:
        return work((0, 1), (1, steps), shown=1), None
    return work((0, 1), (1, steps), shown=-1), target_alone(answer.target_calls)


def work(*parts: tuple[int, int], shown: int) -> Work:
    """From (kind, steps) in turn; a part of no steps is left out, which none up to `shown` may be."""
    kept = [part for part in parts if part[1]]
    return Work(tuple(k for k, _ in kept), tuple(n for _, n in kept), shown)
