"""Latency, time to first token and cost against the request rate, and one request at a time as measured."""

from collections.abc import Callable
from typing import Any

import numpy as np

from spec_cascades.simulate import arrivals as comes
from spec_cascades.simulate import plans
from spec_cascades.simulate.costs import Table
from spec_cascades.simulate.plans import Pool
from spec_cascades.simulate.settings import Simulate
from spec_cascades.simulate.traces import Trace

Row = dict[str, Any]


def arrivals(asked: Simulate, process: str, rate: float) -> np.ndarray:
    """Times of the requests [n]: the same for every point."""
    rng = np.random.default_rng([asked.seed, 1])
    if process == "poisson":
        return comes.poisson(rng, asked.requests, rate)
    return comes.bursty(rng, asked.requests, rate, asked.bursts)


def curve(asked: Simulate, trace: Trace, table: Table, advance: Callable[[int], None]) -> list[Row]:
    """A point's rows, one for each arrival process and rate."""
    pools = plans.pools(trace, table, asked, asked.seed)
    most = plans.capacity(pools, asked.max_batch, asked.seed)
    which = np.random.default_rng([asked.seed, 2]).integers(len(trace.answers), size=asked.requests)
    rows = []
    for process in asked.arrivals:
        for rate in asked.rates:
            rows.append(_row(asked, trace, pools, process, rate, most, which))
            advance(1)
    return rows


def _row(
    asked: Simulate,
    trace: Trace,
    pools: list[Pool],
    process: str,
    rate: float,
    most: float,
    which: np.ndarray,
) -> Row:
    at = arrivals(asked, process, rate)
    times = plans.simulate(pools, at, which, asked.max_batch)
    counted = slice(int(asked.warmup * asked.requests), None)
    return {
        "point": trace.name,
        "arrivals": process,
        "dispersion": 1.0 if process == "poisson" else comes.dispersion(rate, asked.bursts),
        "rate": rate,
        "capacity": most,
        "saturated": rate >= most,
        "latency": percentiles(times.latency[counted]),
        "first_token": percentiles(times.first[counted]),
        "waiting": percentiles(times.waiting[counted]),
        "busy_seconds_per_answer": times.busy / asked.requests,
        "utilisation": times.busy / (asked.servers * times.ended),
        "rows_in_batch": times.row_seconds / times.busy,
        "servers": asked.servers,
        "requests": asked.requests,
        "seed": asked.seed,
        "quality": trace.quality,
    }


def percentiles(seconds: np.ndarray) -> dict[str, float]:
    """Mean, p50, p90 and p99."""
    p50, p90, p99 = np.quantile(seconds, [0.5, 0.9, 0.99])
    return {"mean": float(seconds.mean()), "p50": float(p50), "p90": float(p90), "p99": float(p99)}


def one_at_a_time(asked: Simulate, trace: Trace, table: Table) -> np.ndarray:
    """Simulated seconds [n] of each answer with nothing else in the fleet."""
    pools = [pool._replace(servers=1) for pool in plans.pools(trace, table, asked, asked.seed)]
    one = lambda i: plans.simulate(pools, np.zeros(1), np.array([i]), 1).latency[0]
    return np.array([one(i) for i in range(len(trace.answers))])


def agreement(asked: Simulate, trace: Trace, table: Table) -> Row | None:
    """One request at a time, simulated against measured; None where no answer was measured alone."""
    measured = np.array([np.nan if a.seconds is None else a.seconds for a in trace.answers])
    if np.isnan(measured).any():
        return None
    simulated = one_at_a_time(asked, trace, table)
    return {
        "point": trace.name,
        "answers": len(measured),
        "measured": percentiles(measured),
        "simulated": percentiles(simulated),
        "mean_ratio": float(simulated.mean() / measured.mean()),
        "median_ratio": float(np.median(simulated / measured)),
        "off_by_10_percent": float(np.mean(np.abs(simulated / measured - 1) > 0.1)),
    }
