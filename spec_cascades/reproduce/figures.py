"""Fig. 2 and Fig. 3 from records: quality against time, or against rejection rate, a panel a column."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from spec_cascades.report import groups
from spec_cascades.report.groups import Record
from spec_cascades.tradeoffs import TARGET, TRUNCATED, families

CUT = "lossless, truncated"
ACROSS = 3
"""Panels in a row."""
WHERE: dict[str, tuple[str, Callable[[Record], float | None]]] = {
    "tradeoff": (
        "time per answer / target alone (paired median)",
        lambda r: groups.against(r, "relative_seconds"),
    ),
    "rejection": ("rejection rate", lambda r: r["rates"]["rejection_rate"]),
}
"""By kind of figure, what the horizontal axis shows of a record; one without it is not in the picture."""


def draw(panels: Mapping[str, list[Record]], kind: str, title: str, path: Path) -> bool:
    """Writes a PNG of the panels with a score; False, and nothing, where there is none."""
    figure = picture(panels, kind, title)
    if figure is None:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    return True


def picture(panels: Mapping[str, list[Record]], kind: str, title: str) -> Any:
    """The figure, None where nothing has a score.

    A line joins the points of one method along its alpha or filter; bars are 95 % bootstrap intervals.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    scored = {name: group for name, group in panels.items() if groups.score(group[0]) is not None}
    if not scored:
        return None
    across = min(ACROSS, len(scored))
    down = -(-len(scored) // across)
    names = len({name for group in scored.values() for name in _series(group)})
    columns = 2 * across  # of the legend, which is as wide as the panels
    size = (1 + 4.6 * across, 1.4 + 3.8 * down + 0.18 * -(-names // columns))
    figure = Figure(figsize=size, dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(down, across, squeeze=False).flat)
    for axis, (name, group) in zip(axes, scored.items(), strict=False):
        _panel(axis, name, group, kind)
    for axis in axes[len(scored) :]:
        axis.remove()
    figure.suptitle(title, fontsize=12)
    _legend(figure, columns)
    return figure


def _panel(axis: Any, name: str, group: list[Record], kind: str) -> None:
    label, where = WHERE[kind]
    for family, line in _series(group).items():
        points = [(where(r), r) for r in sorted(line, key=_along) if where(r) is not None]
        if points:
            _line(axis, family, points)
    if (target := groups.reference(group)) is not None:
        axis.axhline(
            groups.score(target), color="black", linestyle="--", linewidth=0.8, label="target's quality"
        )
    if kind == "tradeoff":
        axis.axvline(1, color="black", linestyle=":", linewidth=0.7, zorder=0)
    else:
        _levels(axis, group)
    axis.set_title(f"{name} ({group[0]['n_examples']} examples)", fontsize=10)
    axis.set_xlabel(label)
    axis.set_ylabel(groups.metric(group))
    axis.grid(alpha=0.25)


def _levels(axis: Any, group: list[Record]) -> None:
    """The quality of what drafts nothing and so has no rejection rate."""
    own = groups.reference(group)
    drafter = [r for r in group if r["decoding"]["method"] == "drafter"]
    cut = [r for r in group if r["decoding"]["method"] == "target" and r is not own]
    for records, colour, style, label in (
        (drafter, "#777777", ":", "drafter's quality"),
        (cut, "black", "-.", "target's best quality, truncated"),
    ):
        if records:
            level = max(map(groups.score, records))
            axis.axhline(level, color=colour, linestyle=style, linewidth=0.8, label=label)


def _series(group: list[Record]) -> dict[str, list[Record]]:
    """The families of the table, but lossless speculation cut by a filter of its own as one line along it."""
    own = groups.reference(group) or group[0]
    other = lambda r: any(r["decoding"][key] != own["decoding"][key] for key in groups.FILTERS)
    cut = [r for r in group if other(r) and _lossless(r)]
    return families([r for r in group if r not in cut]) | ({CUT: cut} if cut else {})


def _lossless(record: Record) -> bool:
    return record["decoding"]["method"] == "speculative" and record["decoding"]["rule"] == "lossless"


def _along(record: Record) -> tuple[float, ...]:
    d = record["decoding"]
    return (float(d["alpha"]), d["min_p"], -d["top_p"], d["top_k"])


def _line(axis: Any, family: str, points: list[tuple[float, Record]]) -> None:
    x, y = [p for p, _ in points], [groups.score(r) for _, r in points]
    bounds = [groups.interval(r) for _, r in points]
    # A percentile interval need not hold the estimate itself: a bar then starts at the point.
    down = [max(0, b - low) for b, (low, _) in zip(y, bounds, strict=True)]
    up = [max(0, high - b) for b, (_, high) in zip(y, bounds, strict=True)]
    style = _style(family, points[0][1])
    axis.errorbar(
        x,
        y,
        yerr=[down, up],
        label=family,
        linewidth=1.3,
        elinewidth=0.5,
        ecolor=style["color"] + "50",
        **style,
    )


def _style(family: str, record: Record) -> dict[str, Any]:
    from spec_cascades.report.plot import COLOURS, OTHERS  # matplotlib

    d = record["decoding"]
    if family == TARGET:
        return {"color": "#000000", "marker": "*", "markersize": 12, "zorder": 6}
    if family == TRUNCATED:
        return {
            "color": "#000000",
            "marker": "*",
            "markersize": 8,
            "markerfacecolor": "white",
            "linestyle": ":",
        }
    if d["method"] == "drafter":
        return {"color": "#777777", "marker": "D", "markersize": 7}
    if d["method"] in OTHERS:
        return {"color": OTHERS[d["method"]], "marker": "^", "markersize": 5, "linestyle": "--"}
    cut = {"markerfacecolor": "white", "linestyle": ":"} if family == CUT else {}
    marker = "s" if d["rule"] == "lossless" else "o"
    return {"color": COLOURS.get(d["rule"], "#17becf"), "marker": marker, "markersize": 5} | cut


def _legend(figure: Any, columns: int) -> None:
    """One for all panels."""
    found = {
        text: handle
        for axis in figure.axes
        for handle, text in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    look = {"loc": "outside lower center", "ncols": columns, "frameon": False, "fontsize": 8}
    figure.legend(found.values(), found.keys(), **look)
