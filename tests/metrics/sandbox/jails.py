"""What the tests of the sandbox share."""

import tempfile
from functools import cache

from spec_cascades.metrics import sandbox
from spec_cascades.metrics.sandbox import Limits

SHORT = Limits(cpu_seconds=1, wall_seconds=1.5, memory_mb=256, processes=6, file_mb=2, output_kb=4)


@cache
def refused(level):
    """Why this machine does not have a level, or ""."""
    try:
        return "" if sandbox._run([sandbox.PROBE], sandbox.DEFAULT, level).passed else "its probe fails"
    except sandbox.SandboxError as error:
        return str(error)


def gaps(level):
    with tempfile.TemporaryDirectory() as root:
        return sandbox._ask([sandbox.PROBE], sandbox.DEFAULT, level, root)["missing"]
