"""Process i of n runs shard i/n of a sweep on its own devices; process 0 makes the whole run of the shards.

A shard's log is OUT/shards/i-of-n on the disk that process i sees, so that a killed process goes on with it.
Logs travel to process 0 through jax: the processes need not share a file system.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from spec_cascades import merging, runlog
from spec_cascades import sweep as sweeps
from spec_cascades.checks import ConfigError
from spec_cascades.config import Sweep
from spec_cascades.hosts import gathering
from spec_cascades.metrics.scoring import Check
from spec_cascades.tasks.asked import ask

SHARDS = "shards"


def run(
    sweep: Sweep, engine: sweeps.Runner | None, check: Check | None, bar: sweeps.Bar
) -> list[dict[str, Any]]:
    """The whole run's records from process 0, [] from the others; `running.run` has the rest."""
    i, n = gathering.place()
    with gathering.together():
        _check(sweep, n)
    with gathering.together():
        work = sweeps.prepared(_shard(sweep, i, n))
        with runlog.opened(Path(work.sweep.output), work.identity) as log:
            sweeps.answer(work, log, engine, bar._replace(label=f"{bar.label}, process {i} of {n}"))
    _collect(sweep, n)
    records: list[dict[str, Any]] = []
    with gathering.together():  # the others stay until process 0 has written: who leaves ends the run for all
        if gathering.lead():
            folders = [Path(_shard(sweep, k, n).output) for k in range(n)]
            records = merging.merge(folders, Path(sweep.output), check)
    return records


def _shard(sweep: Sweep, i: int, n: int) -> Sweep:
    folder = Path(sweep.output) / SHARDS / f"{i}-of-{n}"
    return replace(sweep, task=replace(sweep.task, shard=f"{i}/{n}"), output=str(folder))


def _check(sweep: Sweep, n: int) -> None:
    """Raises ConfigError before any work for what could not be divided, or not be merged into OUT."""
    if sweep.task.shard is not None:
        raise ConfigError(
            f"task.shard: {sweep.task.shard!r}, but processes divide the examples: leave it out"
        )
    total = len(ask(sweep.task, sweep.models.chat).examples)
    if total < n:
        raise ConfigError(f"examples: {total}, which cannot be divided among {n} processes")
    out = Path(sweep.output)
    if gathering.lead() and (out / runlog.EXAMPLES).exists() and not (out / SHARDS).exists():
        raise ConfigError(f"output: {out} holds the run of a single process; go on with one, or give another")


def _collect(sweep: Sweep, n: int) -> None:
    """Every shard's configuration and log, beside process 0's own where they are not there already."""
    i, _ = gathering.place()
    for name in (runlog.CONFIG, runlog.EXAMPLES):
        own = (Path(_shard(sweep, i, n).output) / name).read_bytes()
        for k, data in enumerate(gathering.gather(own)):
            path = Path(_shard(sweep, k, n).output) / name
            if gathering.lead() and not (path.is_file() and path.read_bytes() == data):
                runlog.write_atomically(path, data)
