"""Whether a pair fits a mesh of chips, how fast each method should run there, and how that met a record."""

from spec_cascades.planning.planner import Planned, run
from spec_cascades.planning.settings import Mesh, Plan

__all__ = ["Mesh", "Plan", "Planned", "run"]
