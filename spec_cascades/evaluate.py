"""One configuration to one record: a sweep of a single point."""

from typing import Any

from spec_cascades import sweep
from spec_cascades.config import Evaluate, as_sweep
from spec_cascades.metrics.scoring import Check


def run(evaluate: Evaluate, engine: sweep.Runner | None = None, check: Check | None = None) -> dict[str, Any]:
    """The record of one decoding on one task; resumes like a sweep, and raises ConfigError as one."""
    (record,) = sweep.run(as_sweep(evaluate), engine, check)
    return record
