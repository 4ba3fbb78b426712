"""Latency, time to first token and cost against the request rate: a row of panels an arrival process."""

from pathlib import Path
from typing import Any

from spec_cascades.simulate import summary
from spec_cascades.simulate.curves import Row

COLOURS = ("#444444", "#0072b2", "#d62728", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#8c564b")


def draw(rows: list[Row], path: Path) -> None:
    """Writes a PNG of few colours, a quarter as large. Needs matplotlib."""
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image  # matplotlib depends on it

    processes = list(dict.fromkeys(row["arrivals"] for row in rows))
    figure = Figure(figsize=(13, 0.9 + 3.6 * len(processes)), dpi=80, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    grid = figure.subplots(len(processes), 3, squeeze=False)
    for axes, process in zip(grid, processes, strict=True):
        _process(axes, process, [row for row in rows if row["arrivals"] == process])
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)), frameon=False)
    canvas.draw()
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB").quantize(64).save(path, optimize=True)


def _process(axes: Any, process: str, rows: list[Row]) -> None:
    """Latency, time to first token, cost; solid p50 (or the cost), dashed p99."""
    for colour, name in zip(_colours(rows), dict.fromkeys(row["point"] for row in rows), strict=True):
        line = summary.of(rows, name)
        for axis, key in zip(axes, ("latency", "first_token"), strict=False):
            _line(axis, line, [1e3 * r[key]["p50"] for r in line], colour, "-", name)
            _line(axis, line, [1e3 * r[key]["p99"] for r in line], colour, "--", None)
        _line(axes[2], line, [1e3 * r["busy_seconds_per_answer"] for r in line], colour, "-", name)
    ylabels = ("latency, ms (- p50, -- p99)", "time to first token, ms (- p50, -- p99)", "busy ms per answer")
    for axis, ylabel in zip(axes, ylabels, strict=True):
        axis.set(xlabel="requests a second", ylabel=ylabel, title=f"{process}, {rows[0]['servers']} servers")
        axis.set_xlim(left=0)
        axis.grid(alpha=0.25)
    for axis in axes[:2]:
        axis.set_yscale("log")
    axes[2].set_ylim(bottom=0)


def _colours(rows: list[Row]) -> list[str]:
    n = len({row["point"] for row in rows})
    return [COLOURS[i % len(COLOURS)] for i in range(n)]


def _line(axis: Any, line: list[Row], values: list[float], colour: str, style: str, name: str | None) -> None:
    """Up to the first rate at which the point is full; that one is marked by a cross, the rest left out."""
    full = next((i for i, row in enumerate(line) if row["saturated"]), len(line) - 1)
    shown = slice(0, full + 1)
    rates = [row["rate"] for row in line]
    axis.plot(rates[shown], values[shown], style, color=colour, label=name, linewidth=1.6, markersize=3.5)
    if line[full]["saturated"]:
        axis.plot(rates[full], values[full], "x", color=colour, markersize=7)
