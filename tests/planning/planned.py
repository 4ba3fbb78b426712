"""Models and costs with round numbers, which need neither jax nor a file."""

from dataclasses import replace
from typing import NamedTuple

from spec_cascades.config import Mesh, Models
from spec_cascades.planning.chips import Chip
from spec_cascades.planning.pair import Model
from spec_cascades.planning.settings import Plan
from spec_cascades.planning.speed import Pace

CHIP = Chip("pretend", 1e12, 2e12, 10e9, 1e11, 1e10, ("nowhere",))
TARGET = Model(
    *("t", 10**9, 2e9, 2e9, 2e9, 1.8e9, ((0, 5e5), (500, 1e6))),
    *dict(layers=10, width=100, inner=400, heads=8, head_dim=16, kv_heads=2).values(),
    *dict(vocab=1000, reduces=21, prefill_reduces=21).values(),
)
DRAFTER = TARGET._replace(
    ref="d", parameters=10**8, held=2e8, flops=2e8, read=2e8, caches=((0, 5e4), (500, 1e5))
)
MODELS = {"target": TARGET, "drafter": DRAFTER}


def plan(mesh=None, models=None, **given):
    own = {"overhead_us": 0.0, "hop_us": 0.0, "reserve": 0.0, "prompt": 500, "answer": 100}
    models = models or Models("t", "d")
    return Plan(models=replace(models, mesh=mesh and Mesh(*mesh)), **{**own, **given})


class Flat(NamedTuple):
    """A target's call of one second however wide, a drafter's of `ratio`."""

    ratio: float
    rows: int = 1
    most: int = 20

    def call(self, role, k):
        return 1.0 if role == "target" else self.ratio

    def alone(self, role):
        return Pace(0.0, self.call(role, 1))

    def block(self, lossless, gamma):
        return Pace(0.0, 1.0 + self.ratio * (gamma + (not lossless)))

    def token(self, deferred):
        return Pace(0.0, self.ratio + deferred)

    def stages(self):
        return self.alone("drafter"), self.alone("target")
