"""Measured call times as the seconds of a simulated step: the record of `scripts/call_times.py`, looked up.

A step's time is its calls' t(k, batch) and what the loop adds to them, both measured. Between two measured
batches it is interpolated; beyond the largest, and for a k that was not measured, it is refused.
"""

import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spec_cascades.checks import ConfigError
from spec_cascades.simulate.queue import Seconds

KEYS = ("models", "gamma", "tokens", "cores", "batches", "prefill", "calls", "first", "step")
LOSSLESS = "lossless"
"""The rule under which a block makes gamma drafter calls, the first on two tokens, not gamma + 1 on one."""


class Table(NamedTuple):
    """One record: seconds by batch of prefills, calls and loops, and what they were measured with."""

    record: dict[str, Any]
    path: Path

    @property
    def largest(self) -> int:
        """The largest batch measured."""
        return max(self.record["batches"])

    @property
    def gamma(self) -> int:
        return self.record["gamma"]

    def at(self, kind: str, *names: str, batch: int) -> float:
        """Seconds of e.g. ("calls", "target", "5") at a batch, interpolated. ConfigError beyond the table."""
        found = self.record[kind]
        for name in names:
            if name not in found:
                what = " ".join((kind, *names))
                raise ConfigError(f"call_times: {self.path} has no {what}; it has {', '.join(found)}")
            found = found[name]
        if not 1 <= batch <= self.largest:
            raise ConfigError(f"call_times: a batch of {batch} is beyond {self.path}, 1..{self.largest}")
        return float(np.interp(batch, self.record["batches"], found))

    def call(self, role: str, k: int, batch: int) -> float:
        """t(k, batch): one call on k tokens a row."""
        return self.at("calls", role, str(k), batch=batch)

    def step(self, loop: str, batch: int) -> float:
        """One step of a loop, as measured."""
        return self.at("step", loop, batch=batch)

    def start(self, loop: str, batch: int) -> float:
        """What an answer of a loop takes beside its steps: prefills, buffers and the round trips."""
        return self.at("first", loop, batch=batch) - self.step(loop, batch)


def read(path: Path) -> Table:
    """The record in a file. Raises ConfigError where it is none, or a batch has no positive time."""
    if not path.is_file():
        raise ConfigError(f"call_times: no file {str(path)!r}; scripts/call_times.py makes one")
    try:
        record = json.loads(path.read_text("utf-8").strip().splitlines()[-1])
    except (ValueError, IndexError) as error:
        raise ConfigError(f"call_times: {path} is not a record of scripts/call_times.py ({error})") from None
    missing = [key for key in KEYS if not isinstance(record, dict) or key not in record]
    if missing:
        raise ConfigError(f"call_times: {path} is not a record of scripts/call_times.py (no {missing[0]})")
    table = Table(record, path)
    _positive(table)
    return table


def _positive(table: Table) -> None:
    """Raises ConfigError where noise left a start or a step of a loop without a time."""
    times = {name: alone(table, name) for name in table.record["step"]}
    times["sequence's target stage"] = second_stage(table)
    for batch in table.record["batches"]:
        found = {name: min(f((batch, 0)), f((0, batch))) for name, f in times.items()}
        found["token_deferred"] = min(called(table, batch, first) for first in (False, True))
        for name, least in found.items():
            if least <= 0:
                raise ConfigError(f"call_times: {table.path}: {name} at batch {batch} has no positive time")


def block_calls(table: Table, lossless: bool, gamma: int, batch: int) -> float:
    """The calls of one block: gamma + 1 of the drafter (or gamma, one of them on two), one of the target."""
    drafter = table.call("drafter", 1, batch)
    drafts = gamma * drafter + (table.call("drafter", 2, batch) - drafter if lossless else drafter)
    return drafts + table.call("target", gamma + 1, batch)


def block(table: Table, rule: str, gamma: int, batch: int) -> float:
    """One block: its calls, and what the loop adds to them, in proportion to the places of the block."""
    lossless = rule == LOSSLESS
    step = table.step("lossless" if lossless else "cascade", batch)
    added = step - block_calls(table, lossless, table.gamma, batch)
    return block_calls(table, lossless, gamma, batch) + added * (gamma + 1) / (table.gamma + 1)


def _stage(start: Callable[[int], float], step: Callable[[int], float]) -> Seconds:
    """Kinds: 0 starting, 1 stepping; those that start hold up those that step."""
    return lambda counts: sum(f(n) for f, n in zip((start, step), counts, strict=True) if n)


def alone(table: Table, name: str) -> Seconds:
    """One model alone. Kinds: start, step."""
    return lru_cache(None)(_stage(lambda n: table.start(name, n), lambda n: table.step(name, n)))


def speculation(table: Table, rule: str, gamma: int) -> Seconds:
    """Speculative decoding and cascades. Kinds: start, block."""
    loop = "lossless" if rule == LOSSLESS else "cascade"
    step = lambda n: block(table, rule, gamma, n)
    return lru_cache(None)(_stage(lambda n: table.start(loop, n), step))


def called(table: Table, rows: int, first: bool) -> float:
    """What calling the target adds to a token cascade's step; an answer's first call takes longest."""
    kind = "first" if first else "step"
    return table.at(kind, "token_deferred", batch=rows) - table.at(kind, "token_kept", batch=rows)


def token_cascade(table: Table) -> Seconds:
    """Kinds: start, a token kept, one with a call of the target, and one with the row's first call of it.

    Where a row calls the target, all do; where it is some row's first call, the step is as long as one.
    """

    def seconds(counts: tuple[int, ...]) -> float:
        starting, kept, deferred, first = counts
        rows = kept + deferred + first
        begun = table.start("token_kept", starting) if starting else 0.0
        more = called(table, rows, first > 0) if deferred + first else 0.0
        return begun + (table.step("token_kept", rows) if rows else 0.0) + more

    return lru_cache(None)(seconds)


def first_stage(table: Table) -> Seconds:
    """The drafter's stage of a sequence cascade, its score included. Kinds: start, step."""
    return alone(table, "sequence_kept")


def second_stage(table: Table) -> Seconds:
    """The target's stage, with what handing a row over adds. Kinds: start, step."""
    both = lambda of, n: of("sequence_deferred", n) - of("sequence_kept", n)
    return lru_cache(None)(_stage(lambda n: both(table.start, n), lambda n: both(table.step, n)))


def both_stages(table: Table) -> Seconds:
    """A server with both models, which take turns. Kinds: start and step of the drafter, then the target."""
    first, second = first_stage(table), second_stage(table)
    return lru_cache(None)(lambda counts: first(counts[:2]) + second(counts[2:]))
