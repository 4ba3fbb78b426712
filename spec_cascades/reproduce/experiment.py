"""One table or figure as data: what its sweeps share, and what each of them has of its own."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from spec_cascades.checks import ConfigError, choose, nearest, require
from spec_cascades.config import Decoding, Models, Sweep, filled
from spec_cascades.reading import PART, over
from spec_cascades.tasks.settings import Task

KINDS = ("table2", "tradeoff", "rejection")
SHARED = ("models", "task", "base", "points", "repeats")
"""What a column may say of its own; the rest of a `Sweep` follows from its name."""


@dataclass(frozen=True)
class Chip:
    """Stated peaks of the device that times are estimated for: bfloat16 TFLOP/s, GB/s and GB of memory."""

    name: str
    tflops: float
    gb_per_second: float
    memory_gb: float

    def __post_init__(self) -> None:
        for key in ("tflops", "gb_per_second", "memory_gb"):
            require(key, getattr(self, key), getattr(self, key) > 0, "a positive number")


@dataclass(frozen=True)
class Experiment:
    """A table or a figure of several sweeps, one a column (or panel): `reproduce`.

    kind: table2 (the two numbers that Table 2 reads off each method's curve), tradeoff (quality against time
    relative to the target alone, Fig. 2) or rejection (quality against rejection rate, Fig. 3). columns: of
    each its name and what differs from the shared models, task, base, points and repeats (those of a
    `Sweep`). slack: points of quality that may be lost at "the target's quality". chip: what times are
    estimated for. Raises ConfigError unless every column is a valid sweep under a name of its own.
    """

    title: str
    kind: str
    output: str
    columns: list[dict[str, Any]]
    models: dict[str, Any] = field(default_factory=dict, metadata={PART: Models})
    task: dict[str, Any] = field(default_factory=dict, metadata={PART: Task})
    base: dict[str, Any] = field(default_factory=dict, metadata={PART: Decoding})
    points: list[dict[str, Any]] = field(default_factory=lambda: [{}])
    repeats: int = 1
    slack: float = 0.0
    chip: Chip | None = None

    def __post_init__(self) -> None:
        choose("kind", self.kind, KINDS)
        require("slack", self.slack, self.slack >= 0, "0 or more")
        require("columns", self.columns, bool(self.columns), "a list of at least one column")
        columns(self)


class Column(NamedTuple):
    """One sweep of an experiment; its run folder is OUT/<the name in lower case, joined by hyphens>."""

    name: str
    sweep: Sweep

    @property
    def folder(self) -> Path:
        return Path(self.sweep.output)


def columns(experiment: Experiment) -> list[Column]:
    """The sweeps in order. Raises ConfigError, naming the column, for what `Sweep` refuses."""
    found = [_column(experiment, raw, f"columns[{i}].") for i, raw in enumerate(experiment.columns)]
    folders = [column.folder for column in found]
    for column in found:
        if folders.count(column.folder) > 1:
            raise ConfigError(f"columns: two would be run in {column.folder}; let their names differ")
    return found


def _column(experiment: Experiment, raw: Any, where: str) -> Column:
    if not isinstance(raw, dict) or not isinstance(raw.get("name"), str):
        raise ConfigError(f"{where.rstrip('.')}: {raw!r} is not a mapping with a name")
    for key in raw:
        if key not in ("name", *SHARED):
            raise ConfigError(
                f"unknown key {where + str(key)!r}{nearest(str(key), SHARED)}; name and {SHARED}"
            )
    own = {key: value for key, value in raw.items() if key != "name"}
    if isinstance(own.get("task"), str):
        own["task"] = {"name": own["task"]}
    place = re.sub(r"[^a-z0-9]+", "-", raw["name"].lower()).strip("-")
    require(f"{where}name", raw["name"], bool(place), "a name with letters or digits")
    given = over({key: getattr(experiment, key) for key in SHARED}, own)
    return Column(raw["name"], filled(Sweep, given | {"output": str(Path(experiment.output) / place)}, where))
