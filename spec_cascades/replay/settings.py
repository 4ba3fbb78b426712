"""What a replay is made of. Imports no jax."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from spec_cascades.checks import ConfigError, choose, require
from spec_cascades.config import Decoding, Models, Point, Sweep, expand
from spec_cascades.tasks.settings import Task

PRICED = ("rule", "alpha", "gamma")
"""What a point of a replay may vary: all else belongs to the texts or to q and p, which are stored."""


@dataclass(frozen=True)
class Replay:
    """Rules priced along stored texts: `replay`.

    base: how the texts are drawn, by the model `text` alone, and what q and p are read with (temperature,
    filters, edits); points: rule, alpha and gamma, lists multiplied out as in a sweep; remainder: the mass of
    a distribution that may be left out of the store at a position; measured: a sweep's run folder or records.
    Raises ConfigError for a value out of range and a point that varies anything else.
    """

    task: Task
    output: str
    models: Models = field(default_factory=Models)
    base: Decoding = field(default_factory=lambda: Decoding(temperature=1.0))
    points: list[dict[str, Any]] = field(default_factory=lambda: [{}])
    text: str = "target"
    repeats: int = 1
    remainder: float = 1e-5
    measured: str | None = None

    def __post_init__(self) -> None:
        choose("text", self.text, ("target", "drafter"))
        require("remainder", self.remainder, 0 <= self.remainder < 0.1, "in [0, 0.1)")
        priced(self)

    @property
    def drawn(self) -> Decoding:
        """How the texts are drawn; what a rule would do does not matter to them."""
        own = Decoding()
        return replace(
            self.base, method=self.text, rule=own.rule, alpha=0.0, gamma=own.gamma, lengths="fixed"
        )


def priced(replay: Replay) -> list[Point]:
    """The points, named as a sweep would name them. Raises ConfigError for one that no store can price."""
    both = [role for role in ("target", "drafter") if getattr(replay.models, role) is None]
    if both:
        raise ConfigError(f"models.{both[0]}: a replay reads both models, and it is not given")
    points = expand(
        Sweep(replay.task, replay.output, replay.models, replay.base, replay.points, replay.repeats)
    )
    for point in points:
        _check(point, replay.base)
    return points


def _check(point: Point, base: Decoding) -> None:
    d = point.decoding
    if d.method != "speculative" or d.lengths != "fixed":
        what = f"method {d.method!r}" if d.method != "speculative" else f"lengths {d.lengths!r}"
        raise ConfigError(
            f"points: {point.name!r} has {what}; a replay prices method speculative, lengths fixed"
        )
    other = [key for key, value in asdict(d).items() if key not in PRICED and value != getattr(base, key)]
    if other:
        raise ConfigError(
            f"points: {point.name!r} varies {', '.join(other)}; the store holds q and p as `base` has "
            f"them, and a point may vary {', '.join(PRICED)}"
        )
