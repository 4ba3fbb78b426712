"""Which rule is steadiest over tasks.

On each task a rule stands at its fastest point that keeps the target's quality (`picks.keeps_quality`), so
alpha and gamma are that task's own; where it has none, the target alone would be run, and its time counts
as 1. Steadier is the rule that keeps the quality on more tasks, then that with the less time on its worst
task, then that with the less spread (greatest less least time). Times are relative to the target alone.
"""

from collections.abc import Callable
from typing import NamedTuple

from spec_cascades.report import groups, picks
from spec_cascades.report.groups import Record
from spec_cascades.report.runs import Setting


class Standing(NamedTuple):
    """One rule (or one rule at one alpha and gamma) over the tasks: its point on each, None where it lost."""

    rule: str
    at: dict[str, Record | None]

    @property
    def kept(self) -> int:
        return sum(record is not None for record in self.at.values())

    @property
    def times(self) -> list[float]:
        return [1.0 if record is None else groups.time(record) for record in self.at.values()]

    @property
    def worst(self) -> float:
        return max(self.times)

    @property
    def spread(self) -> float:
        return max(self.times) - min(self.times)

    def bounds(self) -> tuple[float, float]:
        """The 95 % interval of the time on the worst task."""
        record = max(self.at.values(), key=lambda r: 1.0 if r is None else groups.time(r))
        low, high = (record["against_target"].get("relative_interval") if record else None) or [
            self.worst
        ] * 2
        return low, high


def judged(setting: Setting) -> dict[str, list[Record]]:
    """The tasks on which quality can be compared with the target alone."""
    return {
        title: group
        for title, group in setting.tasks.items()
        if (target := groups.target_alone(group)) is not None and groups.score(target) is not None
    }


def standings(
    tasks: dict[str, list[Record]], name: Callable[[Record], str] = groups.rule
) -> tuple[list[Standing], list[Standing]]:
    """Those that ran on every task, steadiest first, and those that did not.

    name: what is chosen for all tasks at once; by default the rule, `one_setting` for a fixed alpha too.
    """
    named: dict[str, dict[str, list[Record]]] = {}
    for title, group in tasks.items():
        for record in group:
            if record["decoding"]["method"] != "target":
                named.setdefault(name(record), {}).setdefault(title, []).append(record)
    found = [
        Standing(rule, {t: picks.kept_fastest(rs) for t, rs in at.items()}) for rule, at in named.items()
    ]
    everywhere = [s for s in found if len(s.at) == len(tasks)]
    return sorted(everywhere, key=_order), [s for s in found if len(s.at) < len(tasks)]


def one_setting(record: Record) -> str:
    """'v3, alpha 0.5, gamma 4': a rule with its parameters, one choice for all tasks."""
    from spec_cascades.config import UNTUNED

    d = record["decoding"]
    parts = [groups.rule(record)]
    if d["method"] != "drafter" and d["rule"] not in UNTUNED:
        parts.append(f"alpha {float(d['alpha']):g}")
    if d["method"] in ("speculative", "bild"):
        parts.append(f"gamma {d['gamma']}")
    if groups.filtered(record):
        parts.append(groups.filters(record))
    return ", ".join(parts)


def gains(tasks: dict[str, list[Record]]) -> list[tuple[str, Record | None]]:
    """Each task with its fastest point at the target's quality, the task that gains most first."""
    best = [
        (title, picks.kept_fastest([r for r in group if r["decoding"]["method"] != "target"]))
        for title, group in tasks.items()
    ]
    return sorted(best, key=lambda pair: 1.0 if pair[1] is None else groups.time(pair[1]))


def _order(standing: Standing) -> tuple[float, ...]:
    return (-standing.kept, standing.worst, standing.spread)
