"""Records as a table: on the terminal, in markdown and in CSV."""

import csv
import io
from collections.abc import Callable
from typing import Any, NamedTuple

from spec_cascades.report import groups
from spec_cascades.report.groups import Record
from spec_cascades.report.sheets import plain_markdown


class Column(NamedTuple):
    """A heading and how a record fills it; '-' stands for what was not measured."""

    heading: str
    cell: Callable[[Record], str]


def _number(value: float | None, pattern: str = "{:.2f}") -> str:
    return "-" if value is None else pattern.format(value)


def _quality(record: Record) -> str:
    if groups.score(record) is None:
        return "-"
    low, high = groups.interval(record)
    return f"{groups.score(record):.1f} [{low:.1f}, {high:.1f}]"


COLUMNS = (
    Column("point", lambda r: r["name"]),
    Column("BLEU [95 %]", _quality),
    Column("vs target", lambda r: _number(groups.difference(r), "{:+.1f}")),
    Column("chrF", lambda r: _number(r["quality"]["chrf"], "{:.1f}")),
    Column("rejected", lambda r: _number(r["rates"]["rejection_rate"])),
    Column("tokens / target call", lambda r: _number(r["tokens_per_target_call"])),
    Column("target calls", lambda r: _number(r["target_calls"], "{:.1f}")),
    Column("drafter calls", lambda r: _number(r["drafter_calls"], "{:.1f}")),
    Column("ms / answer (p50)", lambda r: _number(1000 * r["latency"]["p50"], "{:.1f}")),
    Column("speed-up", lambda r: _number(groups.speed_up(r))),
    Column("tokens", lambda r: _number(r["answer_tokens"], "{:.1f}")),
)


def _seconds(key: str, part: str) -> Callable[[Record], str]:
    """Milliseconds of one of a record's times, which older records lack."""
    return lambda r: _number(_milli((r.get(key) or {}).get(part)), "{:.1f}")


def _milli(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds


FURTHER = (
    Column("p90", _seconds("latency", "p90")),
    Column("GFLOP / answer", lambda r: _number(r.get("gflops_per_answer"), "{:.2f}")),
)
"""What only the page has room for."""
NEWER = (
    Column("p99", _seconds("latency", "p99")),
    Column("ms to first token (p50)", _seconds("time_to_first_token", "p50")),
    Column("p99 to first", _seconds("time_to_first_token", "p99")),
    Column("ms / output token (p50)", _seconds("time_per_output_token", "p50")),
    Column("GB / answer", lambda r: _number(r.get("gbytes_per_answer"), "{:.2f}")),
)
"""What older records lack: columns of a group in which at least one record has them."""
BRIEF = tuple(c for c in COLUMNS if c.heading not in ("chrF", "target calls", "drafter calls"))
"""What fits a terminal."""
LEGEND = (
    "BLEU with a 95 % bootstrap interval over sentences; vs target: BLEU less that of the target alone; "
    "rejected: drafts rejected of those judged; calls and tokens are means per answer; speed-up: median over "
    "batches of the target alone's time over the point's, measured in turns."
)


def filled(columns: tuple[Column, ...], records: list[Record]) -> tuple[Column, ...]:
    """The columns that at least one record fills."""
    return tuple(c for c in columns if any(c.cell(r) != "-" for r in records))


def fitting(columns: tuple[Column, ...], records: list[Record]) -> list[Column]:
    """The columns with the records' own metric; chrF goes with BLEU."""
    name = groups.metric(records)
    if name == "BLEU":
        return list(columns)
    kept = [c for c in columns if c.heading != "chrF"]
    return [c._replace(heading=f"{name} [95 %]") if c.cell is _quality else c for c in kept]


def show(records: list[Record]) -> None:
    """Prints one table a group."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console.width = 160  # a file or a pipe has no width, and a wrapped table cannot be read
    for title, group in groups.split(records).items():
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
        columns = fitting(BRIEF, group)
        for column in columns:
            first = column is columns[0]
            table.add_column(column.heading, justify="left" if first else "right", no_wrap=first)
        for record in group:
            table.add_row(*(column.cell(record) for column in columns))
        console.print(table)


def markdown(records: list[Record]) -> str:
    """One markdown table a group, and what the columns mean."""
    parts = []
    for title, group in groups.split(records).items():
        columns = fitting(COLUMNS + filled(NEWER, group), group)
        rule = ["---", *["---:"] * (len(columns) - 1)]
        rows = [
            [c.heading for c in columns],
            rule,
            *([plain_markdown(c.cell(r)) for c in columns] for r in group),
        ]
        body = "\n".join("| " + " | ".join(row) + " |" for row in rows)
        parts.append(f"### {title} ({group[0]['n_examples']} examples)\n\n{body}\n")
    return "\n".join([*parts, legend(records), ""])


def legend(records: list[Record]) -> str:
    """What the columns mean, with the records' own metric."""
    return LEGEND.replace("BLEU", groups.metric(records))


def csv_text(records: list[Record]) -> str:
    """Every scalar of every record, one column a dotted key, unrounded, but for those of single examples."""
    flat = [dict(_flatten({k: v for k, v in r.items() if k != "per_example"})) for r in records]
    keys = list(dict.fromkeys(key for row in flat for key in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, keys, lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return out.getvalue()


def _flatten(value: Any, where: str = "") -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [p for key, v in value.items() for p in _flatten(v, f"{where}.{key}" if where else key)]
    if isinstance(value, list):
        return [p for i, v in enumerate(value) for p in _flatten(v, f"{where}.{i}")]
    return [(where, value)]
