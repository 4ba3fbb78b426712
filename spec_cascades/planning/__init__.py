"""Whether a pair fits a mesh of chips, how fast each method should run there, and how that met a record."""

from spec_cascades.planning.cases import Case, read
from spec_cascades.planning.planner import Planned, run
from spec_cascades.planning.settings import Plan

__all__ = ["Case", "Plan", "Planned", "read", "run"]
