"""When requests come: Poisson, or in bursts (a Poisson process whose rate switches between two values)."""

import numpy as np

from spec_cascades.simulate.settings import Bursts


def poisson(rng: np.random.Generator, n: int, rate: float) -> np.ndarray:
    """Times [n], ascending, at `rate` a second."""
    return np.cumsum(rng.exponential(1.0, n)) / rate


def bursty(rng: np.random.Generator, n: int, rate: float, bursts: Bursts) -> np.ndarray:
    """Times [n], ascending, at `rate` a second on average, begun in either state as often as it holds.

    The k-th comes where the integral of the rate reaches a unit Poisson process's k-th time.
    """
    unit = np.cumsum(rng.exponential(1.0, n))
    quiet, high = levels(bursts)
    in_burst = bool(rng.random() < bursts.share)
    ends, grown = [0.0], [0.0]
    while grown[-1] < unit[-1]:
        mean = bursts.seconds if in_burst else bursts.seconds * (1 - bursts.share) / bursts.share
        length = rng.exponential(mean)
        ends.append(ends[-1] + length)
        grown.append(grown[-1] + length * rate * (high if in_burst else quiet))
        in_burst = not in_burst
    return np.interp(unit, grown, ends)


def levels(bursts: Bursts) -> tuple[float, float]:
    """The rate between and in bursts, of the mean rate."""
    return (1 - bursts.share * bursts.factor) / (1 - bursts.share), bursts.factor


def dispersion(rate: float, bursts: Bursts) -> float:
    """Variance over mean of the number that comes in a long time; 1 for a Poisson process.

    1 + 2 (high - quiet)^2 share (1 - share) tau rate, with rates of the mean and tau the mean burst times
    (1 - share): the time in which the state is forgotten (Fischer and Meier-Hellstern 1993, for two states).
    """
    quiet, high = levels(bursts)
    forgotten = bursts.seconds * (1 - bursts.share)
    return 1 + 2 * (high - quiet) ** 2 * bursts.share * (1 - bursts.share) * forgotten * rate
