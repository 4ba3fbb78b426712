"""What `tune` is asked. Imports no jax."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from spec_cascades.checks import ConfigError, require
from spec_cascades.config import Decoding, Models, Point, Sweep, Task, expand

DEMANDS = ("floor", "loss", "ceiling", "ceiling_ms")


class Demand(NamedTuple):
    """One of `DEMANDS` and its limit: the score may not be less, the time not more."""

    kind: str
    limit: float

    @property
    def of_time(self) -> bool:
        """Whether the time is limited, and the score sought; else the other way round."""
        return self.kind.startswith("ceiling")

    def __str__(self) -> str:
        return {
            "floor": f"a score of at least {self.limit:g}",
            "loss": f"a score at most {self.limit:g} below the target alone's",
            "ceiling": f"at most {self.limit:g} times the target alone's time (median)",
            "ceiling_ms": f"at most {self.limit:g} ms an answer (median)",
        }[self.kind]


@dataclass(frozen=True)
class Tune:
    """The points to choose from and one demand on the chosen: `tune`.

    floor: the least score; loss: how far the score may be below the target alone's; ceiling: the most time,
    as a part of the target alone's; ceiling_ms: in milliseconds. Exactly one of them is given.
    The points are tried on `validation` of the task's examples, drawn by `seed`, and the chosen one is
    confirmed on the rest, or, where `held_out` is given, tried on all of `task` and confirmed on that.
    records: a finished run folder whose points are taken instead, those of base's temperature and batch_size.
    confidence: of either bound; seed: of the bootstrap, too. Raises ConfigError for keys that mean nothing
    together.
    """

    output: str
    task: Task | None = None
    held_out: Task | None = None
    records: str | None = None
    models: Models = field(default_factory=Models)
    base: Decoding = field(default_factory=Decoding)
    points: list[dict[str, Any]] = field(default_factory=list)
    repeats: int = 1
    floor: float | None = None
    loss: float | None = None
    ceiling: float | None = None
    ceiling_ms: float | None = None
    validation: float = 0.5
    confidence: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        for key in ("validation", "confidence"):
            require(key, getattr(self, key), 0 < getattr(self, key) < 1, "between 0 and 1, both excluded")
        for key in ("ceiling", "ceiling_ms"):
            most = getattr(self, key)
            require(key, most, most is None or most > 0, "a positive number")
        require("seed", self.seed, self.seed >= 0, "0 or more")
        given = [key for key in DEMANDS if getattr(self, key) is not None]
        if len(given) != 1:
            raise ConfigError(f"the demand: give exactly one of {', '.join(DEMANDS)}, not {given or 'none'}")
        if (self.task is None) == (self.records is None):
            raise ConfigError("task, records: give the one to decode, or the other to take a finished run")
        if self.records is None:
            self._check_points()
        elif self.points or self.held_out or self.repeats != 1:
            raise ConfigError("points, held_out, repeats: are those of the run that `records` names")

    def _check_points(self) -> None:
        require("points", self.points, bool(self.points), "a list of at least one point")
        if self.task.shard is not None:
            raise ConfigError("task.shard: a choice is made of all examples; leave it out")
        for point in expand(self.sweep(self.task, "validation")):
            size = point.decoding.batch_size
            if size != self.base.batch_size:
                raise ConfigError(
                    f"points: {point.name!r} has batch_size {size}, base {self.base.batch_size}"
                )

    @property
    def demand(self) -> Demand:
        """The one demand that is given."""
        return next(
            Demand(key, float(getattr(self, key))) for key in DEMANDS if getattr(self, key) is not None
        )

    def sweep(self, task: Task, part: str) -> Sweep:
        """The run of the target alone and of all points on one part of the examples."""
        alone = {"method": "target"}
        points = [alone, *(point for point in self.points if point != alone)]
        return Sweep(task, f"{self.output}/{part}", self.models, self.base, points, self.repeats)

    def confirming(self, task: Task, point: Point, seed: int) -> Sweep:
        """The run of the chosen point and the target alone; seeds begin at `seed`, those drawn before it."""
        base = replace(self.base, seed=seed)
        chosen = {"name": point.name} | asdict(replace(point.decoding, seed=seed))
        points = [{"method": "target"}, chosen]
        return Sweep(task, f"{self.output}/held_out", self.models, base, points, self.repeats)
