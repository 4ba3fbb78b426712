"""How many calls an answer takes at an acceptance, and how long that is. Imports no jax."""

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from spec_cascades.checks import ConfigError


class Pace(NamedTuple):
    """Seconds of a loop: beside its steps (prefills and the like), and of one step."""

    start: float
    step: float

    def answer(self, steps: float) -> float:
        return self.start + steps * self.step


class Costs(Protocol):
    """What calls and loops take for the batch that is planned."""

    @property
    def rows(self) -> int: ...

    @property
    def most(self) -> int:
        """The largest gamma that is known about."""

    def call(self, role: str, k: int) -> float:
        """Seconds of one call on k tokens a row."""

    def alone(self, role: str) -> Pace:
        """One model, a token a step."""

    def block(self, lossless: bool, gamma: int) -> Pace:
        """Speculation, a block a step; lossless: gamma calls of the drafter, else gamma + 1."""

    def token(self, deferred: float) -> Pace:
        """A token cascade, a token a step, such a share of them deferred."""

    def stages(self) -> tuple[Pace, Pace]:
        """A sequence cascade's stages: the drafter's answer, and the target's."""


def tokens_per_call(beta: float, gamma: int) -> float:
    """(1 - beta^(gamma + 1)) / (1 - beta): tokens of a block (Leviathan et al., 2023, eq. 1).

    beta: the chance that a draft stands, given that those before it in the block stood.
    """
    return float(gamma + 1) if beta == 1 else (1 - beta ** (gamma + 1)) / (1 - beta)


def blocks(n: float, beta: float, gamma: int, rows: int = 1) -> float:
    """Blocks until each of `rows` answers has n tokens, in expectation; n between integers is interpolated.

    More than n / `tokens_per_call`: what the last block has beyond the answer's end is cut off, and a batch
    waits for its slowest row.
    """
    whole = math.floor(n)
    low = _blocks(whole, beta, gamma, rows)
    return low if n == whole else low + (n - whole) * (_blocks(whole + 1, beta, gamma, rows) - low)


def _blocks(n: int, beta: float, gamma: int, rows: int) -> float:
    """sum over s >= 0 of P(some row is not done after s blocks), rows independent."""
    stands = beta ** np.arange(gamma + 1)
    sizes = np.append(stands[:-1] * (1 - beta), stands[-1])  # P(a block has 1, 2, ..., gamma + 1 tokens)
    left, expected = np.zeros(n + 1), 0.0
    left[0] = 1.0  # P(i tokens are there), of rows that have fewer than n
    for _ in range(n):
        unfinished = left[:n].sum()
        expected += 1 - (1 - min(unfinished, 1.0)) ** rows
        more = np.convolve(left[:n], sizes)
        left = np.zeros(n + 1)
        left[1 : n + 1] = more[:n]
    return expected


def best_gamma(costs: Costs, lossless: bool, beta: float, n: float, most: int) -> int:
    """The gamma in 1..most that answers fastest, of those whose cost is known."""
    took = {
        gamma: costs.block(lossless, gamma).answer(blocks(n, beta, gamma, costs.rows))
        for gamma in range(1, min(most, costs.most) + 1)
    }
    return min(took, key=took.__getitem__)


def break_even(costs: Costs, lossless: bool, gamma: int) -> float | None:
    """The acceptance from which a block's tokens cost less than the target's own; None if none does.

    Long answers, one row: tokens_per_call(beta, gamma) = block's seconds / the target's step.
    """
    wanted = costs.block(lossless, gamma).step / costs.alone("target").step
    if wanted > gamma + 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if tokens_per_call(middle, gamma) >= wanted else (middle, high)
    return high


class Asked(NamedTuple):
    """One method: its name as in a configuration, rule lossless or not, gamma, what it accepts or defers.

    share: beta of speculation, the deferred share of tokens or of answers of the cascades, unused else.
    """

    method: str
    lossless: bool = False
    gamma: int = 0
    share: float = 0.0


def seconds(costs: Costs, asked: Asked, n: float) -> float:
    """A batch of answers of n tokens. Raises ConfigError for a method without a prediction.

    Of a sequence cascade with several rows the second stage is taken to run where any row is deferred, at
    the pace of the whole batch.
    """
    rows = costs.rows
    some = 1 - (1 - asked.share) ** rows
    if asked.method in ("target", "drafter"):
        return costs.alone(asked.method).answer(n)
    if asked.method == "speculative":
        return costs.block(asked.lossless, asked.gamma).answer(blocks(n, asked.share, asked.gamma, rows))
    if asked.method == "token":
        return costs.token(some).answer(n)
    if asked.method == "sequence":
        first, second = costs.stages()
        return first.answer(n) + some * second.answer(n)
    raise ConfigError(f"method {asked.method!r} has no prediction; methods with one: {', '.join(METHODS)}")


METHODS: Sequence[str] = ("target", "drafter", "speculative", "token", "sequence")
