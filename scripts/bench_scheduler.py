"""Refilling against whole batches on prompts whose answers differ widely: python scripts/bench_scheduler.py

The same prompts go through the same slots twice, in turns: in batches that wait for their slowest row, and
with finished rows refilled from the queue. Tokens per second of both, the median of their ratio, and the
share of slots at work. Answers must be equal where the weights are float32. Ends in one JSON line.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from spec_cascades import Decoding, Engine
from spec_cascades.config import EMBEDDED_TASK, Task
from spec_cascades.sweep import versions
from spec_cascades.tasks.examples import read, read_prompts

Texts = dict[int, list[int]]


def workload(engine: Engine, texts: list[str], base: Decoding, longest: int) -> list[Decoding]:
    """Limits from 4 to `longest` tokens, most of them short, in a fixed order: real queues look like that."""
    share = np.random.default_rng(0).permutation(np.linspace(0, 1, len(texts))) ** 3
    limits = 4 + np.round(share * (longest - 4)).astype(int)
    return [replace(base, max_new_tokens=int(n), seed=i, eos=[]) for i, n in enumerate(limits)]


def in_batches(engine: Engine, texts: list[str], asked: list[Decoding], slots: int) -> Texts:
    found: Texts = {}
    most = max(d.max_new_tokens for d in asked)
    for first in range(0, len(texts), slots):
        rows = range(first, min(first + slots, len(texts)))
        # One row asks for the most everywhere, so that every batch has one shape and compiles once.
        batch = engine.run([texts[i] for i in rows], [asked[i] for i in rows], buffer=most)
        found |= {i: answer.tokens for i, answer in zip(rows, batch.answers, strict=True)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="embedded:en-de-target")
    parser.add_argument("--drafter", default="embedded:en-de-drafter")
    parser.add_argument("--chat", action="store_true")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--prompts", type=Path, help="JSON lines with 'input' (default: the embedded task)")
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--idle", type=int, default=1, help="free slots that call for a refill")
    parser.add_argument("--longest", type=int, default=96, help="tokens of the longest answer")
    parser.add_argument("--method", default="target", choices=("target", "speculative"))
    parser.add_argument("--gamma", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    a = parser.parse_args()
    engine = Engine(a.target, a.drafter if a.method == "speculative" else None, a.dtype, a.chat)
    given = [p.text for p in read_prompts(a.prompts)] if a.prompts else _embedded()
    texts = given[: a.count]
    base = Decoding(method=a.method, rule="lossless", gamma=a.gamma)
    asked = workload(engine, texts, base, a.longest)
    occupancy: list[float] = []

    def refilled() -> Texts:
        serving, found = engine.serve(texts, asked, a.slots, a.idle), {}
        while True:
            try:
                i, answer = next(serving)
            except StopIteration as end:
                occupancy.append(end.value.occupancy)
                return found
            found[i] = answer.tokens

    jobs = {"batches": lambda: in_batches(engine, texts, asked, a.slots), "refilled": refilled}
    figures = measure(jobs, a.rounds)
    limits = [d.max_new_tokens for d in asked]
    waiting = sum(limits) / sum(
        max(limits[i : i + a.slots]) * len(limits[i : i + a.slots]) for i in range(0, len(limits), a.slots)
    )
    setting = {k: v for k, v in vars(a).items() if k != "prompts"} | {"answer_tokens": sum(limits)}
    print(
        json.dumps(
            {"bench": "scheduler"}
            | setting
            | figures
            | {
                "occupancy_batches_if_one_token_a_step": round(waiting, 3),
                "occupancy_refilled": occupancy[-1],
            }
            | {"versions": versions()}
        )
    )


def measure(jobs: dict[str, Callable[[], Texts]], rounds: int) -> dict[str, float | bool]:
    """Tokens per second of each job (medians), the median of their paired ratio, and whether texts agree."""
    texts = {name: job() for name, job in jobs.items()}  # compiles
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for turn in range(rounds):
        for name in sorted(jobs, reverse=turn % 2 == 1):
            began = time.perf_counter()
            jobs[name]()
            seconds[name].append(time.perf_counter() - began)
    tokens = sum(map(len, texts["refilled"].values()))
    ratio = [b / r for b, r in zip(seconds["batches"], seconds["refilled"], strict=True)]
    rates = {f"{name}_tokens_per_second": tokens / statistics.median(s) for name, s in seconds.items()}
    same = sum(texts["batches"][i] == row for i, row in texts["refilled"].items())
    return rates | {"ratio": statistics.median(ratio), "equal_answers": same}


def _embedded() -> list[str]:
    return [example.source for example in read(Task(path=EMBEDDED_TASK))]


if __name__ == "__main__":
    main()
