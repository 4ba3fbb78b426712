"""Records to a table, a plot and two plain lines. Reads records only: no model, no device, no jax."""

from pathlib import Path
from typing import Any

from spec_cascades.report import groups, summary, table


def show(records: list[dict[str, Any]]) -> None:
    """Prints the table and the summary."""
    table.show(records)
    print("\n".join(summary.lines(records)))


def write(records: list[dict[str, Any]], folder: Path) -> list[Path]:
    """Writes report.md, report.csv and, where matplotlib is installed, report.png; returns their paths.

    Records without a score have no picture.
    """
    from spec_cascades.runlog import write_atomically

    markdown, csv, png = (folder / f"report.{suffix}" for suffix in ("md", "csv", "png"))
    scored = all(groups.score(record) is not None for record in records)
    picture = _draw(records, png) if scored else []
    parts = [*summary.lines(records), "", table.markdown(records)]
    if picture:
        parts.append(f"![quality against time per answer]({png.name})\n")
    write_atomically(markdown, "\n".join(parts))
    write_atomically(csv, table.csv_text(records))
    return [markdown, csv, *picture]


def _draw(records: list[dict[str, Any]], path: Path) -> list[Path]:
    try:
        from spec_cascades.report.plot import draw
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        print("no plot: matplotlib is not installed (pip install 'spec-cascades[plot]')")
        return []
    path.parent.mkdir(parents=True, exist_ok=True)
    draw(records, path)
    return [path]
