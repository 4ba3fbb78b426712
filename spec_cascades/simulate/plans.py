"""A point's answers as work for pools of servers: one pool, or a drafters' and a targets' in turn."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from spec_cascades.simulate import costs, traces
from spec_cascades.simulate.costs import Table
from spec_cascades.simulate.queue import Seconds, Work, serve
from spec_cascades.simulate.settings import Simulate
from spec_cascades.simulate.traces import Trace


class Pool(NamedTuple):
    """Servers of one kind, and what each answer of a trace asks of them: None for nothing."""

    works: list[Work | None]
    seconds: Seconds
    kinds: int
    servers: int


class Times(NamedTuple):
    """Of each request [n], seconds: in line before its first batch, to its first token, to its end.

    busy, row_seconds: of all pools (`queue.Served`); ended: when the last server stood still.
    """

    waiting: np.ndarray
    first: np.ndarray
    latency: np.ndarray
    busy: float
    row_seconds: float
    ended: float


def pools(trace: Trace, table: Table, asked: Simulate, seed: int) -> list[Pool]:
    """What serves a point's answers: one pool, but two where a sequence cascade's are apart."""
    d, answers = trace.decoding, trace.answers
    if d.method == "sequence":
        return _sequence(trace, table, asked)
    if d.method == "token":
        rng = np.random.default_rng(seed)
        works = [traces.token_cascade(a, rng) for a in answers]
        return [Pool(works, costs.token_cascade(table), 4, asked.servers)]
    if d.method == "speculative":
        seconds = costs.speculation(table, d.rule, d.gamma)
    else:
        seconds = costs.alone(table, d.method)
    steps = [a.drafter_calls if d.method == "drafter" else a.target_calls for a in answers]
    return [Pool([traces.target_alone(n) for n in steps], seconds, 2, asked.servers)]


def _sequence(trace: Trace, table: Table, asked: Simulate) -> list[Pool]:
    stages = [traces.sequence_cascade(a) for a in trace.answers]
    if not asked.drafter_servers:
        works = [first if second is None else _joined(first, second) for first, second in stages]
        return [Pool(works, costs.both_stages(table), 4, asked.servers)]
    first, second = ([stage[i] for stage in stages] for i in (0, 1))
    rest = asked.servers - asked.drafter_servers
    return [
        Pool(first, costs.first_stage(table), 2, asked.drafter_servers),
        Pool(second, costs.second_stage(table), 2, rest),
    ]


def _joined(first: Work, second: Work) -> Work:
    """Both stages on one server: the target's kinds follow the drafter's."""
    kinds = (*first.kinds, *(kind + 2 for kind in second.kinds))
    return Work(kinds, (*first.counts, *second.counts), len(first.kinds) + second.shown)


def simulate(pools: Sequence[Pool], arrivals: np.ndarray, which: np.ndarray, slots: int) -> Times:
    """Request i comes at arrivals[i] (ascending) and asks for the answer which[i] of the trace."""
    now, first = arrivals.copy(), np.full(len(arrivals), np.nan)
    waiting, busy, row_seconds = np.zeros(len(arrivals)), 0.0, 0.0
    for pool in pools:
        todo = np.array([i for i, answer in enumerate(which) if pool.works[answer] is not None], int)
        todo = todo[np.argsort(now[todo], kind="stable")]
        works = [pool.works[which[i]] for i in todo]
        served = serve(now[todo], works, pool.seconds, pool.kinds, pool.servers, slots)
        waiting[todo] += served.joined - now[todo]
        now[todo] = served.finished
        shown = ~np.isnan(served.first)
        first[todo[shown]] = served.first[shown]
        busy, row_seconds = busy + served.busy, row_seconds + served.row_seconds
    return Times(waiting, first - arrivals, now - arrivals, busy, row_seconds, float(now.max()))


def capacity(pools: Sequence[Pool], slots: int, seed: int) -> float:
    """Requests a second where somebody is always waiting, of the pool that is full first.

    From one server with a full line, between the fifth and the fourth fifth of the answers that end.
    """
    rng, found = np.random.default_rng(seed), []
    for pool in pools:
        asked = [work for work in pool.works if work is not None]
        if not asked:
            continue
        n = 100 * slots
        works = [asked[i] for i in rng.integers(len(asked), size=n)]
        ends = np.sort(serve(np.zeros(n), works, pool.seconds, pool.kinds, 1, slots).finished)
        low, high = n // 5, 4 * n // 5
        rate = (high - low) / (ends[high] - ends[low])
        found.append(pool.servers * rate * len(pool.works) / len(asked))
    return float(min(found))
