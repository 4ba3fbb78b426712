"""Reading optimised HLO: what runs within loops, what is copied there, what devices say to each other."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

COLLECTIVES = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute")
BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s16": 2, "u16": 2, "f64": 8, "s64": 8, "u64": 8}
"""Bytes of an element; 4 for what is not named."""

_HEAD = re.compile(r"(?:ENTRY )?%?([\w.\-]+) .*\{$")
_WHILE = re.compile(r" while\(.*body=%?([\w.\-]+)")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_CONDITION = re.compile(r"condition=%?([\w.\-]+)")
_LESS = re.compile(
    r"ROOT %?[\w.\-]+ = pred\[\]\S* compare\([^,]*, (?:s32\[\]\S* )?%?([\w.\-]+)\), direction=LT"
)
_LIMIT = re.compile(r"%?([\w.\-]+) = s32\[\]\S* constant\((\d+)\)")
_CALLS = re.compile(r"(?:calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.\-]+)")
_LISTS = re.compile(r"(?:branch_computations|called_computations)=\{([^}]*)\}")
_ARRAY = re.compile(r"(\w+)\[([\d,]*)\]")
_MADE = re.compile(r"= (\(?.*?\)?) ([a-z][\w\-]*)\(")


class Line(NamedTuple):
    """An instruction within a loop.

    times: how often it runs in one turn of the outermost loop around it, counting the loops between whose
    length is known (those over layers); known: whether that is all of them.
    """

    text: str
    times: int
    known: bool


class Collective(NamedTuple):
    """What devices exchange: its kind, its result as HLO writes it, bytes of that a device, `Line.times`."""

    kind: str
    shape: str
    bytes: int
    times: int


def computations(text: str) -> dict[str, list[str]]:
    """{name: instructions} of an HLO module."""
    found: dict[str, list[str]] = {}
    name = None
    for line in text.splitlines():
        if head := _HEAD.match(line):
            name = head[1]
            found[name] = []
        elif line.startswith("}"):
            name = None
        elif name is not None:
            found[name].append(line)
    return found


def called(line: str) -> list[str]:
    """The computations that an instruction runs."""
    lists = [name.strip().lstrip("%") for group in _LISTS.findall(line) for name in group.split(",")]
    return _CALLS.findall(line) + [name for name in lists if name]


def inside_loops(text: str) -> tuple[list[Line], int]:
    """All instructions that run within any while body, fusions' too, and the number of loops."""
    parts = computations(text)
    loops = {m[1] for lines in parts.values() for x in lines if (m := _WHILE.search(x))}
    nested = {name for body in loops for name in _reached(parts, body) if name in loops and name != body}
    seen: dict[str, tuple[int, bool]] = {}
    todo = [(body, 1, True) for body in sorted(loops - nested)]
    while todo:
        name, times, known = todo.pop()
        if name in seen and seen[name][0] >= times:
            continue
        seen[name] = (times, known)
        for line in parts.get(name, ()):
            turns = _turns(parts, line) if _WHILE.search(line) else 1
            todo += [
                (x, times * (turns or 1), known and turns is not None) for x in called(line) if x in parts
            ]
    return [Line(line, *seen[name]) for name in sorted(seen) for line in parts[name]], len(loops)


def entry(text: str) -> list[Line]:
    """The instructions of the module's entry, which run once a call."""
    name = next(m[1] for line in text.splitlines() if line.startswith("ENTRY") and (m := _HEAD.match(line)))
    return [Line(line, 1, True) for line in computations(text)[name]]


def _turns(parts: Mapping[str, Sequence[str]], line: str) -> int | None:
    """How often a loop runs: as the compiler says or a condition `i < constant` does; None for neither."""
    if said := _TRIPS.search(line):
        return int(said[1])
    condition = _CONDITION.search(line)
    lines = parts.get(condition[1], ()) if condition else ()
    last = next((m for x in lines if (m := _LESS.search(x))), None)
    limits = dict(m.groups() for x in lines if (m := _LIMIT.search(x)))
    return int(limits[last[1]]) if last and last[1] in limits else None


def _reached(parts: Mapping[str, Sequence[str]], start: str) -> set[str]:
    seen: set[str] = set()
    todo = [start]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += [x for line in parts.get(name, ()) for x in called(line) if x in parts]
    return seen


def copies(lines: Iterable[Line], shapes: Iterable[Sequence[int]]) -> list[str]:
    """Instructions that copy, transpose or select an array of one of these sizes, in any order of axes."""
    sizes = lambda shape: sorted(n for n in shape if n > 1)
    large = [sizes(shape) for shape in shapes]
    found = []
    for line in lines:
        m = _MADE.search(line.text)
        if m and m[2] in ("copy", "copy-start", "transpose", "select"):
            array = _ARRAY.search(m[1])
            if array and array[2] and sizes(map(int, array[2].split(","))) in large:
                found.append(line.text)
    return found


def collectives(lines: Iterable[Line]) -> list[Collective]:
    """What devices exchange, an asynchronous pair once."""
    found = []
    for line in lines:
        m = _MADE.search(line.text)
        kind = m[2].removesuffix("-start") if m else ""
        if m is None or kind not in COLLECTIVES:
            continue
        arrays = _ARRAY.findall(m[1])
        # A pair's first half lists its operands before its results.
        arrays = arrays[len(arrays) // 2 :] if m[2].endswith("-start") and len(arrays) > 1 else arrays
        shape = " ".join(f"{dtype}[{dims}]" for dtype, dims in arrays)
        found.append(Collective(kind, shape, sum(_bytes(*array) for array in arrays), line.times))
    return found


def _bytes(kind: str, dims: str) -> int:
    return BYTES.get(kind, 4) * math.prod(int(n) for n in dims.split(",") if n)
