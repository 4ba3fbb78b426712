"""Records to a table, a page, plots and plain lines. Reads records only: no model, no device, no jax."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spec_cascades.report import pictures, summary, table
from spec_cascades.report.pictures import Picture

NO_PLOT = "no plot: matplotlib is not installed (pip install 'spec-cascades[plot]')"


def show(records: list[dict[str, Any]]) -> None:
    """Prints the table and the summary, task by task."""
    from spec_cascades.report import over_tasks, runs

    found = runs.parts(records)
    for part in found:
        if len(found) > 1:
            print(f"{part.title}  ({part.models}; {part.file})\n")
        table.show(part.records)
        print("\n".join(summary.all_lines(part.records)) + ("\n" if len(found) > 1 else ""))
    if len(found) > 1:
        print("\n".join(over_tasks.answers(runs.settings(found))))


def write(
    records: list[dict[str, Any]], folder: Path, kinds: Sequence[str] = ("",), page: str | None = None
) -> list[Path]:
    """Writes report.md, report.csv and, where matplotlib is installed, PNGs; returns the paths.

    kinds: of pictures (`pictures.CAPTIONS`); those that need a score are left out where there is none. page:
    the command that is shown in report.html, which is written (with report.tex) only where it is given.
    Raises ConfigError where runs of one task are not comparable.
    """
    from spec_cascades.report import book, runs
    from spec_cascades.report import page as pages
    from spec_cascades.runlog import write_atomically

    found = runs.parts(records)
    told = book.book(found, runs.settings(found))
    drawn = _draw(told, folder, kinds, over=page is not None)
    texts = {"md": book.markdown(told, drawn or []), "csv": table.csv_text(records)}
    if page is not None:
        texts |= {"tex": book.latex(told), "html": pages.html(told, drawn, page)}
    paths = [folder / f"report.{suffix}" for suffix in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        write_atomically(path, text)
    return [*paths, *(picture.path for picture in drawn or [])]


def publish(records: list[dict[str, Any]], folder: Path, command: str) -> list[Path]:
    """Writes what `write` does with every kind of picture, report.tex and the page report.html."""
    return write(records, folder, tuple(pictures.CAPTIONS), command)


def _draw(told: Any, folder: Path, kinds: Sequence[str], over: bool) -> list[Picture] | None:
    """The pictures, None where they cannot be drawn."""
    try:
        drawn = pictures.draw(told.parts, folder, kinds)
        return drawn + (pictures.draw_settings(told.settings, folder) if over else [])
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        print(NO_PLOT)
        return None
