"""What it costs to know when the first block was there: `python scripts/bench_first_block.py`.

On the embedded pair at batch 1, always in turns: an answer decoded in two calls (its first block, then the
rest) against one call; and an answer's seconds with a run of the first block behind every answer against
without.
"""

import time

import jax
import numpy as np

from spec_cascades import Decoding, Engine
from spec_cascades.config import EMBEDDED_TASK, Task
from spec_cascades.decode import loop
from spec_cascades.engine import Call
from spec_cascades.tasks.examples import read

POINTS = (Decoding(method="target"), Decoding(rule="lossless", gamma=3, alpha=0.0), Decoding(alpha=0.5))


def seconds(call: Call, *steps: int) -> float:
    """Of an answer decoded by so many blocks a call."""
    began = time.perf_counter()
    progress = loop.start(*call)
    for n in steps:
        progress = loop.run(call.method, call.params, progress, call.request, n)
        jax.block_until_ready(progress.turns)
    jax.device_get((loop.finish(progress, call.request), progress.done))
    return time.perf_counter() - began


def in_two(call: Call, first: bool) -> float:
    """Seconds of an answer in two calls over those in one; first: the two calls come first."""
    ways = ((1, loop.FOREVER), (loop.FOREVER,))
    taken = {way: seconds(call, *way) for way in (ways if first else ways[::-1])}
    return taken[ways[0]] / taken[ways[1]]


def shown(ratios: list[float]) -> str:
    draws = np.median(np.random.default_rng(0).choice(ratios, (500, len(ratios))), axis=1)
    low, high = np.quantile(draws, [0.025, 0.975])
    return f"{np.median(ratios):.3f} [{low:.3f}, {high:.3f}]"


def main() -> None:
    engine = Engine("embedded:en-de-target", "embedded:en-de-drafter", "bfloat16")
    texts = [e.source for e in read(Task(path=EMBEDDED_TASK, limit=65))]
    for decoding in POINTS:
        calls = [engine.call([text], [decoding]) for text in texts]
        for call in calls[:20]:
            seconds(call, 1, loop.FOREVER), seconds(call, loop.FOREVER)
        two = [in_two(call, turn % 2 == 0) for turn, call in enumerate(calls * 3)]
        print(f"{decoding.method} {decoding.rule}: two calls over one {shown(two)}", flush=True)
        for text in texts[:20]:
            engine.run([text], decoding)
            engine.first_block([text], decoding)
    ratios: list[list[float]] = [[] for _ in POINTS]
    spent = [0.0, 0.0]
    for turn, text in enumerate(texts * 3):
        taken = {}
        for probing in (0, 1) if turn % 2 else (1, 0):
            began = time.perf_counter()
            for i, decoding in enumerate(POINTS):
                taken[probing, i] = engine.run([text], decoding).seconds
                if probing:
                    engine.first_block([text], decoding)
            spent[probing] += time.perf_counter() - began
        for i, row in enumerate(ratios):
            row.append(taken[1, i] / taken[0, i])
    for decoding, row in zip(POINTS, ratios, strict=True):
        print(
            f"{decoding.method} {decoding.rule}: seconds with a run of the first block behind, {shown(row)}"
        )
    print(f"the whole pass: {spent[1] / spent[0]:.2f} times as long")


if __name__ == "__main__":
    main()
