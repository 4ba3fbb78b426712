"""What a plan is made of: plain frozen data, filled by `planning.cases`. Imports no jax."""

from dataclasses import dataclass, field

from spec_cascades.checks import require
from spec_cascades.config import Mesh, Models
from spec_cascades.reproduce import Chip as Peaks


@dataclass(frozen=True)
class Assumed:
    """What decoding is assumed to do where no record tells.

    lossless, cascade: the chance that a draft stands, given that those before it stood, under speculative
    decoding and under a speculative cascade's rule; token: the share of tokens that a token cascade defers;
    sequence: the share of answers that a sequence cascade defers.
    """

    lossless: float = 0.7
    cascade: float = 0.8
    token: float = 0.3
    sequence: float = 0.5

    def __post_init__(self) -> None:
        for key in ("lossless", "cascade", "token", "sequence"):
            require(key, getattr(self, key), 0 <= getattr(self, key) <= 1, "in [0, 1]")


@dataclass(frozen=True)
class Plan:
    """A pair on a mesh of chips: `plan`.

    models: as for a run: references, or names of published sizes (gemma-2-9b), what weights and caches are
    held in, the mesh (products of int8 weights are counted as bfloat16's); chip: a name of `chips.CHIPS`, cpu
    (this machine, measured first), or a file of measured call times (scripts/call_times.py, bench_loop.py),
    which replaces the roofline; peaks: stated ones in its place, as `chip: {name: ...}` gives them; batch:
    rows in all; prompt, answer: tokens of each; gamma: drafts a block, 0 for the best of 1..most_gamma;
    overhead_us: what every call of a model takes beside the roofline; hop_us: what an all-reduce takes for
    each step of its ring; reserve: the share of memory left to the runtime; record: a run folder or records
    to compare with.
    """

    models: Models = field(default_factory=Models)
    chip: str = "v5e"
    peaks: Peaks | None = None
    batch: int = 1
    prompt: int = 512
    answer: int = 128
    gamma: int = 0
    most_gamma: int = 10
    assumed: Assumed = field(default_factory=Assumed)
    overhead_us: float = 50.0
    hop_us: float = 1.0
    reserve: float = 0.1
    record: str | None = None

    def __post_init__(self) -> None:
        for key in ("batch", "prompt", "answer", "most_gamma"):
            require(key, getattr(self, key), getattr(self, key) >= 1, "1 or more")
        require("gamma", self.gamma, self.gamma >= 0, "0 (the best) or more")
        for key in ("overhead_us", "hop_us"):
            require(key, getattr(self, key), getattr(self, key) >= 0, "0 or more")
        require("reserve", self.reserve, 0 <= self.reserve < 1, "in [0, 1)")

    @property
    def mesh(self) -> Mesh:
        """The devices; one where the models state none."""
        return self.models.mesh or Mesh()

    def over(self, role: str) -> int:
        """Chips that the model in a role is divided over."""
        mesh = self.mesh
        return mesh.drafter if role == "drafter" and mesh.drafter is not None else mesh.model
