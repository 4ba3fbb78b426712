"""Quality against time and rejection rate: one panel a group, one colour a rule, a line along alpha."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from spec_cascades.config import UNTUNED
from spec_cascades.report import groups, labels, picks
from spec_cascades.report.groups import Record

COLOURS = {
    "lossless": "#444444",
    "drafter_only": "#999999",
    "lossy": "#e69f00",
    "chow": "#56b4e9",
    "chow_log": "#0072b2",
    "diff": "#009e73",
    "diff_log": "#00664b",
    "opt": "#cc79a7",
    "opt_log": "#8e4a72",
    "v1": "#f0b8a0",
    "v2": "#e07b54",
    "v3": "#d62728",
    "topk": "#8c564b",
    "bild": "#9467bd",
    "lossy_solved": "#b8860b",
    "ensemble": "#bcbd22",
    "tv_bound": "#17a2b8",
    "typical": "#7f3b08",
}
OTHERS = {
    "bild": "#7b3294",
    "token": "#2c7fb8",
    "oracle": "#a6d854",
    "sequence": "#8c6d31",
    "hybrid": "#b5a05a",
}
MARKERS = dict(zip(COLOURS, "sDovv^^pphPXdH8<>*", strict=True))
TRUNCATED = groups.TRUNCATED
ALONE = {"target": ("target alone", "*", 15, "black"), "drafter": ("drafter alone", "D", 8, "#777777")}


def draw(records: list[Record], path: Path) -> None:
    """Writes a PNG. Times are relative to the target alone where it ran, else milliseconds."""
    _draw(records, path, _against_time)


def draw_rejection(records: list[Record], path: Path) -> None:
    """Writes a PNG of quality against rejection rate; what drafts nothing is a horizontal line."""
    _draw(records, path, _against_rejection)


def draw_front(records: list[Record], path: Path) -> None:
    """Writes a PNG of all points, and a line through those that no other beats in both quality and time."""
    _draw(records, path, _front)


def _draw(records: list[Record], path: Path, panel: Callable[..., list[labels.Label]]) -> None:
    by_group = groups.split(records)
    figure, axes = canvas([1] * len(by_group), 4.6)
    written = [panel(axis, *named) for axis, named in zip(axes, by_group.items(), strict=True)]
    finish(figure, axes, path, written)


def canvas(rows: list[int], each: float) -> tuple[Figure, list[Any]]:
    """A figure of panels, two beside each other, as high as their longest takes with `each` inches a row."""
    columns, lines = min(len(rows), 2), -(-len(rows) // 2)
    heights = [max(rows[i : i + 2]) * each + 0.9 for i in range(0, len(rows), 2)]
    size = (1.5 + 6.2 * columns, 0.7 + sum(heights))
    figure = Figure(figsize=size, dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    grid = {"squeeze": False, "height_ratios": heights}
    axes = figure.subplots(lines, columns, **grid).flatten().tolist()
    for unused in axes[len(rows) :]:
        unused.remove()
    return figure, axes[: len(rows)]


def finish(figure: Figure, axes: list[Any], path: Path, written: list[list[labels.Label]]) -> None:
    """Adds one legend for all panels and the labels of each, and writes the PNG."""
    found = {
        text: handle for axis in axes for handle, text in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    columns = min(3 * max(1, len({axis.get_position().x0 for axis in axes})), len(found))
    figure.legend(
        found.values(), found.keys(), loc="outside lower center", ncols=max(1, columns), frameon=False
    )
    figure.draw_without_rendering()  # the layout, which labels are placed in
    figure.set_layout_engine("none")
    for axis, own in zip(axes, written, strict=True):
        labels.place(
            axis, own, [line.get_xydata() for line in axis.lines if line.get_transform() == axis.transData]
        )
    figure.savefig(path)


def _against_time(axis: Any, title: str, group: list[Record]) -> list[labels.Label]:
    written = []
    for name, line in _series(group).items():
        written += _line(axis, name, line, _times(group, line))
    _frame(axis, title, group)
    return written


def _against_rejection(axis: Any, title: str, group: list[Record]) -> list[labels.Label]:
    written = []
    for name, line in _series(group).items():
        drafted = [r for r in line if r["rates"]["rejection_rate"] is not None]
        if drafted:
            written += _line(axis, name, drafted, [r["rates"]["rejection_rate"] for r in drafted])
        elif name in {label for label, *_ in ALONE.values()}:
            dashes = "--" if line[0]["decoding"]["method"] == "target" else "-."
            colour = _style(name, line[0])["color"]
            axis.axhline(groups.score(line[0]), label=name, color=colour, linestyle=dashes, linewidth=1)
    axis.set_title(title, fontsize=11)
    axis.set_xlabel("rejection rate: drafts rejected of those judged")
    _quality_axis(axis, group)
    return written


def _front(axis: Any, title: str, group: list[Record]) -> list[labels.Label]:
    for name, line in _series(group).items():
        look = _style(name, line[0]) | {"linestyle": "none", "alpha": 0.75}
        axis.plot(_times(group, line), [groups.score(r) for r in line], label=name, **look)
    best = picks.front(group)
    x, y = _times(group, best), [groups.score(r) for r in best]
    axis.plot(x, y, color="black", linewidth=1.2, zorder=1, label="Pareto front")
    _frame(axis, title, group)
    axis.set_ylabel(groups.metric(group))
    return [labels.Label(_short(r), *at, "#000000") for r, *at in zip(best, x, y, strict=True)]


def _times(group: list[Record], line: list[Record]) -> list[float]:
    relative = groups.target_alone(group) is not None
    return [groups.time(r) if relative else 1000 * r["latency"]["p50"] for r in line]


def _frame(axis: Any, title: str, group: list[Record]) -> None:
    """The target alone's lines, and what an axis of times says."""
    target = groups.target_alone(group)
    if target is not None:
        axis.axhline(groups.score(target), color="black", linestyle="--", linewidth=0.9, zorder=0)
        axis.axvline(1, color="black", linestyle=":", linewidth=0.7, zorder=0)
        title += f" (target alone: {1000 * target['latency']['p50']:.1f} ms)"
    axis.set_title(title, fontsize=11)
    axis.set_xlabel("time per answer" + (" / target alone (paired median)" if target else ", ms (median)"))
    _quality_axis(axis, group)


def _quality_axis(axis: Any, group: list[Record]) -> None:
    axis.set_ylabel(f"{groups.metric(group)} (bars: 95 % bootstrap interval)")
    axis.grid(alpha=0.25)
    axis.margins(x=0.12, y=0.08)


def _series(group: list[Record]) -> dict[str, list[Record]]:
    """Records that one line joins, by its label, ordered along alpha (or gamma, or the filter)."""
    gammas = {r["decoding"]["gamma"] for r in group if r["decoding"]["method"] == "speculative"}
    found: dict[str, list[Record]] = {}
    for record in group:
        found.setdefault(_label(record, len(gammas) > 1), []).append(record)
    return {name: sorted(line, key=_along) for name, line in found.items()}


def _label(record: Record, many_gammas: bool) -> str:
    d, text = record["decoding"], groups.rule(record)
    told = many_gammas and d["method"] == "speculative" and d["rule"] != "lossless"
    return f"{text}, gamma {d['gamma']}" if told else text


def _along(record: Record) -> tuple[float, ...]:
    d = record["decoding"]
    return (float(d["alpha"]), d["gamma"], d["min_p"], -d["top_p"], d["top_k"])


def _line(axis: Any, name: str, line: list[Record], x: list[float]) -> list[labels.Label]:
    """One line along alpha with intervals of the score; returns the labels of its ends."""
    y = [groups.score(r) for r in line]
    bounds = [groups.interval(r) for r in line]
    # A percentile interval need not hold the estimate itself: a bar then starts at the point.
    bars = [[max(0, b - low) for b, (low, _) in zip(y, bounds, strict=True)]]
    bars.append([max(0, high - b) for b, (_, high) in zip(y, bounds, strict=True)])
    look = _style(name, line[0])
    kinds = {tuple(key for key, off in groups.FILTERS.items() if r["decoding"][key] != off) for r in line}
    if groups.filtered(line[0]) and len(kinds) > 1:
        look["linestyle"] = "none"  # min-p and top-p are no two ends of one thing
    axis.errorbar(
        x, y, yerr=bars, label=name, linewidth=1.6, elinewidth=0.7, ecolor=look["color"] + "60", **look
    )
    ends = {0, len(line) - 1} if len(line) > 1 else set()
    ends = set(range(len(line))) if len(kinds) > 1 else ends
    return [labels.Label(_moving(line[i]), x[i], y[i], look["color"]) for i in sorted(ends)]


def _style(name: str, record: Record) -> dict[str, Any]:
    d = record["decoding"]
    hollow = {"markerfacecolor": "white"} if groups.filtered(record) else {}
    if name == TRUNCATED:
        return {"color": "#000000", "marker": "*", "markersize": 10, "linestyle": ":", **hollow}
    if d["method"] in ALONE:
        _, marker, size, colour = ALONE[d["method"]]
        return {"color": "#000000" if colour == "black" else colour, "marker": marker, "markersize": size}
    if d["rule"] == "lossless" and d["method"] == "speculative":
        return {"color": COLOURS["lossless"], "marker": "s", "markersize": 7, "zorder": 5, **hollow}
    if d["method"] in OTHERS:
        return {"color": OTHERS[d["method"]], "marker": "^", "markersize": 6, "linestyle": "--", **hollow}
    colour, marker = COLOURS.get(d["rule"], "#17becf"), MARKERS.get(d["rule"], "o")
    return {"color": colour, "marker": marker, "markersize": 7, **_by_gamma(name, d["gamma"]), **hollow}


def _by_gamma(name: str, gamma: int) -> dict[str, Any]:
    """Half-filled markers and dashes tell lines of one rule apart where gammas differ (1 to 8)."""
    if ", gamma" not in name:
        return {}
    fill = ("full", "top", "left", "bottom")[gamma % 4]
    look = {} if fill == "full" else {"fillstyle": fill, "markerfacecoloralt": "white"}
    return {"linestyle": "-" if gamma <= 4 else "--", **look}


def _moving(record: Record) -> str:
    """The value that moves along a line: alpha, gamma or the filter."""
    d = record["decoding"]
    if d["method"] == "target" or (d["rule"] in UNTUNED and groups.filtered(record)):
        return groups.filters(record).replace("_", "-").replace("=", " ")
    return f"γ {d['gamma']}" if d["rule"] in UNTUNED else f"α {float(d['alpha']):g}"


def _short(record: Record) -> str:
    """'v3 α 0.5': a point's name on a crowded plot."""
    d, cut = record["decoding"], groups.filtered(record)
    if d["method"] in ALONE:
        return ALONE[d["method"]][0] + (f", {_moving(record)}" if cut else "")
    return f"{groups.rule(record)} {_moving(record)}"
