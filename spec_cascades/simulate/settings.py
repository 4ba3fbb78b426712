"""What a simulation is made of: plain frozen data, filled by `config.load`."""

from dataclasses import dataclass, field
from itertools import pairwise

from spec_cascades.checks import ConfigError, require

PROCESSES = ("poisson", "bursty")


@dataclass(frozen=True)
class Bursts:
    """Two-state arrivals: `factor` times the mean rate in bursts, which take `share` of the time.

    seconds: a burst's mean length; lengths are exponential, and the rate between bursts is what keeps the
    mean. Raises ConfigError where factor * share > 1, which would leave less than none between them.
    """

    factor: float = 4.0
    share: float = 0.1
    seconds: float = 5.0

    def __post_init__(self) -> None:
        require("share", self.share, 0 < self.share < 1, "in (0, 1)")
        require("seconds", self.seconds, self.seconds > 0, "a positive number")
        most = 1 / self.share
        require("factor", self.factor, 1 < self.factor <= most, f"in (1, {most:g}], 1 / share at most")


@dataclass(frozen=True)
class Simulate:
    """Queueing under load: `simulate`.

    run: a run folder whose logged answers are the work; call_times: a record of scripts/call_times.py for the
    same models; rates: requests a second to the whole fleet; servers: chips, each with both models, of
    max_batch rows; drafter_servers: so many of them have the drafter alone and the rest the target alone
    where a sequence cascade runs (0: all have both); requests: of each simulation; arrivals: poisson, bursty;
    points: names of the run's points, empty for all; warmup: the share of requests, the first to come, that
    no figure counts. Raises ConfigError for a value out of range.
    """

    run: str
    call_times: str
    output: str
    rates: list[float]
    servers: int = 1
    max_batch: int = 8
    drafter_servers: int = 0
    requests: int = 10000
    warmup: float = 0.1
    arrivals: list[str] = field(default_factory=lambda: list(PROCESSES))
    bursts: Bursts = Bursts()
    points: list[str] = field(default_factory=list)
    seed: int = 0

    def __post_init__(self) -> None:
        for key in ("servers", "max_batch"):
            require(key, getattr(self, key), getattr(self, key) >= 1, "1 or more")
        require("requests", self.requests, self.requests >= 100, "100 or more")
        require("warmup", self.warmup, 0 <= self.warmup <= 0.9, "in [0, 0.9]")
        require("seed", self.seed, self.seed >= 0, "0 or more")
        require("rates", self.rates, _ascending(self.rates), "positive numbers, ascending, at least one")
        fits = 0 <= self.drafter_servers < self.servers
        require("drafter_servers", self.drafter_servers, fits, "0 or more, less than servers")
        known = bool(self.arrivals) and set(self.arrivals) <= set(PROCESSES)
        if not known or len(set(self.arrivals)) < len(self.arrivals):
            raise ConfigError(f"arrivals: {self.arrivals} must be some of {', '.join(PROCESSES)}, once each")


def _ascending(rates: list[float]) -> bool:
    return bool(rates) and rates[0] > 0 and all(a < b for a, b in pairwise(rates))
