"""Where a traced run's time went, by the scopes of the decode loop."""

import gzip
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from spec_cascades.checks import ConfigError
from spec_cascades.profiling import instructions

SCOPES = ("prefill", "draft", "score", "verify")
REST = "rest"
"""What lies in no scope: the loop's own buffers, and what the compiler added without saying for what."""
FILE = "scopes.json.gz"


class Op(NamedTuple):
    """One run of one instruction on one thread or stream. seconds: without what ran inside it."""

    line: str
    name: str
    origin: str
    start: float
    end: float
    seconds: float

    @property
    def scope(self) -> str:
        return scope(self.origin)


class Share(NamedTuple):
    """A scope's time. typical: each instruction's runs at their median, so that one which was interrupted
    does not count; ops: runs of instructions; largest: op_names with most typical time, (op_name, seconds).
    """

    scope: str
    seconds: float
    typical: float
    ops: int
    largest: list[tuple[str, float]]


def scope(origin: str) -> str:
    """The first of `SCOPES` in an op_name's path, else `REST`."""
    return next((part for part in origin.split("/") if part in SCOPES), REST)


def read(folder: Path) -> list[Op]:
    """Every instruction in a folder that `jax.profiler.trace` wrote; ConfigError where there is none."""
    from jax.profiler import ProfileData

    paths = sorted(folder.rglob("*.xplane.pb"))
    if not paths:
        raise ConfigError(f"{str(folder)!r} holds no trace (*.xplane.pb)")
    found = []
    for path in paths:
        data = path.read_bytes()
        origins = instructions.origins(data)
        for plane in ProfileData.from_serialized_xspace(data).planes:
            for line in plane.lines:
                found += _ops(f"{plane.name} {line.name}", line.events, origins)
    return found


def _ops(line: str, events: Iterable, origins: dict[str, dict[str, str]]) -> list[Op]:
    """The events that are instructions, with the time in which no other of its line ran inside each."""
    made = []
    for event in events:
        stats = dict(event.stats)
        if "hlo_op" in stats:
            name = str(stats["hlo_op"])
            program = f"{stats.get('hlo_module')}({stats.get('program_id')})"
            origin = origins.get(program, {}).get(name, "")
            made.append((event.start_ns * 1e-9, event.end_ns * 1e-9, name, origin))
    made.sort(key=lambda e: (e[0], -e[1]))
    own, open_ = [e[1] - e[0] for e in made], []
    for i, (start, end, *_) in enumerate(made):
        while open_ and made[open_[-1]][1] <= start:
            open_.pop()
        if open_:
            own[open_[-1]] -= end - start
        open_.append(i)
    places = _between([origin for *_, origin in made], [name for _, _, name, _ in made])
    return [Op(line, e[2], o, e[0], e[1], s) for e, o, s in zip(made, places, own, strict=True)]


def _between(origins: Sequence[str], names: Sequence[str]) -> list[str]:
    """Origins in order of time; an instruction without one that ran between two of one scope is of it, too.

    A compiler's rewriting may leave a product without its origin, XLA's for the CPU does.
    """
    before, after = [], []
    for found, each in ((before, origins), (after, reversed(origins))):
        near = ""
        for origin in each:
            near = origin or near
            found.append(scope(near))
    after.reverse()
    guess = lambda i: f"{before[i]}/{names[i].split('.')[0]}" if before[i] == after[i] != REST else ""
    return [origin or guess(i) for i, origin in enumerate(origins)]


def shares(ops: Sequence[Op], top: int = 3) -> list[Share]:
    """The time of every scope that ran, in the order of `SCOPES`."""
    found = []
    for name in (*SCOPES, REST):
        here = [op for op in ops if op.scope == name]
        runs: dict[tuple[str, str], list[float]] = {}
        for op in here:
            runs.setdefault((op.origin or op.name, op.name), []).append(op.seconds)
        by: dict[str, float] = {}
        for (origin, _), took in runs.items():
            by[origin] = by.get(origin, 0.0) + len(took) * median(took)
        largest = sorted(by.items(), key=lambda item: -item[1])[:top]
        if here:
            spent = sum(op.seconds for op in here)
            found.append(Share(name, spent, sum(by.values()), len(here), largest))
    return found


def span(ops: Sequence[Op]) -> float:
    """Seconds from the first instruction to the end of the last."""
    return max(op.end for op in ops) - min(op.start for op in ops) if ops else 0.0


def slices(ops: Sequence[Op]) -> list[dict]:
    """The run as complete events of Chrome's trace format: neighbours of one scope joined, times in us."""
    lines = {name: i for i, name in enumerate(dict.fromkeys(op.line for op in ops))}
    begin = min((op.start for op in ops), default=0.0)
    made: list[dict] = [
        {"ph": "M", "pid": 0, "tid": i, "name": "thread_name", "args": {"name": name}}
        for name, i in lines.items()
    ]
    newest: dict[int, dict] = {}
    for op in sorted(ops, key=lambda op: op.start):
        if op.name.startswith("while") and op.scope == REST:
            continue  # the decode loop itself, which would cover all of it
        tid, end = lines[op.line], round((op.end - begin) * 1e6, 3)
        last = newest.get(tid)
        if last and last["name"] == op.scope:
            last["dur"] = round(max(last["dur"], end - last["ts"]), 3)
            continue
        start = round((op.start - begin) * 1e6, 3)
        newest[tid] = {
            "ph": "X",
            "pid": 0,
            "tid": tid,
            "name": op.scope,
            "ts": start,
            "dur": round(end - start, 3),
        }
        made.append(newest[tid])
    return made


def write(folder: Path, ops: Sequence[Op]) -> Path:
    """`slices` as a file beside the trace, for Perfetto where its own view names instructions only (CPU)."""
    path = folder / FILE
    with gzip.open(path, "wt") as file:
        json.dump({"traceEvents": slices(ops)}, file)
    return path


def show(title: str, ops: Sequence[Op]) -> None:
    """Prints the table of shares on stderr."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(stderr=True)
    if not console.is_terminal:
        console.width = 190
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for i, head in enumerate(
        ("scope", "ms", "typical ms", "share", "instructions", "most of it (typical ms)")
    ):
        table.add_column(head, justify="left" if i in (0, 5) else "right")
    found = shares(ops)
    total = sum(share.typical for share in found)
    for share in found:
        largest = ", ".join(f"{_short(name)} {1e3 * seconds:.2f}" for name, seconds in share.largest)
        part = f"{share.typical / total:.0%}" if total else "-"
        times = (f"{1e3 * seconds:.2f}" for seconds in (share.seconds, share.typical))
        table.add_row(share.scope, *times, part, str(share.ops), largest)
    table.caption = (
        f"{1e3 * span(ops):.2f} ms from the first instruction to the last; times of all threads or streams "
        "summed, an instruction without those inside it; typical: every run of an instruction at its median; "
        "tracing slows short instructions down"
    )
    console.print(table)


def _short(origin: str) -> str:
    """The end of an op_name: the path behind the scope, or without one the last two parts."""
    parts = origin.split("/")
    at = next((i for i, part in enumerate(parts) if part in SCOPES), len(parts) - 3)
    return "/".join(parts[at + 1 :]) or origin
