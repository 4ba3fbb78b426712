"""Counts against a law: Pearson's chi-square, small cells pooled, and how much of a change it would see."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

LEAST = 5.0
"""Expected counts below which a cell is pooled."""
DRAWS = 20000
"""Of the noncentral chi-square, for the power."""

Path = tuple[int, ...]


class Fit(NamedTuple):
    """cells: compared, after pooling; one cell says nothing: statistic 0, p_value 1.

    power: least probability to fail at `level` if the law of the cells were off by the stated distance.
    """

    cells: int
    statistic: float
    p_value: float
    power: float


def fit(counts: Mapping[Path, int], law: Mapping[Path, float], level: float, distance: float) -> Fit:
    """Compares counts of cells with their law, which sums to one; level: of this one test."""
    n = sum(counts.values())
    seen = np.array([counts.get(cell, 0) for cell in law], float)
    observed, expected = _pooled(seen, n * np.array(list(law.values())))
    freedom = len(observed) - 1
    if freedom == 0:
        return Fit(1, 0.0, 1.0, 0.0)
    statistic = float(np.sum((observed - expected) ** 2 / expected))
    return Fit(
        freedom + 1, statistic, float(tail([statistic], freedom)[0]), power(n, freedom, level, distance)
    )


def _pooled(observed: np.ndarray, expected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cells of fewer than LEAST expected as one, which joins the least of the others if it is small too."""
    small = expected < LEAST
    gather = lambda x: np.append(x[~small], x[small].sum())
    observed, expected = gather(observed), gather(expected)
    if expected[-1] >= LEAST or len(expected) == 1:
        return observed, expected
    i = np.argmin(expected[:-1])
    observed[i], expected[i] = observed[i] + observed[-1], expected[i] + expected[-1]
    return observed[:-1], expected[:-1]


def tail(x: Sequence[float] | np.ndarray, freedom: int) -> np.ndarray:
    """P(chi-square of `freedom` degrees > x) = Q(freedom / 2, x / 2), the regularised incomplete gamma."""
    from jax.scipy.special import gammaincc

    return np.asarray(gammaincc(freedom / 2, np.asarray(x, np.float32) / 2))


def power(n: int, freedom: int, level: float, distance: float) -> float:
    """P(the test fails) at least, for a law of the cells at that total variation from the one tested.

    The statistic is then about a noncentral chi-square with n sum_i d_i^2 / pi_i, which is n (2 distance)^2
    or more: (sum |d_i|)^2 <= sum d_i^2 / pi_i (Cauchy and Schwarz) and sum |d_i| = 2 distance.
    """
    draws = np.random.default_rng(0).noncentral_chisquare(freedom, 4 * n * distance**2, DRAWS)
    return float(np.mean(tail(draws, freedom) < level))
