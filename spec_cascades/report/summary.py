"""What a sweep shows, in two plain lines computed from its records."""

from typing import Any

from spec_cascades.report import groups
from spec_cascades.report.groups import Record

TOKEN_RULES = ("v1", "v2", "v3", "topk", "typical")


def lines(records: list[Record]) -> list[str]:
    """The least time at the target's quality, group by group; and what truncating the target alone gives."""
    by_group = groups.split(records)
    speed = "; ".join(_speed(title, group) for title, group in by_group.items())
    controls = [line for title, group in by_group.items() if (line := _control(title, group))]
    return [f"Speed: {speed}.", f"Truncation: {'; '.join(controls) or 'no control in these records'}."]


MARGIN = 1.0
"""Points below the target alone that count as its quality; with few examples the interval forgives more."""


def keeps_quality(record: Record) -> bool:
    """Whether the score is at most MARGIN below the target alone's and the paired interval reaches zero."""
    interval = groups.difference(record, "_interval")
    return interval is not None and interval[1] >= 0 and groups.difference(record) >= -MARGIN


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
    lossless = [r for r in group if _runs(r, ("lossless",))]
    if lossless and best not in lossless:
        text += f", lossless {max(groups.speed_up(r) for r in lossless):.2f} times"
    return text


def _unscored(title: str, target: Record, others: list[Record]) -> str:
    why = target["quality"]["why"]
    if not others:
        return f"{title}: only the target alone was run; {why}"
    best = max(others, key=lambda r: groups.speed_up(r) or 0)
    return f"{title}: {best['name']} is {groups.speed_up(best):.2f} times as fast as the target alone; {why}"


def _control(title: str, group: list[Record]) -> str | None:
    target = groups.target_alone(group)
    controls = [r for r in group if r["decoding"]["method"] == "target" and groups.filtered(r)]
    token = [r for r in group if _runs(r, TOKEN_RULES) and not groups.filtered(r)]
    if not (target and controls and token) or _score(target) is None:
        return None
    best = max(token, key=_score)
    control = _matching(best, controls)
    metric = groups.metric(group)
    text = (
        f"{title}: the target alone, cut by {_filters(control)}, scores {_shown(control)} {metric}, "
        f"the best token rule, {best['name']}, {_shown(best)} and the target uncut {_shown(target)}"
    )
    gain, by_cut = _score(best) - _score(target), _score(control) - _score(target)
    if gain <= 0:
        return text + ", so the token rule gains nothing here"
    share = f"{100 * by_cut / gain:.0f} %" if 0 < by_cut < gain else ("all" if by_cut > 0 else "none")
    return text + f": truncation by itself gives {share} of the token rule's gain"


def _matching(record: Record, controls: list[Record]) -> Record:
    """The control at V3's own threshold (min_p = 1 - alpha) if it ran, else the best one."""
    d = record["decoding"]
    threshold = 1 - float(d["alpha"])
    exact = [c for c in controls if d["rule"] == "v3" and abs(c["decoding"]["min_p"] - threshold) < 1e-6]
    return exact[0] if exact else max(controls, key=_score)


def _runs(record: Record, rules: tuple[str, ...]) -> bool:
    return record["decoding"]["method"] == "speculative" and record["decoding"]["rule"] in rules


def _filters(record: Record) -> str:
    d: dict[str, Any] = record["decoding"]
    return ", ".join(f"{key}={d[key]:g}" for key, off in groups.FILTERS.items() if d[key] != off)


def _score(record: Record) -> float | None:
    return groups.score(record)


def _shown(record: Record) -> str:
    return f"{_score(record):.1f}"
