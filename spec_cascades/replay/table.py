"""Priced points as a table."""

from typing import Any

LEGEND = (
    "acceptance: mean over the texts' positions of sum_v min(q, pi), exact for each prefix; rejected and "
    "tokens / target call: estimates past the first divergence (the recorded text goes on, not the rule's), "
    "+- one standard error over answers; measured: a sweep's figure, and the estimate less it."
)
HEADINGS = ("point", "acceptance", "rejected (est.)", "measured", "tokens / call (est.)", "measured")


def show(records: list[dict[str, Any]]) -> None:
    """Prints one row a point, and what the columns mean."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console.width = 140  # a pipe has no width, and a wrapped table cannot be read
    table = Table(box=box.SIMPLE_HEAD)
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading == "point" else "right", no_wrap=True)
    for record in records:
        table.add_row(*cells(record))
    console.print(table, markup=False)
    console.print(LEGEND, markup=False, highlight=False)


def cells(record: dict[str, Any]) -> list[str]:
    """A point as a row under `HEADINGS`."""
    row = [record["name"], f"{record['acceptance']:.3f}"]
    for name, error in (("rejection_rate", "rejection_error"), ("tokens_per_target_call", "tokens_error")):
        spread = "" if record[error] is None else f" +-{record[error]:.3f}"
        row += [f"{record[name]:.3f}{spread}", _measured(record["measured"], name)]
    return row


def _measured(measured: dict[str, Any] | None, name: str) -> str:
    if measured is None or measured[name] is None:
        return "-"
    return f"{measured[name]:.3f} ({measured['difference'][name]:+.3f})"
