"""Quality against time per answer: one panel a group, one colour a rule, a line along alpha."""

from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from spec_cascades.config import UNTUNED
from spec_cascades.report import groups
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
METHODS = {
    "bild": "BiLD",
    "token": "token cascade, {rule}",
    "oracle": "oracle, {rule}",
    "sequence": "sequence cascade",
    "hybrid": "sequence cascade, verified",
}
"""What a line of each method is called; a speculative one has its rule's name."""
OTHERS = {
    "bild": "#7b3294",
    "token": "#2c7fb8",
    "oracle": "#a6d854",
    "sequence": "#8c6d31",
    "hybrid": "#b5a05a",
}
TRUNCATED = "target alone, truncated"
ALONE = {"target": ("target alone", "*", 15, "black"), "drafter": ("drafter alone", "D", 8, "#777777")}


def draw(records: list[Record], path: Path) -> None:
    """Writes a PNG. Times are relative to the target alone where it ran, else milliseconds."""
    by_group = groups.split(records)
    figure = Figure(figsize=(1.5 + 6.2 * len(by_group), 6.4), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(by_group), squeeze=False)[0]
    for axis, (title, group) in zip(axes, by_group.items(), strict=True):
        _panel(axis, title, group)
    found = {
        text: handle for axis in axes for handle, text in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        found.values(), found.keys(), loc="outside lower center", ncols=min(6, len(found)), frameon=False
    )
    figure.savefig(path)


def _panel(axis: Any, title: str, group: list[Record]) -> None:
    target = groups.target_alone(group)
    for name, line in _series(group).items():
        _line(axis, name, line, relative=target is not None)
    if target is not None:
        axis.axhline(groups.score(target), color="black", linestyle="--", linewidth=0.9, zorder=0)
        axis.axvline(1, color="black", linestyle=":", linewidth=0.7, zorder=0)
        title += f" (target alone: {1000 * target['latency']['p50']:.1f} ms)"
    axis.set_title(title, fontsize=11)
    axis.set_xlabel("time per answer" + (" / target alone (paired median)" if target else ", ms (median)"))
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
    d = record["decoding"]
    if d["method"] == "target" and groups.filtered(record):
        return TRUNCATED
    if d["method"] in ALONE:
        return ALONE[d["method"]][0]
    text = METHODS.get(d["method"], "{rule}").format(rule=d["rule"])
    text += ", filtered" if groups.filtered(record) else ""
    return f"{text}, gamma {d['gamma']}" if many_gammas and d["rule"] != "lossless" else text


def _along(record: Record) -> tuple[float, ...]:
    d = record["decoding"]
    return (float(d["alpha"]), d["gamma"], d["min_p"], -d["top_p"], d["top_k"])


def _line(axis: Any, name: str, line: list[Record], relative: bool) -> None:
    x = [groups.against(r, "relative_seconds") if relative else 1000 * r["latency"]["p50"] for r in line]
    y = [groups.score(r) for r in line]
    bounds = [groups.interval(r) for r in line]
    # A percentile interval need not hold the estimate itself: a bar then starts at the point.
    bars = [[max(0, b - low) for b, (low, _) in zip(y, bounds, strict=True)]]
    bars.append([max(0, high - b) for b, (_, high) in zip(y, bounds, strict=True)])
    style = _style(name, line[0])
    axis.errorbar(
        x, y, yerr=bars, label=name, linewidth=1.6, elinewidth=0.7, ecolor=style["color"] + "60", **style
    )
    if name not in {label for label, *_ in ALONE.values()}:
        _annotate(axis, x, y, line, style["color"])


def _style(name: str, record: Record) -> dict[str, Any]:
    d = record["decoding"]
    if name == TRUNCATED:
        return {
            "color": "#000000",
            "marker": "*",
            "markersize": 10,
            "markerfacecolor": "white",
            "linestyle": ":",
        }
    if d["method"] in ALONE:
        _, marker, size, colour = ALONE[d["method"]]
        return {"color": "#000000" if colour == "black" else colour, "marker": marker, "markersize": size}
    if d["rule"] == "lossless":
        return {"color": COLOURS["lossless"], "marker": "s", "markersize": 7, "zorder": 5}
    if d["method"] in OTHERS:
        return {"color": OTHERS[d["method"]], "marker": "^", "markersize": 6, "linestyle": "--"}
    return {"color": COLOURS.get(d["rule"], "#17becf"), "marker": "o", "markersize": 6}


def _annotate(axis: Any, x: list[float], y: list[float], line: list[Record], colour: str) -> None:
    """Writes at both ends of a line the value that moves along it."""
    ends = {0: (6, 4, "left"), len(line) - 1: (-6, -9, "right")} if len(line) > 1 else {}
    for i, (right, up, side) in ends.items():
        outline = [withStroke(linewidth=2, foreground="white")]
        look = {"fontsize": 7.5, "color": colour, "path_effects": outline, "ha": side}
        axis.annotate(_moving(line[i]), (x[i], y[i]), (right, up), textcoords="offset points", **look)


def _moving(record: Record) -> str:
    d = record["decoding"]
    if d["method"] == "target":
        return f"min-p {d['min_p']:g}" if d["min_p"] else f"top-p {d['top_p']:g}"
    return f"γ {d['gamma']}" if d["rule"] in UNTUNED else f"α {float(d['alpha']):g}"
