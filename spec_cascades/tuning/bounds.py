"""Bounds on the scores or times of many points at once, from examples that all of them answered."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from spec_cascades.checks import ConfigError
from spec_cascades.metrics import text
from spec_cascades.records import Outcome
from spec_cascades.tuning.settings import Demand

RESAMPLES = 2000
LEAST = 20
"""Units (examples, or batches for a time) without which a bootstrap says too little."""


class Sampled(NamedTuple):
    """A figure of m points and its standard error, both also on R resamples of the same n units.

    value, error [m]; draws, errors [R, m].
    """

    value: np.ndarray
    error: np.ndarray
    draws: np.ndarray
    errors: np.ndarray
    n: int


def bounds(sampled: Sampled, confidence: float, upper: bool = False) -> np.ndarray:
    """Bounds [m] that all hold at once with this probability: lower ones, or upper ones.

    value_j - c * error_j, c the `confidence` quantile over resamples of

        max over j of (draw_j - value_j) / errors_j,

    the studentized bootstrap of the maximum: a choice among m points goes wrong only if some bound does, and
    c is so large that none does. Points answer the same examples and so err alike; the maximum sees that,
    where Bonferroni's delta / m would pay for m independent looks, and need tails of each bootstrap that a
    thousand draws do not have. Each draw is divided by its own error, since a point that looks good by chance
    also looks sure of it: nearly all right, it hardly varies. m = 1 is the bound of a point that was not
    chosen by these units. A point without any error is its own bound. Raises ConfigError for n < LEAST.
    """
    if sampled.n < LEAST:
        raise ConfigError(f"{sampled.n} examples (or batches) bound nothing: give at least {LEAST}")
    sign = -1.0 if upper else 1.0
    varies = sampled.error > 1e-9
    if not varies.any():
        return sampled.value.copy()
    away = sign * (sampled.draws - sampled.value)[:, varies]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(away == 0, 0.0, away / sampled.errors[:, varies])
    c = float(np.quantile(ratio.max(axis=1), confidence, method="higher"))
    margin = np.zeros_like(sampled.value)
    margin[varies] = c * sampled.error[varies]
    return sampled.value - sign * margin


# ------------------------------------------------------------------------------------------
# Figures


def sample(demand: Demand, target: Outcome, points: Sequence[Outcome], seed: int) -> Sampled:
    """The figure that a demand limits, of each point. Raises ConfigError where nothing was scored."""
    if demand.of_time:
        unit = seconds(target) if demand.kind == "ceiling" else 0.001
        return times([seconds(o) for o in points], unit, seed)
    rows = [o.quality.rows for o in (target, *points)]
    if any(r is None for r in rows):
        raise ConfigError(f"{demand.kind}: {target.quality.figures.get('why', 'nothing was scored')}")
    return scores(rows[1:], seed, rows[0] if demand.kind == "loss" else None)


def scores(rows: Sequence[np.ndarray], seed: int, less: np.ndarray | None = None) -> Sampled:
    """Corpus scores of points, or what they are above those of `less`, on the same examples.

    rows, less: scores [n], or BLEU counts [n, 10]. Errors are the delta method's, from the slope of a score.
    """
    n = len(rows[0])
    weights = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), RESAMPLES)
    weights = np.concatenate([np.ones((1, n), weights.dtype), weights])  # the sample itself comes first
    other = (0.0, 0.0) if less is None else _figure(_columns(less), weights)
    figures = (_figure(_columns(r), weights) for r in rows)  # one at a time: each is [R, n]
    both = [(value - other[0], _error(added - other[1], weights)) for value, added in figures]
    value, error = (np.stack(x, axis=1) for x in zip(*both, strict=True))
    return Sampled(value[0], error[0], value[1:], error[1:], n)


def _columns(rows: np.ndarray) -> np.ndarray:
    return rows[:, None] if rows.ndim == 1 else rows


def _figure(rows: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The score [R] of rows [n, k] in each resample; what each example adds to it, to first order [R, n]."""
    totals, n = weights @ rows, len(rows)
    if rows.shape[1] == 1:
        return totals[:, 0] / n, np.broadcast_to(rows[:, 0], weights.shape)
    value = np.array([text.bleu_of(total) for total in totals])
    return value, n * (value[:, None] * _slope(totals)) @ rows.T


def _slope(totals: np.ndarray) -> np.ndarray:
    """The derivative of log BLEU by its counts [R, 10]: 1/4 sum (log m - log t) + min(0, 1 - ref / sys).

    m and t are matches and n-grams of four orders; an order without a match is smoothed, and counts as flat.
    """
    over = lambda x: np.where(x > 0, 1 / (4 * np.maximum(x, 1)), 0.0)
    m, t, (sys, ref) = totals[:, :4], totals[:, 4:8], np.maximum(totals[:, 8:], 1).T
    short = (sys < ref).astype(float)
    lengths = np.stack([short * ref / sys**2, -short / sys], axis=1)
    return np.concatenate([over(m), -over(t) * (m > 0), lengths], axis=1)


def _error(added: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The standard error [R] of the mean of what examples add [R, n], weighted."""
    n = weights.shape[1]
    mean = (weights * added).sum(axis=1, keepdims=True) / n
    return np.sqrt((weights * (added - mean) ** 2).sum(axis=1) / n / (n - 1))


def times(own: Sequence[np.ndarray], unit: np.ndarray | float, seed: int) -> Sampled:
    """Median over batches of seconds [repeats, n] / unit; a batch is resampled with all its repeats.

    A median has no error of its own in a resample: that of all of them stands for it.
    """
    ratios = [x / unit for x in own]
    n = ratios[0].shape[1]
    chosen = np.random.default_rng(seed).integers(0, n, (RESAMPLES, n))
    draws = np.stack([np.median(r[:, chosen], axis=(0, 2)) for r in ratios], axis=1)
    error = draws.std(axis=0) * (n / (n - 1)) ** 0.5
    return Sampled(
        np.array([np.median(r) for r in ratios]), error, draws, np.broadcast_to(error, draws.shape), n
    )


def seconds(outcome: Outcome) -> np.ndarray:
    """Seconds of each batch [repeats, batches]."""
    repeats = 1 + max(b["repeat"] for b in outcome.batches)
    return np.array([b["seconds"] for b in outcome.batches]).reshape(repeats, -1)
