"""What needs no score: time per answer by percentile, acceptance by position, and rules over tasks."""

from pathlib import Path
from typing import Any

from spec_cascades.report import groups
from spec_cascades.report.groups import Record
from spec_cascades.report.plot import COLOURS, canvas
from spec_cascades.report.steady import Standing

TIMES = {
    "p50": ("o", "#0072b2", "median"),
    "p90": ("|", "#0072b2", "90 %"),
    "p99": ("x", "#d55e00", "99 %"),
}
FIRST = ("D", "#009e73", "first token, median")


def draw_latency(records: list[Record], path: Path) -> None:
    """Writes a PNG: a row a point, its times per answer and, where known, to the first token."""
    by_group = groups.split(records)
    figure, axes = canvas([len(group) for group in by_group.values()], 0.24)
    for axis, (title, group) in zip(axes, by_group.items(), strict=True):
        _times(axis, title, group)
    _level(axes)
    handles = {text: h for axis in axes for h, text in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(path)


def draw_acceptance(records: list[Record], path: Path) -> None:
    """Writes a PNG: a row a point, a column a position of the draft, the share of judged drafts accepted."""
    drafted = {t: found for t, g in groups.split(records).items() if (found := _drafted(g))}
    figure, axes = canvas([len(group) for group in drafted.values()], 0.27)
    for axis, (title, group) in zip(axes, drafted.items(), strict=True):
        _heat(axis, title, group)
    _level(axes)
    figure.savefig(path)


def drafts(records: list[Record]) -> bool:
    """Whether any point judged a draft."""
    return bool(_drafted(records))


def draw_tasks(found: list[Standing], path: Path) -> None:
    """Writes a PNG: a row a rule, its time at the target's quality on each task, the whole span as a line."""
    figure, (axis,) = canvas([max(4, len(found))], 0.32)
    tasks = list(dict.fromkeys(title for s in found for title in s.at))
    for row, standing in enumerate(found):
        axis.plot([min(standing.times), standing.worst], [row, row], color="#bbbbbb", linewidth=3, zorder=1)
    for k, task in enumerate(tasks):
        look = {"marker": "osD^vP"[k % 6], "color": list(COLOURS.values())[4 + k % 8], "zorder": 2}
        rows = [i for i, s in enumerate(found) if task in s.at]
        times = [1.0 if found[i].at[task] is None else groups.time(found[i].at[task]) for i in rows]
        aside = 0.3 * (k - (len(tasks) - 1) / 2) / len(tasks)  # no marker hides another
        axis.scatter(times, [row + aside for row in rows], label=task, s=42, **look)
    _rows(axis, [s.rule for s in found])
    axis.axvline(1, color="black", linestyle=":", linewidth=0.9)
    axis.set_xlabel(
        "time per answer / target alone at the target's quality (1: not kept, so the target is run)"
    )
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    figure.savefig(path)


def _times(axis: Any, title: str, group: list[Record]) -> None:
    for row, record in enumerate(group):
        known = [1000 * record["latency"][key] for key in TIMES if key in record["latency"]]
        axis.plot([min(known), max(known)], [row, row], color="#bbbbbb", linewidth=1.5, zorder=1)
    for key, (marker, colour, text) in TIMES.items():
        _dots(axis, [(r["latency"].get(key), i) for i, r in enumerate(group)], marker, colour, text)
    firsts = [((r.get("time_to_first_token") or {}).get("p50"), i) for i, r in enumerate(group)]
    _dots(axis, firsts, *FIRST)
    _rows(axis, [r["name"] for r in group])
    target = groups.target_alone(group)
    if target is not None:
        axis.axvline(1000 * target["latency"]["p50"], color="black", linestyle=":", linewidth=0.9)
    axis.set_xlim(left=0)
    axis.set_title(title, fontsize=11)
    axis.set_xlabel("ms per answer" + (" (dotted: the target alone's median)" if target else ""))


def _dots(axis: Any, at: list[tuple[float | None, int]], marker: str, colour: str, text: str) -> None:
    known = [(1000 * seconds, row) for seconds, row in at if seconds is not None]
    if known:
        axis.scatter(*zip(*known, strict=True), marker=marker, color=colour, label=text, s=34, zorder=2)


def _rows(axis: Any, names: list[str]) -> None:
    """Names down the left side, the first on top; a dollar sign in a name is no formula."""
    axis.set_yticks(range(len(names)), [_cut(n).replace("$", r"\$") for n in names], fontsize=8)
    axis.set_ylim(len(names) - 0.4, -0.6)
    axis.grid(axis="x", alpha=0.25)


def _level(axes: list[Any]) -> None:
    """Rows of two panels beside each other at the same height."""
    for i in range(0, len(axes), 2):
        low = max(axis.get_ylim()[0] for axis in axes[i : i + 2])
        for axis in axes[i : i + 2]:
            axis.set_ylim(low, axis.get_ylim()[1])


def _cut(name: str) -> str:
    return name if len(name) <= 44 else name[:43] + "…"


def _heat(axis: Any, title: str, group: list[Record]) -> None:
    gamma = max(len(r["rates"]["acceptance_by_position"]) for r in group)
    for row, record in enumerate(group):
        for column, rate in enumerate(record["rates"]["acceptance_by_position"]):
            if rate is not None:
                _cell(axis, row, column, rate)
    _rows(axis, [r["name"] for r in group])
    axis.grid(visible=False)
    axis.set_xticks(range(gamma), [str(i + 1) for i in range(gamma)])
    axis.set_xlim(-0.5, gamma - 0.5)
    axis.set_ylim(len(group) - 0.5, -0.5)
    axis.xaxis.tick_top()
    axis.xaxis.set_label_position("top")
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    axis.set_title(title, fontsize=11)
    axis.set_xlabel("position in the block: share of judged drafts accepted")


def _cell(axis: Any, row: int, column: int, rate: float) -> None:
    from matplotlib import colormaps

    axis.fill_between(
        [column - 0.48, column + 0.48], row - 0.46, row + 0.46, color=colormaps["cividis"](rate), linewidth=0
    )
    ink = "white" if rate < 0.55 else "black"
    axis.text(column, row, f"{rate:.2f}", ha="center", va="center", fontsize=8, color=ink)


def _drafted(group: list[Record]) -> list[Record]:
    return [r for r in group if r["rates"].get("acceptance_by_position")]
