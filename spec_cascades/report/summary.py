"""What a sweep shows, in plain lines computed from its records."""

from spec_cascades.report import control, groups
from spec_cascades.report.groups import Record
from spec_cascades.report.picks import LOSSES, MARGIN, fastest, keeps_quality, runs


def lines(records: list[Record]) -> list[str]:
    """The least time at the target's quality, group by group; and what truncating the target alone gives."""
    by_group = groups.split(records)
    speed = "; ".join(_speed(title, group) for title, group in by_group.items())
    cuts = [line for title, group in by_group.items() if (line := _control(title, group, records))]
    return [f"Speed: {speed}.", f"Truncation: {'; '.join(cuts) or 'no control in these records'}."]


def all_lines(records: list[Record]) -> list[str]:
    """`lines`, what quality is lost for what speed, and the truncation control."""
    return [*lines(records), *trades(records), *controls(records)]


def trades(records: list[Record]) -> list[str]:
    """What quality is lost for what speed: the fastest point at each loss that may be allowed, and of all."""
    told = [(t, _trade(group)) for t, group in groups.split(records).items()]
    return [f"Quality for speed: {title}: {text}." for title, text in told if text]


def _trade(group: list[Record]) -> str:
    target = groups.target_alone(group)
    if target is None or _score(target) is None:
        return ""
    others = [r for r in group if r["decoding"]["method"] != "target"]
    able = [[r for r in others if groups.difference(r) >= -loss] for loss in (0.0, MARGIN, *LOSSES, 100.0)]
    found = {r["name"]: r for points in able if (r := fastest(points)) and groups.speed_up(r) > 1}
    metric = groups.metric(group)
    told = [
        f"{groups.speed_up(r):.2f} times as fast at {groups.difference(r):+.1f} {metric} ({name})"
        for name, r in found.items()
    ]
    return ", ".join(told) or "nothing is faster than the target alone"


def controls(records: list[Record]) -> list[str]:
    """Where a token rule gains: what each cut gives the target alone and lossless speculation, if it ran."""
    found = [(t, control.claim(group, records)) for t, group in groups.split(records).items()]
    return [f"Controls: {title}: {_all(asked)}." for title, asked in found if asked and asked.gain > 0]


def _speed(title: str, group: list[Record]) -> str:
    target = groups.target_alone(group)
    if target is None:
        return f"{title}: the target alone was not run, so there is nothing to compare with"
    others = [r for r in group if r["decoding"]["method"] != "target"]
    metric = groups.metric(group)
    if _score(target) is None:
        return _unscored(title, target, others)
    able = [r for r in others if keeps_quality(r)]
    if not others:
        return f"{title}: only the target alone was run ({_shown(target)} {metric})"
    if not able:
        return f"{title}: no point is within {MARGIN:g} {metric} of the target alone ({_shown(target)})"
    best = max(able, key=lambda r: groups.speed_up(r) or 0)
    low, high = groups.difference(best, "_interval")
    text = (
        f"{title}: {best['name']} is the fastest within {MARGIN:g} {metric} of the target, "
        f"{groups.speed_up(best):.2f} times as fast as the target alone "
        f"({metric} {_shown(best)} against {_shown(target)}, difference {low:+.1f} to {high:+.1f})"
    )
    lossless = [r for r in group if runs(r, ("lossless",)) and not groups.filtered(r)]
    if lossless and best not in lossless:
        text += f", lossless {max(groups.speed_up(r) for r in lossless):.2f} times"
    return text


def _unscored(title: str, target: Record, others: list[Record]) -> str:
    why = target["quality"]["why"]
    if not others:
        return f"{title}: only the target alone was run; {why}"
    best = max(others, key=lambda r: groups.speed_up(r) or 0)
    return f"{title}: {best['name']} is {groups.speed_up(best):.2f} times as fast as the target alone; {why}"


def _control(title: str, group: list[Record], records: list[Record]) -> str | None:
    """What the target alone scores when it is cut by a filter, beside the best token rule."""
    asked = control.claim(group, records)
    cut = asked and _cut_target(asked)
    if not cut:
        return None
    metric = groups.metric(group)
    text = (
        f"{title}: the target alone, cut by {groups.filters(cut)}, scores {_shown(cut)} {metric}, "
        f"the best token rule, {asked.best['name']}, {_shown(asked.best)} and the target uncut "
        f"{_shown(asked.target)}"
    )
    if asked.gain <= 0:
        return text + ", so the token rule gains nothing here"
    share = control.share(asked, cut)
    return f"{text}: truncation by itself gives {share} of the token rule's gain"


def _cut_target(asked: control.Claim) -> Record | None:
    """The target alone under the filter at the rule's own threshold, else under the best one."""
    cuts = [c.record for c in asked.controls if c.side == control.SIDES[0] and c.cut != "greedy" and c.record]
    return control.matching(asked.best, cuts)


def _all(asked: control.Claim) -> str:
    ran = [c for c in asked.controls if c.record is not None]
    told = [f"{c.side}, {c.cut}, {_shown(c.record)}" for c in ran]
    text = f"{asked.best['name']} {_shown(asked.best)} against the target uncut {_shown(asked.target)}"
    text += "".join(f"; {line}" for line in told)
    return text + (f"; not run: {', '.join(asked.missing)}" if asked.missing else "")


def _score(record: Record) -> float | None:
    return groups.score(record)


def _shown(record: Record) -> str:
    return f"{_score(record):.1f}"
