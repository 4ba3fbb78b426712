"""Seconds and bytes of a pair on a mesh of chips, from stated peaks."""

from collections.abc import Mapping
from typing import NamedTuple

from spec_cascades.config import CATCH_UP
from spec_cascades.planning.chips import Chip
from spec_cascades.planning.pair import Model
from spec_cascades.planning.settings import Plan
from spec_cascades.planning.speed import Pace
from spec_cascades.reproduce.sizes import limit

VERIFY_READS = 10
"""Reads of both models' float32 scores from logits to a verdict, at least so many on a CPU at batch 1
(docs/benchmarks, verify); on an accelerator nobody has measured it yet."""
SCORES = 6
"""Arrays of the size of the scores that a block holds at once: logits and distributions of both models."""


class Roofline(NamedTuple):
    """`speed.Costs` from peaks: a call takes max(FLOPs / peak, bytes / bandwidth) + all-reduces + overhead.

    An all-reduce of n bytes over m chips is a ring: 2 (m - 1) / m * n / ring + 2 (m - 1) * hop.
    """

    asked: Plan
    chip: Chip
    models: Mapping[str, Model]

    @property
    def rows(self) -> int:
        return self.asked.batch

    @property
    def most(self) -> int:
        return self.asked.most_gamma

    def over(self, role: str) -> int:
        """Chips that a model is divided over."""
        return self.asked.over(role)

    @property
    def local(self) -> int:
        """Rows of one copy of the models, those that fill a batch up included."""
        return -(-self.asked.batch // self.asked.mesh.data)

    def call(self, role: str, k: int) -> float:
        model, m = self.models[role], self.over(role)
        if not model.parameters:
            return 0.0
        context = self.asked.prompt + self.asked.answer
        flops = self.local * k * (model.flops + model.attention(context)) / m
        read = model.read / m + self.local * self.row(role)
        return self._limit(flops, read) + self._reduces(role, model.reduces, k) + self._overhead

    def prefill(self, role: str) -> float:
        """Reading the prompts: every weight once, no scores."""
        model, m, s = self.models[role], self.over(role), self.asked.prompt
        if not model.parameters:
            return 0.0
        flops = self.local * s * (model.prefill_flops + model.attention(s)) / m
        read = model.held / m + self.local * self.row(role)
        return self._limit(flops, read) + self._reduces(role, model.prefill_reduces, s) + self._overhead

    def alone(self, role: str) -> Pace:
        return Pace(self.prefill(role), self.call(role, 1) + self._judging(role, 1))

    def block(self, lossless: bool, gamma: int) -> Pace:
        if not self.models["drafter"].parameters:
            drafting = 0.0
        elif lossless:
            drafting = (gamma - 1) * self.call("drafter", 1) + self.call("drafter", 2)
        else:
            drafting = (gamma + 1) * self.call("drafter", 1)
        judging = self._judging("target", gamma + 1) + self._judging("drafter", gamma + 1)
        return Pace(self._both, drafting + self.call("target", gamma + 1) + judging)

    def token(self, deferred: float) -> Pace:
        return Pace(self._both, self.alone("drafter").step + deferred * self.call("target", CATCH_UP))

    def stages(self) -> tuple[Pace, Pace]:
        return self.alone("drafter"), self.alone("target")

    @property
    def _both(self) -> float:
        return self.prefill("target") + self.prefill("drafter")

    @property
    def _overhead(self) -> float:
        return self.asked.overhead_us * 1e-6

    def row(self, role: str, prompt: int | None = None) -> float:
        """Bytes of one row's cache on each chip."""
        model = self.models[role]
        whole = model.cache(self.asked.prompt if prompt is None else prompt)
        return whole / min(self.over(role), model.kv_heads)

    def _limit(self, flops: float, read: float) -> float:
        return limit(flops, read, self.chip.flops, self.chip.bandwidth)

    def _reduces(self, role: str, count: int, k: int) -> float:
        m = self.over(role)
        if m == 1 or self.chip.ring is None:  # a chip without one serves alone (`planner`)
            return 0.0
        moved = 2 * (m - 1) / m * self.local * k * self.models[role].width * 2
        return count * (moved / self.chip.ring + 2 * (m - 1) * self.asked.hop_us * 1e-6)

    def _judging(self, role: str, places: int) -> float:
        scores = 4 * self.local * places * self.models[role].vocab / self.over(role)
        return VERIFY_READS * scores / self.chip.bandwidth


class Fit(NamedTuple):
    """Bytes on the fullest chip, and what its memory allows at the plan's other figures.

    batch: rows in all, 0 where not even one a copy fits; context: tokens of prompt and answer.
    """

    weights: float
    caches: float
    temporaries: float
    limit: float
    fits: bool
    batch: int
    context: int

    @property
    def total(self) -> float:
        return self.weights + self.caches + self.temporaries


def fit(costs: Roofline, gamma: int) -> Fit:
    """Whether the plan's batch fits, and how many rows and how long a context would."""
    asked, chip = costs.asked, costs.chip
    limit = chip.memory * (1 - asked.reserve)
    weights = sum(model.held / costs.over(role) for role, model in costs.models.items())
    caches = lambda prompt: sum(costs.row(role, prompt) for role in costs.models)
    needed = lambda rows, prompt: weights + rows * (caches(prompt) + _temporaries(costs, prompt, gamma))
    rows = costs.local
    each = needed(1, asked.prompt) - weights
    most = max(0, int((limit - weights) / each))
    low, high = 0, 1 << 30
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if needed(rows, middle) <= limit else (low, middle)
    return Fit(
        weights=weights,
        caches=rows * caches(asked.prompt),
        temporaries=rows * _temporaries(costs, asked.prompt, gamma),
        limit=limit,
        fits=needed(rows, asked.prompt) <= limit,
        batch=most * asked.mesh.data,
        context=low + asked.answer if low else 0,
    )


def _temporaries(costs: Roofline, prompt: int, gamma: int) -> float:
    """An estimate for one row: the larger of a layer's buffers in a prefill and of a block's scores.

    In a prefill that reads c of s tokens at once, float32: attention scores and weights [heads, c, s], the
    feed-forward part's three [c, d_ff], four of [c, d].
    """
    reading = max(
        m.piece(prompt) * (4 * (2 * m.heads * prompt + 3 * m.inner) / costs.over(role) + 16 * m.width)
        for role, m in costs.models.items()
    )
    widest = max(m.vocab / costs.over(role) for role, m in costs.models.items())
    return max(reading, 4.0 * SCORES * (gamma + 1) * widest)
