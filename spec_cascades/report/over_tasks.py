"""All tasks together: the steadiest rule, the task that gains most, as tables and sentences."""

from collections.abc import Callable

from spec_cascades.report import cells, groups, picks, steady
from spec_cascades.report.contents import CHOSEN, RATIO
from spec_cascades.report.groups import Record
from spec_cascades.report.runs import Setting
from spec_cascades.report.sheets import Sheet


def of_setting(key: str, setting: Setting) -> list[Sheet]:
    """The tables over the tasks of one setting; none where fewer than two can be judged."""
    tasks = steady.judged(setting)
    if len(tasks) < 2:
        return []
    by_rule = _standings(
        f"{key}-steady", f"Rules over {len(tasks)} tasks: {setting.title}", tasks, groups.rule
    )
    fixed = "One alpha and gamma for all tasks"
    by_one = _standings(f"{key}-one", f"{fixed}: {setting.title}", tasks, steady.one_setting)
    rows = [[title, *cells.row(record)] for title, record in steady.gains(tasks)]
    headings = ("task", "point", "speed-up", "score", "less the target's", "rejected", "record")
    gains = Sheet(
        f"{key}-gains", f"What each task gains: {setting.title}", headings, rows, f"{RATIO} {CHOSEN}"
    )
    return [by_rule, by_one, gains]


def _standings(
    key: str, caption: str, tasks: dict[str, list[Record]], name: Callable[[Record], str]
) -> Sheet:
    ranked, partly = steady.standings(tasks, name)
    rows = [
        [s.rule, f"{s.kept} of {len(s.at)}", f"{s.worst:.2f}", f"{s.spread:.2f}", *_at(s, list(tasks))]
        for s in ranked
    ]
    rows += [
        [s.rule, f"{s.kept} of {len(s.at)}", "not on every task", "", *_at(s, list(tasks))] for s in partly
    ]
    headings = ("rule", "quality kept on", "worst time", "spread", *(f"time on {t}" for t in tasks))
    return Sheet(key, caption, headings, rows, f"Steadiest first. {CHOSEN}")


DEFINITION = (
    "On each task a rule stands at its fastest point that keeps the target's quality "
    f"(at most {picks.MARGIN:g} point less, the paired interval reaching 0). Where it has none, the target "
    "would be run, and its time counts as 1. Steadier is what keeps the quality on more tasks, then what "
    "takes less time on its worst task, then what has the less spread (greatest less least time). Times are "
    "relative to the target alone, as measured in turns with it."
)


def _at(standing: steady.Standing, tasks: list[str]) -> list[str]:
    def cell(task: str) -> str:
        if task not in standing.at:
            return "not run"
        record = standing.at[task]
        return "not kept: 1" if record is None else f"{groups.time(record):.2f} ({_where(record)})"

    return [cell(task) for task in tasks]


def answers(found: list[Setting]) -> list[str]:
    """Over tasks, in plain sentences: the steadiest rule, who gains most."""
    return [line for setting in found for line in _answers(setting)]


def _answers(setting: Setting) -> list[str]:
    tasks = steady.judged(setting)
    unjudged = [title for title in setting.tasks if title not in tasks]
    left = (
        f" (left out, for want of a score or of the target alone: {', '.join(unjudged)})" if unjudged else ""
    )
    if len(tasks) < 2:
        return [
            f"{setting.title}: {'one task only' if tasks else 'no task'} can be judged, so nothing is said "
            f"over tasks{left}."
        ]
    ranked, _ = steady.standings(tasks)
    return [f"{setting.title}: {_steadiest(ranked, len(tasks))}{left}.", f"{setting.title}: {_most(tasks)}."]


def _steadiest(ranked: list[steady.Standing], n: int) -> str:
    if not ranked or not ranked[0].kept:
        return f"no rule that ran on all {n} tasks keeps the target's quality on any"
    best = ranked[0]
    text = (
        f"{best.rule} is the steadiest over {n} tasks: it keeps the target's quality on {best.kept}, takes "
        f"{best.worst:.2f} of the target's time at worst, with a spread of {best.spread:.2f}"
    )
    if best.worst > 1:
        text += ", which is slower than the target alone"
    rivals = [s for s in ranked[1:] if s.kept == best.kept and s.bounds()[0] <= best.bounds()[1]]
    if rivals:
        text += f"; the intervals on the worst task do not tell it from {', '.join(s.rule for s in rivals)}"
    return text


def _most(tasks: dict[str, list[Record]]) -> str:
    (title, record), *rest = steady.gains(tasks)
    if record is None:
        return "no task gains: nowhere does a point keep the target's quality"
    if groups.speed_up(record) <= 1:
        return "no task gains: at the target's quality nothing is faster than the target alone"
    text = (
        f"{title} gains most: {cells.speed(record)} times as fast at the target's quality by {record['name']}"
    )
    low = (groups.speed_bounds(record) or (groups.speed_up(record),))[0]
    near = [
        t for t, r in rest if r is not None and (groups.speed_bounds(r) or (0, groups.speed_up(r)))[1] >= low
    ]
    return text + (f"; the intervals do not tell it from {', '.join(near)}" if near else "")


def _where(record: Record) -> str:
    return record["name"] + (f", record {cells.line(record)}" if cells.line(record) else "")
