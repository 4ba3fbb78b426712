"""Small labels beside points, moved out of one another's way. Works on any matplotlib axes."""

from itertools import pairwise
from typing import Any, NamedTuple

DISTANCES = (9, 13, 20, 28)
"""Points (1/72 inch) from the marker, the nearest tried first."""
SIDES = ((1, 0.6), (-1, 0.6), (1, -0.9), (-1, -0.9), (0, 1), (0, -1.2), (1, 0), (-1, 0))


class Label(NamedTuple):
    """A text beside data point (x, y)."""

    text: str
    x: float
    y: float
    colour: str


class Box(NamedTuple):
    """In pixels."""

    left: float
    low: float
    right: float
    high: float

    def overlap(self, other: "Box") -> float:
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.high, other.high) - max(self.low, other.low)
        return max(0.0, width) * max(0.0, height)


def place(axis: Any, labels: list[Label], lines: list[Any], size: float = 7.5) -> None:
    """Writes each label at the first of its places that is free, else where it covers least.

    lines: arrays [points, 2] in data coordinates, which no label should cover. Call it once the layout is
    settled.
    """
    scale = axis.figure.dpi / 72
    to_pixels = axis.transData.transform
    taken = [box for line in lines for box in _boxes(to_pixels(line), scale)]
    window = axis.get_window_extent()
    for label in labels:
        x, y = to_pixels((label.x, label.y))
        width, height = 0.6 * size * len(label.text) * scale, 1.2 * size * scale
        found = []
        for far in DISTANCES:
            for right, up in SIDES:
                box = _box(x + right * far * scale, y + up * far * scale, right, width, height)
                found.append((_cost(box, taken, window), far, right, up, box))
        _, far, right, up, box = min(found, key=lambda f: f[:2])
        taken.append(box)
        _write(axis, label, size, far, right, up)


def _write(axis: Any, label: Label, size: float, far: float, right: int, up: float) -> None:
    """A label far from its point has a thin line to it."""
    from matplotlib.patheffects import withStroke

    axis.annotate(
        label.text,
        (label.x, label.y),
        (right * far, up * far),
        textcoords="offset points",
        ha={1: "left", -1: "right", 0: "center"}[right],
        va="center",
        fontsize=size,
        color=label.colour,
        path_effects=[withStroke(linewidth=2, foreground="white")],
        arrowprops={"arrowstyle": "-", "color": label.colour, "linewidth": 0.5} if far > 13 else None,
    )


def _boxes(line: Any, scale: float) -> list[Box]:
    """A box for each marker of a line [points, 2] in pixels, and small ones along it."""
    wide, thin = 5 * scale, 1 * scale
    found = [Box(x - wide, y - wide, x + wide, y + wide) for x, y in line]
    for (x0, y0), (x1, y1) in pairwise(line):
        steps = int(max(abs(x1 - x0), abs(y1 - y0)) // (4 * scale)) + 1
        for k in range(steps):
            x, y = x0 + (x1 - x0) * k / steps, y0 + (y1 - y0) * k / steps
            found.append(Box(x - thin, y - thin, x + thin, y + thin))
    return found


def _box(x: float, y: float, right: int, width: float, height: float) -> Box:
    left = x - width * (1 - right) / 2
    return Box(left, y - height / 2, left + width, y + height / 2)


def _cost(box: Box, taken: list[Box], window: Any) -> float:
    """Pixels covered, those outside the axes too."""
    inside = Box(window.x0, window.y0, window.x1, window.y1)
    area = (box.right - box.left) * (box.high - box.low)
    return area - box.overlap(inside) + sum(box.overlap(other) for other in taken)
