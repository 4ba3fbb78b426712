import numpy as np
import pytest

from spec_cascades.simulate import arrivals
from spec_cascades.simulate.settings import Bursts

BURSTS = Bursts(factor=5.0, share=0.1, seconds=2.0)


def counts(times, window):
    """How many come in each whole window."""
    return np.histogram(times, np.arange(0, times[-1], window))[0]


def test_poisson_arrivals_have_their_rate_and_a_variance_as_large_as_their_mean():
    times = arrivals.poisson(np.random.default_rng(0), 200_000, 50.0)
    found = counts(times, 1.0)
    assert (np.diff(times) > 0).all()
    assert found.mean() == pytest.approx(50, rel=0.02)
    assert found.var() / found.mean() == pytest.approx(1, rel=0.1)


def test_bursts_keep_the_mean_rate_and_have_the_stated_dispersion():
    times = arrivals.bursty(np.random.default_rng(1), 1_000_000, 20.0, BURSTS)
    assert (np.diff(times) > 0).all()
    assert len(times) / times[-1] == pytest.approx(20, rel=0.03)
    # Windows many times as long as a burst: there the index has reached its limit.
    found = counts(times, 200.0)
    said = arrivals.dispersion(20.0, BURSTS)
    assert said == pytest.approx(1 + 2 * (5 - 0.5 / 0.9) ** 2 * 0.09 * 1.8 * 20)
    assert found.var() / found.mean() == pytest.approx(said, rel=0.3)


def test_a_burst_has_its_factor_times_the_rate_for_its_share_of_the_time():
    times = arrivals.bursty(np.random.default_rng(2), 400_000, 100.0, BURSTS)
    rates = counts(times, 0.25) / 0.25
    quiet, high = arrivals.levels(BURSTS)
    assert 0.1 * high + 0.9 * quiet == pytest.approx(1)
    between = (quiet + high) / 2 * 100
    assert np.mean(rates > between) == pytest.approx(0.1, abs=0.03)
    assert np.median(rates[rates > between]) == pytest.approx(high * 100, rel=0.05)
    assert np.median(rates[rates < between]) == pytest.approx(quiet * 100, rel=0.05)


def test_the_same_seed_gives_the_same_times():
    one, two = (arrivals.bursty(np.random.default_rng(3), 100, 5.0, BURSTS) for _ in range(2))
    assert (one == two).all()
    assert (one != arrivals.bursty(np.random.default_rng(4), 100, 5.0, BURSTS)).all()
