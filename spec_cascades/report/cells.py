"""A record's figures as the cells of a table; empty for what is not there."""

from collections.abc import Callable
from typing import Any

from spec_cascades.report import groups
from spec_cascades.report.groups import Record


def headings(group: list[Record]) -> tuple[str, ...]:
    """The headings of `row`."""
    metric = groups.metric(group)
    return ("point", "speed-up", f"{metric} [95 %]", f"{metric} less the target's", "rejected", "record")


def row(record: Record | None) -> list[str]:
    """A point in figures: its name, speed-up, score, difference and rejection rate."""
    if record is None:
        return ["none", "", "", "", "", ""]
    rejected = record["rates"]["rejection_rate"]
    shown = "-" if rejected is None else f"{rejected:.2f}"
    return [*of(record, name, speed, full_score, gap), shown, line(record)]


def of(record: Record, *cells: Callable[[Record], str]) -> list[str]:
    """Several cells of one record."""
    return [cell(record) for cell in cells]


def name(record: Record | None) -> str:
    """The point's name."""
    return "none" if record is None else record["name"]


def line(record: Record) -> str:
    """The line of its file."""
    return str(record["source"]["line"]) if "source" in record else ""


def speed(record: Record | None) -> str:
    """Speed-up with its interval."""
    if record is None or groups.speed_up(record) is None:
        return ""
    return f"{groups.speed_up(record):.2f}{_within(groups.speed_bounds(record), '.2f')}"


def score(record: Record | None) -> str:
    """The score alone."""
    return "" if record is None or groups.score(record) is None else f"{groups.score(record):.1f}"


def full_score(record: Record) -> str:
    """The score with its interval."""
    return score(record) + _within(groups.interval(record), ".1f") or "-"


def gap(record: Record | None) -> str:
    """The score less that of the target alone, with the paired interval."""
    if record is None or groups.difference(record) is None:
        return ""
    return f"{groups.difference(record):+.1f}{_within(groups.difference(record, '_interval'), '+.1f')}"


def _within(bounds: Any, pattern: str) -> str:
    return "" if bounds is None else f" [{bounds[0]:{pattern}}, {bounds[1]:{pattern}}]"
