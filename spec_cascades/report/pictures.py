"""The PNGs of a report: their names, what they say in words, and who draws them."""

import base64
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from spec_cascades.report import groups, steady
from spec_cascades.report.groups import Record
from spec_cascades.report.runs import Part, Setting

CAPTIONS = {
    "": "Quality against time per answer, a line along alpha, bars of 95 %",
    "rejection": "Quality against rejection rate, a line along alpha, bars of 95 %",
    "pareto": "The Pareto front: what no other point beats in quality without taking longer",
    "latency": "Time per answer of every point, by percentile",
    "acceptance": "Drafts accepted of those judged, by position in the block",
}
"""What a picture of each kind shows; the kind is in its file's name."""
SCORED = ("", "rejection", "pareto")
"""Kinds that need a score."""


class Picture(NamedTuple):
    """part: the title it belongs to. panels: how many are side by side at most."""

    path: Path
    part: str
    caption: str
    alt: str
    panels: int

    def data(self) -> str:
        """The PNG in base64."""
        return base64.b64encode(self.path.read_bytes()).decode()


def draw(found: list[Part], folder: Path, kinds: Sequence[str]) -> list[Picture]:
    """Writes each kind that a part's records allow: report.png, report_pareto.png; of several parts
    report_TASK.png, report_TASK_pareto.png. Raises ModuleNotFoundError without matplotlib.
    """
    from spec_cascades.report import figures, plot

    draws = {"": plot.draw, "rejection": plot.draw_rejection, "pareto": plot.draw_front}
    draws |= {"latency": figures.draw_latency, "acceptance": figures.draw_acceptance}
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for stem, part in zip(stems([p.title for p in found]), found, strict=True):
        for kind in kinds:
            if _allowed(kind, part.records):
                path = folder / f"{'_'.join(x for x in (stem, kind) if x)}.png"
                draws[kind](part.records, path)
                made.append(_picture(kind, path, part))
    return made


def draw_settings(found: list[Setting], folder: Path) -> list[Picture]:
    """Writes report_tasks.png, or report_tasks_1.png and so on, of settings with two tasks or more."""
    from spec_cascades.report import figures

    made = []
    judged = [(s, tasks) for s in found if len(tasks := steady.judged(s)) > 1]
    for i, (setting, tasks) in enumerate(judged, 1):
        standings = [s for half in steady.standings(tasks) for s in half]
        path = folder / ("report_tasks.png" if len(judged) == 1 else f"report_tasks_{i}.png")
        figures.draw_tasks(standings, path)
        caption = f"Time per answer at the target's quality, rule by rule, over {len(tasks)} tasks"
        alt = f"{caption}: {setting.title}. The same numbers are in the table of rules over tasks."
        made.append(Picture(path, setting.title, caption, alt, 1))
    return made


def stems(titles: list[str]) -> list[str]:
    """'report', or 'report_TASK' of several, each once."""
    if len(titles) == 1:
        return ["report"]
    slugs = [re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:48] for title in titles]
    return [f"report_{s}" if slugs.count(s) == 1 else f"report_{s}_{i}" for i, s in enumerate(slugs, 1)]


def _allowed(kind: str, records: list[Record]) -> bool:
    if kind in SCORED and any(groups.score(r) is None for r in records):
        return False
    return kind not in ("rejection", "acceptance") or any(
        r["rates"].get("acceptance_by_position") for r in records
    )


def _picture(kind: str, path: Path, part: Part) -> Picture:
    by_group = groups.split(part.records)
    told = "; ".join(f"{title}, {len(group)} points" for title, group in by_group.items())
    alt = f"{CAPTIONS[kind]}: {part.title} ({told}). The same numbers are in the tables of this section."
    return Picture(path, part.title, CAPTIONS[kind], alt, min(2, len(by_group)))
