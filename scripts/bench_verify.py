"""What accepting and correcting drafts costs: python scripts/bench_verify.py [--batch 1 16 64]

Random models of a large vocabulary, gamma + 1 positions a row; two measurements for each rule, and the
filters' cost. `verify`: acceptance and residual alone, the four distributions of the pair being there before
the clock starts. `path`: from both models' logits and the drafter's q to the verdict; p and both raw
distributions are made (a block of speculation makes the drafter's own while it drafts, which costs the same).
`filters`: from one model's logits to what is drawn from, plain and filtered, beside a sort of them.

The yardstick is one read of the two logit arrays, [batch, gamma + 1, vocab] in float32, at the bandwidth that
two jitted sums over arrays of that size reach at best in the same run (small arrays stay in the processor's
cache, and are read at its speed). `reads` is the median time over that read, `reads_paired` the median over
rounds of a time over the read beside it; `temp` is the compiled function's temporary memory over the size of
the two arrays. All alternate. Ends in one JSON line.
"""

import argparse
import json
import math
import resource
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.table import Table

from spec_cascades import rules
from spec_cascades.probs import Pair, Sampling, distribution, draw, raw
from spec_cascades.sweep import versions
from spec_cascades.typing import Array
from spec_cascades.verify import Noise, Verdict, verify

RULES = ("opt", "v3", "lossless")
READS = {
    # Which of the two is parallel depends on the shape; the faster one counts.
    "read_flat": lambda a, b: jnp.sum(a) + jnp.sum(b),
    "read_rows": lambda a, b: jnp.sum(a, axis=-1) + jnp.sum(b, axis=-1),
}
FILTERS = {"plain": {}, "top_k": {"top_k": 40}, "top_p": {"top_p": 0.9}, "min_p": {"min_p": 0.05}}
Shape = tuple[int, int, int]


class Job(NamedTuple):
    """Something to time, and the bytes that XLA sets aside for it beyond arguments and results."""

    run: Callable[[], Any]
    temp_bytes: int


def compiled(f: Callable[..., Any], *args: Any) -> Job:
    call = jax.jit(f).lower(*args).compile()
    return Job(lambda: call(*args), call.memory_analysis().temp_size_in_bytes)


# ----------------------------------------------------------------------------------------------------
# What is measured


def verify_jobs(names: list[str], shape: Shape, seed: int) -> dict[str, Job]:
    """Acceptance and residual from a finished pair, and a read of two of its arrays."""
    noise, drafts, q_logits, p_logits, q = block(shape, seed)
    # One call each: the four arrays must not share memory, as they might out of one compiled function.
    softmax = jax.jit(raw)
    pair = Pair(q, softmax(p_logits), softmax(q_logits), softmax(p_logits))

    def job(name: str) -> Job:
        def run(noise: Noise, drafts: Array, pair: Pair, alpha: Array) -> Verdict:
            return verify(noise, drafts, every(drafts), pair, rules.get(name), alpha)

        return compiled(run, noise, drafts, pair, alphas(name, shape))

    reads = {name: compiled(f, pair.q, pair.p) for name, f in READS.items()}
    return reads | {name: job(name) for name in names}


def path_jobs(names: list[str], shape: Shape, seed: int) -> dict[str, Job]:
    """Logits to verdict with `decode.speculative`'s own functions, given q, from which the drafts come."""
    noise, drafts, q_logits, p_logits, q = block(shape, seed)
    fill = lambda value, dtype: jnp.full(shape[0], value, dtype)
    sampling = Sampling(fill(1, jnp.float32), fill(0, jnp.int32), fill(1, jnp.float32), fill(0, jnp.float32))

    def job(name: str) -> Job:
        def run(
            noise: Noise, drafts: Array, q: Array, logits: tuple[Array, Array], s: Sampling, alpha: Array
        ) -> Verdict:
            pair = Pair(q, distribution(logits[1], s), raw(logits[0]), raw(logits[1]))
            return verify(noise, drafts, every(drafts), pair, rules.get(name), alpha)

        return compiled(run, noise, drafts, q, (q_logits, p_logits), sampling, alphas(name, shape))

    reads = {name: compiled(f, q_logits, p_logits) for name, f in READS.items()}
    return reads | {name: job(name) for name in names}


def filter_jobs(names: list[str], shape: Shape, seed: int) -> dict[str, Job]:
    """One model's logits to p under each filter alone; a sort of the logits, which no filter needs."""
    _, _, q_logits, p_logits, _ = block(shape, seed)
    plain = {"temperature": 0.8, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    jobs = {name: compiled(f, q_logits, p_logits) for name, f in READS.items()}
    for name, own in FILTERS.items():
        s = Sampling(*(jnp.full(shape[0], x) for x in (plain | own).values()))
        jobs[name] = compiled(distribution, p_logits, s)
    return jobs | {"sort": compiled(lambda x: jnp.sort(x, axis=-1), p_logits)}


def block(shape: Shape, seed: int) -> tuple[Noise, Array, Array, Array, Array]:
    """Noise, drafts from q, both models' logits and q (temperature 1, no filter), as two related models."""
    keys = jax.random.split(jax.random.key(seed), 3)
    noise = Noise(*jax.random.uniform(keys[0], (3, *shape[:2])))
    p_logits = jax.jit(lambda key: 4.0 * jax.random.normal(key, shape))(keys[1])
    q_logits = jax.jit(lambda key, x: x + jax.random.normal(key, shape))(keys[2], p_logits)
    q = jax.jit(raw)(q_logits)
    return noise, jax.jit(draw)(q, noise.draft), q_logits, p_logits, q


def every(drafts: Array) -> Array:
    """How many drafts of each row were proposed: all but the place of the bonus token."""
    return jnp.full(drafts.shape[0], drafts.shape[1] - 1, jnp.int32)


def alphas(rule: str, shape: Shape) -> Array:
    return jnp.full(shape[0], rules.get(rule).default, jnp.float32)


PARTS = {"verify": verify_jobs, "path": path_jobs, "filters": filter_jobs}


# ----------------------------------------------------------------------------------------------------
# Measuring


def measure(names: list[str], shape: Shape, rounds: int, seed: int) -> dict[str, Any]:
    """Of each part and rule: ms, multiples of one read, temporary memory as a multiple of the two arrays."""
    both = 2 * 4 * math.prod(shape)
    seen, temp = {}, {}
    for part, make in PARTS.items():
        jobs = make(names, shape, seed)
        seen[part] = alternate({name: job.run for name, job in jobs.items()}, rounds)
        temp[part] = {name: round(job.temp_bytes / both, 3) for name, job in jobs.items()}
        del jobs  # they hold the part's arrays
    best = min(min(times[name]) for times in seen.values() for name in READS)
    figures: dict[str, Any] = {"read_ms": round(1e3 * best, 4), "gb_per_s": round(both / best / 1e9, 2)}
    for part, times in seen.items():
        beside = min((times[name] for name in READS), key=statistics.median)
        figures[part] = {
            name: multiples(own, best, beside) | {"temp": temp[part][name]}
            for name, own in times.items()
            if name not in READS
        }
    return figures


def multiples(times: list[float], best: float, beside: list[float]) -> dict[str, float]:
    middle = statistics.median(times)
    paired = statistics.median(t / r for t, r in zip(times, beside, strict=True))
    return {"ms": round(1e3 * middle, 4), "reads": round(middle / best, 3), "reads_paired": round(paired, 3)}


def alternate(runs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each in every round, after one round that does not count."""
    seen: dict[str, list[float]] = {name: [] for name in runs}
    for i in range(rounds + 1):
        for name, run in runs.items():
            began = time.perf_counter()
            jax.block_until_ready(run())
            if i:
                seen[name].append(time.perf_counter() - began)
    return seen


def show(rows: dict[str, dict[str, Any]]) -> None:
    """The figures as a table on stderr."""
    table = Table("batch", "part", "rule", "ms", "reads", "paired", "temp", "read ms", "GB/s")
    for batch, figures in rows.items():
        for part in PARTS:
            for rule, own in figures[part].items():
                cells = [*own.values(), figures["read_ms"], figures["gb_per_s"]]
                table.add_row(batch.removeprefix("batch_"), part, rule, *map(str, cells))
    Console(stderr=True).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vocab", type=int, default=256_000)
    parser.add_argument("--gamma", type=int, default=5)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--rules", nargs="+", default=list(RULES), choices=sorted(rules.RULES))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args()
    shape = lambda b: (b, a.gamma + 1, a.vocab)
    rows = {f"batch_{b}": measure(a.rules, shape(b), a.rounds, a.seed) for b in a.batch}
    show(rows)
    given = {"vocab": a.vocab, "gamma": a.gamma, "rounds": a.rounds, "unit": "ms", "machine": versions()}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # kilobytes on Linux
    print(json.dumps({"bench": "verify"} | given | {"peak_rss_gb": round(peak, 2)} | rows))


if __name__ == "__main__":
    main()
