"""The tables of one group of one task: which rule to take, the front, the control, all points."""

from spec_cascades.report import cells, control, groups, picks, table
from spec_cascades.report.groups import Record
from spec_cascades.report.sheets import Sheet

CHOSEN = (
    "Picked and shown on the same examples, so the best of many looks a little better than it is: "
    "choose on one split and confirm on another before a claim."
)
RATIO = "Speed-up: the target alone's time over the point's, paired median, with its 95 % interval."


def of_group(key: str, title: str, group: list[Record], records: list[Record]) -> list[Sheet]:
    """The tables of one group of one task; `records` are all of that task's."""
    found = [_picks(key, title, group), _rules(key, title, group), _front(key, title, group)]
    found += [_control(key, title, group, records)]
    found += [_points(key, title, group), _acceptance(key, title, group)]
    return [sheet for sheet in found if sheet.rows]


def _picks(key: str, title: str, group: list[Record]) -> Sheet:
    rows = [[pick.demand, *cells.row(pick.record)] for pick in picks.picks(group)]
    return Sheet(
        f"{key}-take",
        f"Which rule to take: {title}",
        ("what is asked for", *cells.headings(group)),
        rows,
        CHOSEN,
    )


def _rules(key: str, title: str, group: list[Record]) -> Sheet:
    """Each rule at its best, by the two numbers of the paper's Table 2."""
    target, metric = groups.target_alone(group), groups.metric(group)
    headings = ("rule", "fastest at the target's quality", "speed-up", f"{metric} less the target's")
    headings += ("best within the target's time", metric, f"{metric} less the target's")
    rows = []
    if target is not None and groups.score(target) is not None:
        for rule, points in picks.by_rule(group).items():
            quick, good = picks.kept_fastest(points), picks.best_within(points)
            told = (cells.name(quick), cells.speed(quick), cells.gap(quick))
            rows.append([rule, *told, cells.name(good), cells.score(good), cells.gap(good)])
    note = f"The target's quality: at most {picks.MARGIN:g} {metric} less, the paired interval reaching 0."
    return Sheet(f"{key}-rules", f"Each rule at its best: {title}", headings, rows, f"{note} {CHOSEN}")


def _front(key: str, title: str, group: list[Record]) -> Sheet:
    """What quality is lost for what speed."""
    rows = [[r["name"], *cells.row(r)[1:]] for r in picks.front(group)]
    note = "The points that no other beats in quality without taking longer, fastest first."
    caption = f"Pareto front, quality for speed: {title}"
    return Sheet(f"{key}-front", caption, ("point", *cells.headings(group)[1:]), rows, f"{note} {RATIO}")


def _control(key: str, title: str, group: list[Record], records: list[Record]) -> Sheet:
    asked, metric = control.claim(group, records), groups.metric(group)
    headings = ("what", "cut", "point", metric, f"{metric} less the uncut target's", "share of the gain")
    rows = []
    if asked is not None:
        rows.append(["target alone", "uncut", *_controlled(asked, asked.target)[:2], "", ""])
        rows.append(["best token rule", "by its rule", *_controlled(asked, asked.best)[:3], ""])
        rows += [[c.side, c.cut, *_controlled(asked, c.record)] for c in asked.controls]
    note = (
        "A token rule drops tokens that the target finds unlikely, and so do these cuts. Share of the gain: "
        "the part of the token rule's gain over the uncut target that the cut gives by itself. What was not "
        "run cannot be told apart from the rule's own doing."
    )
    return Sheet(f"{key}-control", f"Truncation control: {title}", headings, rows, note)


def _controlled(asked: control.Claim, record: Record | None) -> list[str]:
    """A control's point, score, difference and share of the token rule's gain."""
    if record is None:
        return ["not run", "", "", ""]
    over = groups.score(record) - groups.score(asked.target)
    share = control.share(asked, record) if asked.gain > 0 else "no gain"
    return [record["name"], cells.score(record), f"{over:+.1f}", share]


def _points(key: str, title: str, group: list[Record]) -> Sheet:
    columns = table.fitting(table.COLUMNS + table.filled(table.FURTHER + table.NEWER, group), group)
    rows = [[*(c.cell(r) for c in columns), cells.line(r)] for r in group]
    headings = (*(c.heading for c in columns), "record")
    note = f"{table.legend(group)} Record: the line of the file."
    return Sheet(f"{key}-points", f"All points: {title}", headings, rows, note)


def _acceptance(key: str, title: str, group: list[Record]) -> Sheet:
    drafted = [r for r in group if r["rates"].get("acceptance_by_position")]
    longest = max((len(r["rates"]["acceptance_by_position"]) for r in drafted), default=0)
    rows = [[r["name"], *_positions(r, longest)] for r in drafted]
    headings = ("point", *(f"position {i + 1}" for i in range(longest)))
    note = "Accepted drafts of those judged at each position of a block; in brackets the number judged."
    return Sheet(f"{key}-acceptance", f"Acceptance by position: {title}", headings, rows, note)


def _positions(record: Record, longest: int) -> list[str]:
    rates = record["rates"]
    told = [
        "-" if rate is None else f"{rate:.2f} ({judged})"
        for rate, judged in zip(rates["acceptance_by_position"], rates["judged"], strict=True)
    ]
    return told + [""] * (longest - len(told))
