"""All processes run the same batches of a sweep in step, over one mesh; process 0 alone knows files.

What is done already is what process 0's log says, so that no process waits in a collective that the others
skip.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from spec_cascades import runlog
from spec_cascades import sweep as sweeps
from spec_cascades.config import Sweep
from spec_cascades.hosts import gathering
from spec_cascades.metrics.scoring import Check

KEY = ("kind", "point", "repeat", "first")


class Echo:
    """A log that is process 0's to write: its lines without the answers."""

    def __init__(self, lines: list[dict[str, Any]]) -> None:
        self.lines = lines

    def append(self, line: dict[str, Any]) -> None:
        """Keeps what names the batch."""
        self.lines.append(_brief(line))


def run(
    sweep: Sweep, engine: sweeps.Runner | None, check: Check | None, bar: sweeps.Bar
) -> list[dict[str, Any]]:
    """The records from process 0, [] from the others; `running.run` has the rest."""
    records: list[dict[str, Any]] = []
    with gathering.together():
        work = sweeps.prepared(sweep)
    with _opened(Path(sweep.output), work.identity) as log:
        # Not `together`: a process that fails amid the others' collectives must go, and they with it.
        sweeps.answer(work, log, engine, bar)
        with gathering.together():
            if gathering.lead():
                records = sweeps.finished(work, log, check)
    return records


@contextmanager
def _opened(folder: Path, config: dict[str, Any]) -> Iterator[sweeps.Lines]:
    """Process 0's log of the folder; elsewhere an echo of it. What process 0 refuses, all do."""
    with ExitStack() as stack:
        log: sweeps.Lines = Echo([])
        with gathering.together():
            if gathering.lead():
                log = stack.enter_context(runlog.opened(folder, config))
        done = json.loads(gathering.share(json.dumps([_brief(line) for line in log.lines]).encode()))
        yield log if gathering.lead() else Echo(done)


def _brief(line: dict[str, Any]) -> dict[str, Any]:
    return {key: line[key] for key in KEY if key in line}
