"""What a plan is made of: plain frozen data, filled by `config.load`. Imports no jax."""

from dataclasses import dataclass, field

from spec_cascades.checks import choose, require
from spec_cascades.config import Models

WEIGHTS = ("same", "int8")
CACHES = ("float32", "bfloat16", "int8")


@dataclass(frozen=True)
class Mesh:
    """So many chips: `data` copies of the models, each over `model` chips (tensor parallel)."""

    data: int = 1
    model: int = 1

    def __post_init__(self) -> None:
        for key in ("data", "model"):
            require(key, getattr(self, key), getattr(self, key) >= 1, "1 or more")


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

    models: references, or names of published sizes (gemma-2-9b); chip: a name of `chips.CHIPS`, cpu (this
    machine, measured first), or a file of measured call times (scripts/call_times.py, bench_loop.py), which
    replaces the roofline; batch: rows in all; prompt, answer: tokens of each; gamma: drafts a block, 0 for
    the best of 1..most_gamma; weights: same (as models.dtype) or int8, by bytes alone: products stay in
    bfloat16; cache: the type of keys and values, float32 as the families keep them; drafter_mesh: sharded (as
    the target) or replicated (each chip holds all of it, and no collective runs); overhead_us: what every
    call of a model takes beside the roofline; hop_us: what an all-reduce takes for each step of its ring;
    reserve: the share of memory left to the runtime; record: a run folder or records to compare with.
    """

    models: Models = field(default_factory=Models)
    chip: str = "v5e"
    mesh: Mesh = Mesh()
    batch: int = 1
    prompt: int = 512
    answer: int = 128
    gamma: int = 0
    most_gamma: int = 10
    assumed: Assumed = field(default_factory=Assumed)
    weights: str = "same"
    cache: str = "float32"
    drafter_mesh: str = "sharded"
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
        choose("weights", self.weights, WEIGHTS)
        choose("cache", self.cache, CACHES)
        choose("drafter_mesh", self.drafter_mesh, ("sharded", "replicated"))
        copies = self.mesh.data
        require("batch", self.batch, self.batch % copies == 0, f"a multiple of mesh.data ({copies})")
