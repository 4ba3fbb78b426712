import math

import numpy as np
import pytest
import stepwise

from spec_cascades.simulate.queue import Work, serve

ONE = Work((0,), (1,), 0)


def poisson(seed, n, rate):
    return np.cumsum(np.random.default_rng(seed).exponential(1 / rate, n))


def drawn(rng, kinds):
    """Random work of one to four parts."""
    parts = rng.integers(1, 5)
    return Work(
        tuple(rng.integers(kinds, size=parts).tolist()),
        tuple(rng.integers(1, 9, size=parts).tolist()),
        int(rng.integers(parts)),
    )


def uneven(counts):
    """A step time that depends on the kinds and not only on how many rows there are."""
    return sum((0.1 + 0.07 * kind) * n**0.6 for kind, n in enumerate(counts)) + 0.013


@pytest.mark.parametrize("rho", [0.3, 0.6, 0.8])
def test_fixed_service_waits_as_m_d_1(rho):
    """Pollaczek and Khinchine: rho / (2 (1 - rho)). 40,000 arrivals: one standard error is under 2 %."""
    at = poisson(0, 40_000, rho)
    served = serve(at, [ONE] * len(at), lambda counts: 1.0, 1, 1, 1)
    assert np.mean(served.joined - at) == pytest.approx(rho / 2 / (1 - rho), rel=0.06)
    assert served.busy == pytest.approx(len(at))


def test_exponential_service_waits_as_m_m_c():
    """Erlang's C with 3 servers at 75 %."""
    c, rho = 3, 0.75
    a, rng = c * rho, np.random.default_rng(1)
    works = [Work((0,), (max(1, round(x * 200)),), 0) for x in rng.exponential(1, 40_000)]
    at = poisson(2, len(works), a)
    served = serve(at, works, lambda counts: 1 / 200, 1, c, 1)
    last = a**c / math.factorial(c) / (1 - rho)
    waits = last / (sum(a**k / math.factorial(k) for k in range(c)) + last)
    assert np.mean(served.joined - at) == pytest.approx(waits / (c - a), rel=0.08)


def test_a_batch_whose_step_grows_with_its_rows_shares_the_server():
    """Processor sharing: a mean stay of 1 / (1 - rho), whatever the law of the service."""
    rng = np.random.default_rng(3)
    works = [Work((0,), (max(1, round(x * 100)),), 0) for x in rng.exponential(1, 30_000)]
    at = poisson(4, len(works), 0.6)
    served = serve(at, works, lambda counts: counts[0] / 100, 1, 1, 10**6)
    assert np.mean(served.finished - at) == pytest.approx(1 / (1 - 0.6), rel=0.06)


def test_a_lone_request_takes_the_sum_of_its_steps():
    work = Work((0, 1, 2), (1, 7, 3), 1)
    times = {(1, 0, 0): 0.25, (0, 1, 0): 0.5, (0, 0, 1): 2.0}
    served = serve(np.array([4.0, 1000.0]), [work] * 2, times.__getitem__, 3, 1, 8)
    assert served.finished.tolist() == [4 + 0.25 + 3.5 + 6, 1000 + 0.25 + 3.5 + 6]
    assert served.first.tolist() == [4 + 3.75, 1000 + 3.75]
    assert served.busy == served.row_seconds == 2 * 9.75


def test_who_comes_within_a_step_joins_at_its_end():
    """Steps of 1 s for one row and 1.5 s for two: worked out by hand."""
    works = [Work((0,), (4,), 0), Work((0,), (2,), 0)]
    served = serve(np.array([0.0, 1.2]), works, lambda counts: 0.5 + counts[0] / 2, 1, 1, 2)
    assert served.joined.tolist() == [0.0, 2.0]
    assert served.finished.tolist() == [2 + 2 * 1.5, 5.0]
    assert served.row_seconds == 2 + 2 * 3


def test_a_full_fleet_lets_them_wait_in_the_order_they_came():
    served = serve(np.array([0.0, 0.1, 0.2, 0.3]), [ONE] * 4, lambda counts: 1.0, 1, 1, 1)
    assert served.finished.tolist() == [1, 2, 3, 4]
    assert serve(np.zeros(4), [ONE] * 4, lambda counts: 1.0, 1, 4, 1).finished.tolist() == [1] * 4


def test_requests_spread_over_the_emptiest_servers():
    served = serve(np.zeros(6), [ONE] * 6, lambda counts: float(counts[0]), 1, 3, 6)
    # The first three begin alone; each of the others joins one of them at the end of its step.
    assert sorted(served.finished) == [1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("seed", range(12))
def test_leaping_over_steps_changes_nothing(seed):
    rng = np.random.default_rng(seed)
    servers, slots, kinds = int(rng.integers(1, 5)), int(rng.integers(1, 6)), 3
    works = [drawn(rng, kinds) for _ in range(150)]
    at = np.cumsum(rng.exponential(0.8 / servers, len(works)))
    served = serve(at, works, uneven, kinds, servers, slots)
    plain = stepwise.serve(at, works, uneven, kinds, servers, slots)
    for ours, theirs in zip(served[:3], plain, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)


def test_everybody_ends_once_and_the_servers_agree_with_little():
    """The batches' row-seconds, counted by the servers, are the time that requests spent in them."""
    rng = np.random.default_rng(5)
    works = [drawn(rng, 3) for _ in range(3000)]
    at = poisson(6, len(works), 4.0)
    served = serve(at, works, uneven, 3, 20, 4)
    assert np.isfinite([served.joined, served.first, served.finished]).all()
    assert (served.joined >= at).all()
    assert (served.first > served.joined).all()
    assert (served.finished >= served.first).all()
    assert served.row_seconds == pytest.approx(np.sum(served.finished - served.joined))
    assert served.busy <= 20 * served.finished.max()
