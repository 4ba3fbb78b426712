"""Seconds of a pair as they were measured: a record of call times in place of a chip. Imports no jax."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spec_cascades.checks import ConfigError
from spec_cascades.config import HELD, Models
from spec_cascades.planning.speed import Pace
from spec_cascades.simulate import costs as looked_up
from spec_cascades.simulate.costs import Table


class Measured(NamedTuple):
    """`speed.Costs` from a record of `scripts/call_times.py` (or `bench_loop.py`), by interpolation.

    Between measured batches and numbers of tokens t(k, batch) is interpolated, beyond them refused. What a
    loop adds to its calls grows with the places of a block.
    """

    table: Table
    rows: int

    @property
    def most(self) -> int:
        return max(map(int, self.table.record["calls"]["target"])) - 1

    def call(self, role: str, k: int) -> float:
        measured = sorted(map(int, self.table.record["calls"][role]))
        if not measured[0] <= k <= measured[-1]:
            raise ConfigError(f"chip: {self.table.path} has no call of the {role} on {k} tokens")
        return float(np.interp(k, measured, [self.table.call(role, n, self.rows) for n in measured]))

    def alone(self, role: str) -> Pace:
        return self._pace(role)

    def block(self, lossless: bool, gamma: int) -> Pace:
        loop = self._pace("lossless" if lossless else "cascade")
        at = self.table.gamma
        added = loop.step - self._calls(lossless, at)
        return loop._replace(step=self._calls(lossless, gamma) + added * (gamma + 1) / (at + 1))

    def token(self, deferred: float) -> Pace:
        kept = self._pace("token_kept")
        first, later = (looked_up.called(self.table, self.rows, first) for first in (True, False))
        # An answer that defers at all pays for one first call.
        return Pace(kept.start + (first - later) * (deferred > 0), kept.step + deferred * later)

    def stages(self) -> tuple[Pace, Pace]:
        first, both = self._pace("sequence_kept"), self._pace("sequence_deferred")
        return first, Pace(both.start - first.start, both.step - first.step)

    def _calls(self, lossless: bool, gamma: int) -> float:
        drafter = self.call("drafter", 1)
        last = self.call("drafter", 2) - drafter if lossless else drafter
        return gamma * drafter + last + self.call("target", gamma + 1)

    def _pace(self, loop: str) -> Pace:
        return Pace(self.table.start(loop, self.rows), self.table.step(loop, self.rows))


def read(path: Path, models: Models, batch: int) -> Measured:
    """The record in a file. Raises ConfigError where it is none, or of other models or smaller batches."""
    table = _loop(path) if _bench(path) == "loop" else looked_up.read(path)
    theirs = table.record["models"]
    asked = asdict(models)
    for key, usual in (dict.fromkeys(("target", "drafter", "dtype")) | HELD | {"mesh": None}).items():
        if theirs.get(key, usual) != asked[key]:
            raise ConfigError(
                f"chip: {path} was measured with models.{key}={theirs.get(key, usual)}, not {asked[key]}"
            )
    if batch > table.largest:
        raise ConfigError(f"batch: {batch} is beyond {path}, whose largest is {table.largest}")
    return Measured(table, batch)


def _bench(path: Path) -> Any:
    try:
        record = json.loads(path.read_text("utf-8").strip().splitlines()[-1])
        return record.get("bench")
    except (ValueError, IndexError, AttributeError):
        return None  # `simulate.costs.read` says what is wrong


def _loop(path: Path) -> Table:
    """A record of `scripts/bench_loop.py` as such a table. It has no prefill: an answer begins at once."""
    record = json.loads(path.read_text("utf-8").strip().splitlines()[-1])
    named = sorted((int(key.removeprefix("batch_")), key) for key in record if key.startswith("batch_"))
    times = lambda name: [record[key][name] / 1e3 for _, key in named]
    wide = str(record["gamma"] + 1)
    step = {
        "target": times("target_step"),
        "drafter": times("drafter_step"),
        "lossless": times("block"),
        "cascade": times("block_v3"),
    }
    drafter = times("drafter_call")
    return Table(
        {
            "models": {key: record[key] for key in ("target", "drafter", "dtype")},
            "gamma": record["gamma"],
            "batches": [batch for batch, _ in named],
            "calls": {
                "target": {"1": times("target_call_1"), wide: times("target_call_block")},
                "drafter": {"1": drafter, "2": drafter},
            },
            "step": step,
            "first": step,
        },
        path,
    )
