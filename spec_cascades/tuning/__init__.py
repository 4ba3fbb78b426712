"""Rule, alpha and gamma that meet a demand: chosen on one part of the examples, confirmed on another."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from spec_cascades import splitting, sweep
from spec_cascades.checks import ConfigError
from spec_cascades.config import Models, Point, Sweep, Task
from spec_cascades.metrics.scoring import Check
from spec_cascades.records import Outcome
from spec_cascades.report import groups
from spec_cascades.tasks.asked import ask
from spec_cascades.tuning import bounds
from spec_cascades.tuning.settings import Demand, Tune


class Row(NamedTuple):
    """A point on one part of the examples.

    score: None where nothing was scored; relative: median time as a part of the target alone's; value, bound:
    of the figure that the demand limits; meets: whether the bound does.
    """

    point: Point
    score: float | None
    relative: float
    value: float
    bound: float
    meets: bool


class Tuned(NamedTuple):
    """rows: every point on the validation part; chosen: the best of those that meet the demand, None where
    none does; confirmed: the chosen one on the held-out part; prefix: of the task's prompts."""

    demand: Demand
    models: Models
    prefix: str
    rows: list[Row]
    chosen: Row | None
    confirmed: Row | None

    @property
    def succeeded(self) -> bool:
        """Whether a point met the demand on both parts."""
        return self.confirmed is not None and self.confirmed.meets


class Part(NamedTuple):
    """The same examples answered by the target alone and by points."""

    target: Outcome
    points: list[Outcome]


def run(config: Tune, engine: sweep.Runner | None = None, check: Check | None = None) -> Tuned:
    """Tries all points on the validation part and confirms the best that meets the demand on the other.

    The validation bounds hold for all points at once (`bounds.bounds`), so that any that meets the demand may
    be taken: the fastest under a demand on the score, the best score under one on the time. The held-out
    examples had no part in the choice, so one plain bound confirms it. A choice that is not confirmed is
    given up: to try the next one on the same held-out examples would be to choose by them. Killed at any
    moment, it goes on. Raises ConfigError as `sweep.run` does, and where there are too few examples.
    """
    recorded = config.records is not None
    source = _recorded(config, check) if recorded else _decoded(config, engine, check)
    rows = judged(config.demand, source.validation, config.confidence, config.seed)
    chosen = best(config.demand, rows)
    confirmed = None
    if chosen is not None:
        part = (
            _held_out(config, source.run, chosen.point)
            if recorded
            else _confirming(config, engine, check, chosen.point)
        )
        (confirmed,) = judged(config.demand, part, config.confidence, config.seed)
    models, task = source.run.sweep.models, source.run.sweep.task
    return Tuned(config.demand, models, task.prefix, rows, chosen, confirmed)


def judged(demand: Demand, part: Part, confidence: float, seed: int) -> list[Row]:
    """Every point of a part with its bound, all bounds at once."""
    sampled = bounds.sample(demand, part.target, part.points, seed)
    limits = bounds.bounds(sampled, confidence, upper=demand.of_time)
    relative = [np.median(bounds.seconds(o) / bounds.seconds(part.target)) for o in part.points]
    meets = limits <= demand.limit if demand.of_time else limits >= _least(demand)
    figures = zip(part.points, relative, sampled.value, limits, meets, strict=True)
    return [
        Row(o.point, groups.score({"quality": o.quality.figures}), float(r), float(v), float(b), bool(ok))
        for o, r, v, b, ok in figures
    ]


def _least(demand: Demand) -> float:
    """What a score, or its difference to the target alone's, must reach."""
    return -demand.limit if demand.kind == "loss" else demand.limit


def best(demand: Demand, rows: Sequence[Row]) -> Row | None:
    """Of the points that meet the demand the fastest, or under a demand on the time the best."""
    able = [row for row in rows if row.meets]
    if not demand.of_time:
        return min(able, key=lambda row: row.relative, default=None)
    if any(row.score is None for row in able):
        raise ConfigError(f"{demand.kind}: nothing was scored, so no point is better than another")
    return max(able, key=lambda row: row.score, default=None)


# ------------------------------------------------------------------------------------------
# The two parts


class Source(NamedTuple):
    """A run that has the validation examples, and their part."""

    run: splitting.Run
    validation: Part


def tasks(config: Tune) -> tuple[Task, Task]:
    """The validation and the held-out examples, as tasks that share none: the examples are shuffled first.

    Files have an order, and parts of a file are no samples of the whole.
    """
    if config.held_out is not None:
        return config.task, config.held_out
    first = config.task.skip or 0
    total = len(ask(config.task, config.models.chat).examples)
    n = cut(total, config.validation, config.base.batch_size)
    mixed = replace(config.task, shuffle=config.seed if config.task.shuffle is None else config.task.shuffle)
    return replace(mixed, limit=n), replace(mixed, skip=first + n, limit=total - n)


def cut(total: int, share: float, size: int) -> int:
    """How many of the examples are for validation: whole batches, and some left on either side."""
    n = round(total * share / size) * size
    if not 0 < n < total:
        raise ConfigError(f"validation: {share} of {total} examples leaves none on one side")
    return n


def _decoded(config: Tune, engine: sweep.Runner | None, check: Check | None) -> Source:
    task, _ = tasks(config)
    run = _run(config.sweep(task, "validation"), engine, check)
    return Source(run, _part(run, run.points, lambda i: True))


def _confirming(config: Tune, engine: sweep.Runner | None, check: Check | None, point: Point) -> Part:
    first, task = tasks(config)
    # The held-out answers' seeds lie behind the validation's, whose draws had a part in the choice.
    seed = config.base.seed + config.repeats * len(ask(first, config.models.chat).examples)
    run = _run(config.confirming(task, point, seed), engine, check)
    return _part(run, run.points, lambda i: True)


def _run(wanted: Sweep, engine: sweep.Runner | None, check: Check | None) -> splitting.Run:
    sweep.run(wanted, engine, check)
    return splitting.read(Path(wanted.output), check)


def _recorded(config: Tune, check: Check | None) -> Source:
    """The first part of a finished run's examples."""
    run = splitting.read(Path(config.records), check)
    alike = lambda d: (d.temperature, d.batch_size) == (config.base.temperature, config.base.batch_size)
    points = [p for p in run.points if alike(p.decoding)]
    if not points:
        raise ConfigError(
            f"records: no point of {config.records} has base's temperature {config.base.temperature:g} "
            f"and batch_size {config.base.batch_size}"
        )
    chosen = _validation(config, run)
    return Source(run, _part(run, points, lambda i: i in chosen))


def _held_out(config: Tune, run: splitting.Run, point: Point) -> Part:
    chosen = _validation(config, run)
    alone = _target(run, point, run.points)
    return _part(run, [alone, point], lambda i: i not in chosen)


def _validation(config: Tune, run: splitting.Run) -> frozenset[int]:
    """The validation examples of a finished run: whole batches, in the order that the seed draws."""
    total, size = len(run.asked.examples), config.base.batch_size
    batches = [range(first, min(first + size, total)) for first in range(0, total, size)]
    random.Random(config.seed).shuffle(batches)
    return frozenset(i for batch in batches[: cut(total, config.validation, size) // size] for i in batch)


def _part(run: splitting.Run, points: list[Point], keep: splitting.Keep) -> Part:
    alone = _target(run, points[-1], points)
    others = [p for p in points if p != alone]
    if not others:
        raise ConfigError("points: only the target alone, and nothing to choose from")
    target, *rest = splitting.outcomes(run, keep, [alone, *others])
    return Part(target, rest)


def _target(run: splitting.Run, like: Point, points: list[Point]) -> Point:
    """The target alone among points, its filters those of the run's base where that ran."""
    found = [
        p
        for p in points
        if p.decoding.method == "target"
        and (p.decoding.temperature, p.decoding.batch_size)
        == (like.decoding.temperature, like.decoding.batch_size)
    ]
    if not found:
        raise ConfigError("points: the target alone is not among them, so there is nothing to compare with")
    own = lambda p: sum(getattr(p.decoding, k) != getattr(run.sweep.base, k) for k in groups.FILTERS)
    return min(found, key=own)
