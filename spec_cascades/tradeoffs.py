"""The two numbers of the paper's Table 2, alpha chosen on one split of a run and reported on the other."""

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from spec_cascades.config import Decoding
from spec_cascades.metrics.scoring import Check
from spec_cascades.report import groups
from spec_cascades.splitting import Record, Run, decoding_of, part, part_of, read

__all__ = ["TwoNumbers", "families", "part", "table2", "two_numbers"]

TARGET, TRUNCATED = "target alone", "target alone, truncated"
APART = {"method", "rule", "alpha", "temperature", "batch_size", "score"}
"""What a family's name need not tell apart: told already, or the same in a group, or what varies."""


class TwoNumbers(NamedTuple):
    """What a method gives, both records of the reporting split, None where no point of it qualifies.

    fastest: of the point that had, on the choosing split, the least time among those at the target's quality;
    best: of the point that had there the best quality among those within the target's time.
    """

    method: str
    fastest: Record | None
    best: Record | None


def two_numbers(folder: Path, slack: float = 0.0, check: Check | None = None) -> dict[str, list[TwoNumbers]]:
    """Table 2's two numbers of each method of a finished run, by title of group (`report.groups`).

    Points are chosen on the even batches (batch 1: the even examples) by their figures against the target
    alone on the same examples: at its quality is a score at most `slack` below its own, within its time a
    median ratio of at most 1. Rule lossless draws from p itself and needs no such proof of its quality. The
    records are those of the odd batches, which had no part in the choice, with paired bootstrap intervals in
    "against_target". The first of each group is the target alone. Raises ConfigError as `splitting.part`.
    """
    run = read(folder, check)
    by_group = groups.split(list(run.records.values()))
    return {title: _of_group(run, group, slack) for title, group in by_group.items()}


def _of_group(run: Run, group: list[Record], slack: float) -> list[TwoNumbers]:
    names, size = {r["name"] for r in group}, group[0]["decoding"]["batch_size"]
    points = [point for point in run.points if point.name in names]
    choosing, reporting = (part_of(run, partial(_half, size, odd), points) for odd in (0, 1))
    return _numbers(choosing, {r["name"]: r for r in reporting}, slack)


def _half(size: int, odd: int, index: int) -> bool:
    """Whole batches in turn: the time of a batch belongs to all of its answers."""
    return index // size % 2 == odd


def _numbers(choosing: list[Record], reporting: dict[str, Record], slack: float) -> list[TwoNumbers]:
    alone = groups.target_alone(choosing)
    if alone is None:
        return [TwoNumbers(name, None, None) for name in families(choosing)]
    its = reporting[alone["name"]]
    others = families([r for r in choosing if r is not alone])
    report = lambda record: record and reporting[record["name"]]
    chosen = [(name, fastest(line, slack), best(line)) for name, line in others.items()]
    return [TwoNumbers(TARGET, its, its), *(TwoNumbers(n, report(f), report(b)) for n, f, b in chosen)]


def fastest(records: list[Record], slack: float) -> Record | None:
    """The least median time relative to the target alone's, of points at its quality."""
    able = [r for r in records if r["against_target"] and (_lossless(r) or _loses(r) <= slack)]
    return min(able, key=lambda r: groups.against(r, "relative_seconds"), default=None)


def best(records: list[Record]) -> Record | None:
    """The best score, of points that take at most the target alone's time."""
    able = [
        r
        for r in records
        if groups.score(r) is not None and r["against_target"] and groups.against(r, "relative_seconds") <= 1
    ]
    return max(able, key=groups.score, default=None)


def _loses(record: Record) -> float:
    difference = groups.difference(record)
    return float("inf") if difference is None else -difference


def _lossless(record: Record) -> bool:
    d = record["decoding"]
    return d["method"] == "speculative" and d["rule"] == "lossless" and not groups.filtered(record)


# ------------------------------------------------------------------------------------------
# Families


def families(records: list[Record]) -> dict[str, list[Record]]:
    """Points that differ in alpha only, by the name of the method; of the truncated target, in its filter."""
    heads: dict[str, list[Record]] = {}
    for record in records:
        heads.setdefault(_head(record), []).append(record)
    found: dict[str, list[Record]] = {}
    for head, line in heads.items():
        for record, name in zip(line, _told_apart(head, line), strict=True):
            found.setdefault(name, []).append(record)
    return found


def _head(record: Record) -> str:
    """'v3', 'token chow', 'sequence average', 'drafter'."""
    d = record["decoding"]
    if d["method"] == "target":
        return TRUNCATED if groups.filtered(record) else TARGET
    names = {"speculative": d["rule"], "token": f"token {d['rule']}", "oracle": f"oracle {d['rule']}"}
    names |= {method: f"{method} {d.get('score')}" for method in ("sequence", "hybrid")}
    names["bild"] = "BiLD"  # the rule of that name is BiLD*
    return names.get(d["method"], d["method"])


def _told_apart(head: str, line: list[Record]) -> list[str]:
    """The name of each record's family: the head, and what differs among its records beside alpha."""
    decodings = [decoding_of(record) for record in line]
    unread = set() if line[0]["decoding"]["method"] in ("speculative", "bild") else {"gamma"}
    unread |= set(groups.FILTERS) if head == TRUNCATED else set()
    keys = [f.name for f in fields(Decoding) if f.name not in APART | unread]
    varied = [key for key in keys if any(getattr(d, key) != getattr(decodings[0], key) for d in decodings)]
    return [head + "".join(f" {key}={_shown(getattr(d, key))}" for key in varied) for d in decodings]


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


# ------------------------------------------------------------------------------------------
# The table


def table2(numbers: dict[str, list[TwoNumbers]]) -> str:
    """Markdown in the layout of the paper's Table 2: a row a method, two columns a group of points.

    Brackets are 95 % bootstrap intervals, paired with the target alone on the reporting split.
    """
    heads = ["method"]
    columns: list[dict[str, str]] = []
    for title, group in numbers.items():
        metric = groups.metric([n.fastest or n.best for n in group if n.fastest or n.best] or _nothing())
        heads += [f"{title}: speed-up at the target's {metric}", f"{title}: best {metric} within its time"]
        columns += [{n.method: _cell(n.fastest, _fast) for n in group}]
        columns += [{n.method: _cell(n.best, _good) for n in group}]
    methods = list(dict.fromkeys(n.method for group in numbers.values() for n in group))
    rows = [[method, *(column.get(method, "-") for column in columns)] for method in methods]
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines) + "\n\n" + LEGEND + "\n"


LEGEND = (
    "Points are chosen on the even batches of examples and measured here on the odd ones; brackets: 95 % "
    "bootstrap intervals, the speed-up's and the differences' paired with the target alone on the same "
    "examples; none: no point qualified; -: not run."
)


def _nothing() -> list[Record]:
    return [{"quality": {"metric": "none"}}]


def _cell(record: Record | None, show: Callable[[Record], str]) -> str:
    return "none" if record is None else show(record)


def _fast(record: Record) -> str:
    if _is_target(record):
        return "1.00"
    low, high = groups.against(record, "relative_interval")
    return f"{groups.speed_up(record):.2f} [{1 / high:.2f}, {1 / low:.2f}]" + _told(
        _point(record), _gap(record)
    )


def _good(record: Record) -> str:
    score = groups.score(record)
    if score is None:
        return "-"
    if _is_target(record):
        low, high = groups.interval(record)
        return f"{score:.1f} [{low:.1f}, {high:.1f}]"
    faster = f"{groups.speed_up(record):.2f} times as fast"
    return f"{score:.1f}" + _told(_point(record), _gap(record), faster)


def _told(*facts: str) -> str:
    return f" ({'; '.join(fact for fact in facts if fact)})"


def _is_target(record: Record) -> bool:
    return record["decoding"]["method"] == "target" and not groups.filtered(record)


def _gap(record: Record) -> str:
    interval = groups.difference(record, "_interval")
    if interval is None:
        return ""
    return f"{groups.difference(record):+.1f} [{interval[0]:+.1f}, {interval[1]:+.1f}]"


def _point(record: Record) -> str:
    """What was chosen: the alpha, or the filter of a truncated target; nothing where there was no choice."""
    d, decoding = record["decoding"], decoding_of(record)
    if decoding.tuned:
        return f"alpha {_shown(decoding.alpha)}"
    cut = groups.filtered(record) and d["method"] == "target"
    return ", ".join(f"{k} {d[k]:g}" for k, off in groups.FILTERS.items() if d[k] != off) if cut else ""
