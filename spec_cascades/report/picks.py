"""Which point to take: the Pareto front, the fastest at a given loss, each rule at its best.

Points are picked and shown on the same examples, so the best of many looks a little better than it is:
`tune` chooses on one split and confirms on another.
"""

from collections.abc import Callable
from typing import NamedTuple

from spec_cascades.report import groups
from spec_cascades.report.groups import Record

MARGIN = 1.0
"""Points below the target alone that count as its quality; with few examples the interval forgives more."""
LOSSES = (2.0, 5.0)
"""Losses against the target alone that somebody may allow, in points of the metric (0 to 100)."""


class Pick(NamedTuple):
    """What is asked for, and the point that gives it; None where none does."""

    demand: str
    record: Record | None


def keeps_quality(record: Record) -> bool:
    """Whether the score is at most MARGIN below the target alone's and the paired interval reaches zero."""
    interval = groups.difference(record, "_interval")
    return interval is not None and interval[1] >= 0 and groups.difference(record) >= -MARGIN


def front(group: list[Record]) -> list[Record]:
    """The points that no other beats in quality without taking longer, fastest first."""
    scored = [r for r in group if groups.score(r) is not None]
    kept: list[Record] = []
    for record in sorted(scored, key=lambda r: (groups.time(r), -groups.score(r))):
        if not kept or groups.score(record) > groups.score(kept[-1]):
            kept.append(record)
    return kept


def picks(group: list[Record]) -> list[Pick]:
    """The answers to the usual demands on one task; no answer without the target alone to compare with."""
    if groups.target_alone(group) is None:
        return []
    lossless = [r for r in group if runs(r, ("lossless",)) and not groups.filtered(r)]
    found = [Pick("the target's very distribution", fastest(lossless))]
    others = [r for r in group if r["decoding"]["method"] != "target"]
    if groups.score(group[0]) is None:
        return [*found, Pick("any answer, the quality unknown", fastest(others))]
    metric = groups.metric(group)
    found.append(Pick(f"the target's quality (at most {MARGIN:g} {metric} less)", kept_fastest(others)))
    for loss in LOSSES:
        able = [r for r in others if groups.difference(r) >= -loss]
        found.append(Pick(f"at most {loss:g} {metric} less", fastest(able)))
    return [*found, Pick("the best quality within the target's time", best_within(group))]


def by_rule(group: list[Record]) -> dict[str, list[Record]]:
    """The points of each rule, the target alone left out."""
    found: dict[str, list[Record]] = {}
    for record in group:
        if record["decoding"]["method"] != "target":
            found.setdefault(groups.rule(record), []).append(record)
    return found


def fastest(records: list[Record]) -> Record | None:
    """The point with the least time per answer."""
    return min(records, key=groups.time, default=None)


def kept_fastest(records: list[Record]) -> Record | None:
    """The fastest point at the target's quality."""
    return fastest([r for r in records if keeps_quality(r)])


def best_within(records: list[Record]) -> Record | None:
    """The best score among the points that take no longer than the target alone."""
    able = [r for r in records if groups.score(r) is not None and groups.time(r) <= 1]
    best: Callable[[Record], float] = groups.score
    return max(able, key=best, default=None)


def runs(record: Record, rules: tuple[str, ...]) -> bool:
    """Whether a point is speculation by one of these rules."""
    return record["decoding"]["method"] == "speculative" and record["decoding"]["rule"] in rules
