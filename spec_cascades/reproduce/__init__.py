"""The paper's tables and figures from one file each: `reproduce`. Imports no jax but to estimate sizes."""

from spec_cascades.reproduce.experiment import Chip, Column, Experiment, columns

__all__ = ["Chip", "Column", "Experiment", "columns"]
