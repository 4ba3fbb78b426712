"""An experiment's sweeps one after the other, and what they show: `reproduce`."""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from spec_cascades import runlog, sweep
from spec_cascades.config import ConfigError, plain
from spec_cascades.metrics.scoring import Check
from spec_cascades.report import groups
from spec_cascades.reproduce.experiment import Experiment, columns
from spec_cascades.reproduce.figures import draw
from spec_cascades.tradeoffs import TwoNumbers, table2, two_numbers

Record = dict[str, Any]
NUMBERS = "table2.jsonl"


def run(
    experiment: Experiment,
    engine: sweep.Runner | None = None,
    check: Check | None = None,
    each: Callable[..., Any] = sweep.run,
) -> None:
    """Runs what is not yet done of every column; one bar counts the batches of all of them.

    each: runs a column's sweep, called as `sweep.run` is; `hosts.running.run` does in many processes.
    Each column's run folder is that of its sweep, so that a kill at any moment loses and repeats nothing.
    Raises ConfigError as `sweep.run`; the examples of all columns are read before the first one runs.
    """
    todo = columns(experiment)
    sizes = [sweep.batches(column.sweep) for column in todo]
    for i, column in enumerate(todo):
        label = f"{column.name} ({i + 1} of {len(todo)})"
        print(f"spec-cascades: {label}: {column.folder}", file=sys.stderr)
        each(column.sweep, engine, check, sweep.Bar(label, sum(sizes[:i]), sum(sizes[i + 1 :])))


def gather(experiment: Experiment) -> list[Record]:
    """The records of all columns, each with the name of its "column", which OUT/records.jsonl then holds.

    Raises ConfigError naming a column that is not finished.
    """
    found = []
    for column in columns(experiment):
        try:
            records = runlog.read_records(column.folder)
        except ConfigError as error:
            raise ConfigError(f"{column.name}: {error}") from None
        found += [{"column": column.name} | record for record in records]
    runlog.write_records(Path(experiment.output) / runlog.RECORDS, found)
    return found


def by_panel(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Records that may be compared: of one column and one group, by the names of both where they need it."""
    panels: dict[str, list[Record]] = {}
    for column in dict.fromkeys(record["column"] for record in records):
        split = groups.split([r for r in records if r["column"] == column])
        panels |= {column if len(split) == 1 else f"{column}, {title}": g for title, g in split.items()}
    return panels


# ------------------------------------------------------------------------------------------
# Table 2


def numbers(experiment: Experiment, check: Check | None = None) -> dict[str, list[TwoNumbers]]:
    """The two numbers of every method in every column, from the logs; OUT/table2.jsonl then holds them."""
    found: dict[str, list[TwoNumbers]] = {}
    for column in columns(experiment):
        own = two_numbers(column.folder, experiment.slack, check)
        found |= {column.name if len(own) == 1 else f"{column.name}, {title}": n for title, n in own.items()}
    write_numbers(Path(experiment.output) / NUMBERS, found)
    return found


def write_numbers(path: Path, found: dict[str, list[TwoNumbers]]) -> None:
    """One line a method and column; single examples' scores are left out of the records."""
    brief = lambda record: record and {k: v for k, v in record.items() if k != "per_example"}
    rows = [
        {"column": title, "method": n.method, "fastest": brief(n.fastest), "best": brief(n.best)}
        for title, group in found.items()
        for n in group
    ]
    lines = [json.dumps(plain(row), ensure_ascii=False, allow_nan=False) for row in rows]
    runlog.write_atomically(path, "\n".join(lines) + "\n")


def read_numbers(path: Path) -> dict[str, list[TwoNumbers]]:
    """What `write_numbers` wrote."""
    found: dict[str, list[TwoNumbers]] = {}
    for row in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        found.setdefault(row["column"], []).append(TwoNumbers(row["method"], row["fastest"], row["best"]))
    return found


# ------------------------------------------------------------------------------------------
# What is shown


def show(experiment: Experiment, check: Check | None = None) -> list[Path]:
    """Prints the table in the paper's layout, or draws the figure and prints its points; returns the files.

    Reads finished runs alone, so that it can be repeated at any time. Raises ConfigError as `gather`.
    """
    from spec_cascades.report import table

    records, folder = gather(experiment), Path(experiment.output)
    print(f"{experiment.title}\n")
    if experiment.kind == "table2":
        text = table2(numbers(experiment, check))
        print(text)
        runlog.write_atomically(folder / "table2.md", f"{experiment.title}\n\n{text}")
        return [folder / "table2.md", folder / NUMBERS, folder / runlog.RECORDS]
    panels = by_panel(records)
    for title, group in panels.items():
        print(f"{title}\n")
        table.show(group)
    return [*_drawn(panels, experiment), folder / runlog.RECORDS]


def _drawn(panels: dict[str, list[Record]], experiment: Experiment) -> list[Path]:
    path = Path(experiment.output) / f"{experiment.kind}.png"
    try:
        return [path] if draw(panels, experiment.kind, experiment.title, path) else []
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        print("no figure: matplotlib is not installed (pip install 'spec-cascades[plot]')", file=sys.stderr)
        return []
