"""What a compiled module's loops move between devices, and that the walk still finds the caches."""

import math
import re

from spec_cascades.lowering import hlo


def moved(lines):
    """{kind: elements of its largest result, all parts of it} of what moves data between devices."""
    found = {}
    for one in hlo.collectives(lines):
        shapes = re.findall(r"\[([\d,]*)\]", one.shape)
        size = sum(math.prod(map(int, filter(None, shape.split(",")))) for shape in shapes)
        found[one.kind] = max(size, found.get(one.kind, 0))
    return found


def carried(lines, shapes):
    """How many instructions mention an array of one of these shapes: the walk has not lost them."""
    return sum(any(f"[{','.join(map(str, shape))}]" in x.text for shape in shapes) for x in lines)
