"""A fleet of servers, each advancing a batch of rows a step at a time: arrivals and work to times.

A server's rows step together (continuous batching at the granularity of a block): a step takes what `seconds`
says of the rows in it, and a row that has come or ended joins or leaves between two steps. A request goes to
the server with the fewest rows, and where all are full it waits in one line, first come first served.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np


class Work(NamedTuple):
    """What one request needs: in turn, counts[i] steps of kind kinds[i], each count at least 1.

    shown: the first token is there once part kinds[shown] is done.
    """

    kinds: tuple[int, ...]
    counts: tuple[int, ...]
    shown: int


Seconds = Callable[[tuple[int, ...]], float]
"""The time of a step, from how many of its rows are at each kind."""


class Served(NamedTuple):
    """Times of each request [n] and what the servers did; seconds from the same zero as the arrivals.

    joined: left the line for a batch; busy: server-seconds with at least one row; row_seconds: busy time
    weighted by the rows in it.
    """

    joined: np.ndarray
    first: np.ndarray
    finished: np.ndarray
    busy: float
    row_seconds: float


class _Server:
    """One batch. clock: steps so far; ends: (clock at which a row's part ends, request, part)."""

    __slots__ = ("began", "clock", "counts", "ends", "joining", "load", "step", "steps", "version")

    def __init__(self, kinds: int) -> None:
        self.ends: list[tuple[int, int, int]] = []
        self.counts = [0] * kinds
        self.joining: list[int] = []
        self.clock = self.load = self.version = self.steps = 0
        self.began = self.step = 0.0


def serve(
    arrivals: np.ndarray, works: Sequence[Work], seconds: Seconds, kinds: int, servers: int, slots: int
) -> Served:
    """Every request (arrivals [n], ascending; works[i] is its work) through `servers` of `slots` rows."""
    return _Fleet(arrivals, works, seconds, kinds, servers, slots).run()


class _Fleet:
    """The state of one simulation. Between two changes of a batch its steps are alike, so one event takes
    them all; an arrival that joins in between cuts them short.
    """

    def __init__(
        self,
        arrivals: np.ndarray,
        works: Sequence[Work],
        seconds: Seconds,
        kinds: int,
        servers: int,
        slots: int,
    ) -> None:
        self.arrivals, self.works, self.seconds, self.slots = arrivals.tolist(), works, seconds, slots
        self.servers = [_Server(kinds) for _ in range(servers)]
        self.events: list[tuple[float, int, int]] = []
        self.freest = [(0, i) for i in range(servers)]
        self.line: deque[int] = deque()
        n = len(works)
        self.joined, self.first, self.finished = [math.nan] * n, [math.nan] * n, [math.nan] * n
        self.busy = self.row_seconds = 0.0

    def run(self) -> Served:
        for request, now in enumerate(self.arrivals):
            while self.events and self.events[0][0] <= now:
                self._event(*heapq.heappop(self.events))
            self._arrive(request, now)
        while self.events:
            self._event(*heapq.heappop(self.events))
        times = (np.asarray(x) for x in (self.joined, self.first, self.finished))
        return Served(*times, self.busy, self.row_seconds)

    def _arrive(self, request: int, now: float) -> None:
        place = self._freest()
        if place is None:
            self.line.append(request)
            return
        server = self.servers[place]
        server.joining.append(request)
        self._loaded(place, 1)
        if server.load == 1:
            self._begin(place, now)
            return
        # A full line means full servers, so this server has no other change before the end of its step.
        steps = max(1, math.ceil((now - server.began) / server.step))
        if steps < server.steps:
            self._schedule(place, steps)

    def _freest(self) -> int | None:
        """The server with the fewest rows; None where all are full."""
        while self.freest:
            load, place = self.freest[0]
            if self.servers[place].load == load:
                return place
            heapq.heappop(self.freest)
        return None

    def _loaded(self, place: int, change: int) -> None:
        server = self.servers[place]
        server.load += change
        if server.load < self.slots:
            heapq.heappush(self.freest, (server.load, place))

    def _event(self, now: float, place: int, version: int) -> None:
        """The end of a server's steps: rows go on to their next part or end, and the next steps begin."""
        server = self.servers[place]
        if server.version != version:
            return
        spent = server.steps * server.step
        self.busy += spent
        self.row_seconds += spent * len(server.ends)
        server.clock += server.steps
        while server.ends and server.ends[0][0] == server.clock:
            _, request, part = heapq.heappop(server.ends)
            self._part_done(place, request, part, now)
        self._begin(place, now)

    def _part_done(self, place: int, request: int, part: int, now: float) -> None:
        server, work = self.servers[place], self.works[request]
        server.counts[work.kinds[part]] -= 1
        if part == work.shown:
            self.first[request] = now
        if part + 1 < len(work.kinds):
            self._enter(server, request, part + 1)
            return
        self.finished[request] = now
        if self.line:
            server.joining.append(self.line.popleft())
        else:
            self._loaded(place, -1)

    def _enter(self, server: _Server, request: int, part: int) -> None:
        work = self.works[request]
        server.counts[work.kinds[part]] += 1
        heapq.heappush(server.ends, (server.clock + work.counts[part], request, part))

    def _begin(self, place: int, now: float) -> None:
        """Takes in who is joining, and steps until the batch changes."""
        server = self.servers[place]
        for request in server.joining:
            self.joined[request] = now
            self._enter(server, request, 0)
        server.joining.clear()
        if not server.ends:
            server.version += 1
            return
        server.began, server.step = now, self.seconds(tuple(server.counts))
        self._schedule(place, server.ends[0][0] - server.clock)

    def _schedule(self, place: int, steps: int) -> None:
        server = self.servers[place]
        server.version += 1
        server.steps = steps
        heapq.heappush(self.events, (server.began + steps * server.step, place, server.version))
