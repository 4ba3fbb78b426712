"""What a compiled module moves between devices, and which arrays it copies."""

import math
import re

MOVES = r"all-gather|all-to-all|collective-permute|all-reduce|reduce-scatter"


def collectives(lines):
    """{kind: elements of its largest result} over the instructions that move data between devices."""
    found = {}
    for line in lines:
        if m := re.search(rf"= (.*?) ({MOVES})(?:-start)?\(", line):
            shapes = re.findall(r"\w+\[([\d,]*)\]", m[1])
            most = max(math.prod(map(int, filter(None, shape.split(",")))) for shape in shapes)
            found[m[2]] = max(most, found.get(m[2], 0))
    return found


def sizes(shape):
    return sorted(n for n in shape if n > 1)


def copies(lines, shapes):
    """Instructions that copy, transpose or select an array of one of these shapes, in whatever order."""
    made = re.compile(r"= \(?\w+\[([\d,]+)\]\S* .*?\b(?:copy|copy-start|transpose|select)\(")
    large = [sizes(shape) for shape in shapes]
    return [x for x in lines if (m := made.search(x)) and sizes(map(int, m[1].split(","))) in large]


def carried(lines, shapes):
    """How many instructions mention an array of one of these shapes: the walk has not lost them."""
    return sum(any(f"[{','.join(map(str, shape))}]" in line for shape in shapes) for line in lines)
