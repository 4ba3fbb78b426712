"""Queueing under load, from measured call times and logged answers: no model, no device, no jax.

Time is simulated: a server is a device on which the call times were measured, and an answer takes the steps
that a run's log says it took.
"""

from pathlib import Path
from typing import Any, NamedTuple

from spec_cascades.checks import ConfigError
from spec_cascades.config import HELD
from spec_cascades.simulate.curves import Row
from spec_cascades.simulate.settings import Simulate

CURVES, AGREEMENT, PICTURE = "simulate.jsonl", "agreement.jsonl", "simulate.png"


class Result(NamedTuple):
    """rows: of `curves.curve`; agreement: of `curves.agreement`; methods: each point's; about: in words."""

    rows: list[Row]
    agreement: list[Row]
    methods: dict[str, str]
    about: str


def run(asked: Simulate) -> Result:
    """Every point at every rate. Raises ConfigError where log and call times do not belong together."""
    from spec_cascades.progress import progress
    from spec_cascades.simulate import costs, curves, summary, traces

    table = costs.read(Path(asked.call_times))
    sweep, found = traces.read(Path(asked.run), asked.points)
    _matching(asked, table, sweep.models)
    total = len(found) * len(asked.arrivals) * len(asked.rates)
    rows: list[Row] = []
    with progress("simulations", total) as advance:
        for trace in found:
            rows += curves.curve(asked, trace, table, advance)
    agreement = [row for trace in found if (row := curves.agreement(asked, trace, table)) is not None]
    methods = {trace.name: trace.decoding.method for trace in found}
    return Result(rows, agreement, methods, summary.notes(table.record))


def _matching(asked: Simulate, table: Any, models: Any) -> None:
    for role in ("target", "drafter", "dtype", *HELD):
        own, measured = getattr(models, role), table.record["models"].get(role, HELD.get(role))
        if own != measured:
            raise ConfigError(f"call_times: measured with {role} {measured!r}, but the run has {own!r}")
    if asked.max_batch > table.largest:
        raise ConfigError(
            f"max_batch: {asked.max_batch!r} must be {table.largest} or less, the largest batch measured in "
            f"{asked.call_times}"
        )


def show(result: Result) -> None:
    """Prints the tables and the sentences."""
    from spec_cascades.simulate import summary, table

    if result.agreement:
        table.show("one request at a time, ms", table.AGREEMENT, result.agreement)
    for process in dict.fromkeys(row["arrivals"] for row in result.rows):
        rows = [row for row in result.rows if row["arrivals"] == process]
        table.show(f"{process} arrivals, {rows[0]['servers']} servers, ms", table.CURVES, rows)
    print("\n".join([table.LEGEND, result.about, *summary.lines(result.rows, result.methods)]))


def write(result: Result, folder: Path) -> list[Path]:
    """Writes the rows as JSON lines and, where matplotlib is installed, the plot; returns their paths."""
    from spec_cascades.runlog import write_records
    from spec_cascades.simulate import plot

    curves, agreement, picture = (folder / name for name in (CURVES, AGREEMENT, PICTURE))
    write_records(curves, result.rows)
    written = [curves]
    if result.agreement:
        write_records(agreement, result.agreement)
        written.append(agreement)
    try:
        plot.draw(result.rows, picture)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        print("no plot: matplotlib is not installed (pip install 'spec-cascades[plot]')")
        return written
    return [*written, picture]
