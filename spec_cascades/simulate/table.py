"""Rows as tables on the terminal."""

from collections.abc import Callable
from typing import Any, NamedTuple

from spec_cascades.simulate.curves import Row


class Column(NamedTuple):
    """A heading and how a row fills it."""

    heading: str
    cell: Callable[[Row], str]


def _ms(key: str, which: str) -> Callable[[Row], str]:
    return lambda row: f"{1e3 * row[key][which]:.1f}"


def _bleu(row: Row) -> str:
    bleu = (row["quality"] or {}).get("bleu")
    return "-" if bleu is None else f"{bleu:.1f}"


CURVES = (
    Column("point", lambda r: r["point"]),
    Column("BLEU", _bleu),
    Column("requests/s", lambda r: f"{r['rate']:g}{' full' * r['saturated']}"),
    Column("of capacity", lambda r: f"{r['rate'] / r['capacity']:.2f}"),
    *(Column(which, _ms("latency", which)) for which in ("mean", "p50", "p90", "p99")),
    Column("first token mean", _ms("first_token", "mean")),
    Column("p99", _ms("first_token", "p99")),
    Column("in line", _ms("waiting", "mean")),
    Column("busy ms/answer", lambda r: f"{1e3 * r['busy_seconds_per_answer']:.2f}"),
    Column("utilisation", lambda r: f"{r['utilisation']:.2f}"),
    Column("rows", lambda r: f"{r['rows_in_batch']:.1f}"),
)
AGREEMENT = (
    Column("point", lambda r: r["point"]),
    Column("answers", lambda r: str(r["answers"])),
    Column("measured mean", _ms("measured", "mean")),
    Column("simulated mean", _ms("simulated", "mean")),
    Column("measured p50", _ms("measured", "p50")),
    Column("simulated p50", _ms("simulated", "p50")),
    Column("simulated / measured", lambda r: f"{r['mean_ratio']:.3f}"),
    Column("median of ratios", lambda r: f"{r['median_ratio']:.3f}"),
)
LEGEND = (
    "Times in ms. In line: mean time before a request joins a batch. Busy: server time per answer. Rows: "
    "mean batch while busy. Full: at or beyond capacity, where waits grow with the number of requests."
)


def show(title: str, columns: tuple[Column, ...], rows: list[Any]) -> None:
    """Prints one table, a line between points."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console.width = 190  # a file or a pipe has no width, and a wrapped table cannot be read
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column.heading, justify="left" if column is columns[0] else "right", no_wrap=True)
    for i, row in enumerate(rows):
        ends = i + 1 < len(rows) and rows[i + 1]["point"] != row["point"] and columns is CURVES
        table.add_row(*(column.cell(row) for column in columns), end_section=ends)
    console.print(table)
