"""What an audit is made of. Imports no jax."""

from dataclasses import dataclass, field

from spec_cascades.checks import ConfigError, require
from spec_cascades.config import EMBEDDED_TASK, Decoding, Models
from spec_cascades.tasks.settings import Task

DETERMINISTIC = (
    "its text is that of an algorithm (fallback and rollback of greedy drafts), not a draw from a law pi"
)
WHOLE = "it defers whole answers by their score, so that no law of the next token is its own"
REFUSED = {"bild": DETERMINISTIC, "sequence": WHOLE, "hybrid": WHOLE}
"""Methods whose output no law of the next token describes, and why."""


def _everyday() -> Task:
    return Task(path=EMBEDDED_TASK, limit=16)


@dataclass(frozen=True)
class Audit:
    """Whether answers follow their law: `audit`.

    prompts: in place of the task's; law_prompts: how many of them are sampled, `samples` times each, `rows`
    at a time, `depth` tokens deep; likely: the mass from which a prefix is a cell of its own; level: the
    probability that right code fails, over all prompts together; distance: the total variation for which the
    power is stated. The greedy check takes every prompt. output: a folder for audit.jsonl.
    Raises ConfigError for a value out of range and a method without a law.
    """

    models: Models = field(default_factory=Models)
    decoding: Decoding = field(default_factory=lambda: Decoding(temperature=1.0))
    task: Task = field(default_factory=_everyday)
    prompts: list[str] = field(default_factory=list)
    law_prompts: int = 3
    samples: int = 4000
    depth: int = 2
    likely: float = 0.01
    rows: int = 64
    level: float = 0.001
    distance: float = 0.05
    output: str | None = None

    def __post_init__(self) -> None:
        for key in ("law_prompts", "samples", "depth", "rows"):
            require(key, getattr(self, key), getattr(self, key) >= 1, "1 or more")
        for key in ("likely", "level", "distance"):
            require(key, getattr(self, key), 0 < getattr(self, key) < 1, "in (0, 1)")
        if self.decoding.method in REFUSED:
            raise ConfigError(
                f"decoding.method: {self.decoding.method!r} cannot be audited by its law: "
                f"{REFUSED[self.decoding.method]}"
            )
