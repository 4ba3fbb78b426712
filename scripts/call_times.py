"""What `simulate` reckons with, measured: python scripts/call_times.py [--config FILE] [--batch 1 2 4 8]

For each batch: seconds of a prefill of either model, of one call on k tokens a row (t(k, batch): target on
1..gamma + 1 and on what a token cascade reads in one go, drafter on 1 and 2), and of each method's loop by
two answers of different length: `first`, an answer of one step, and `step`, each further one. Jobs take
turns in an order drawn anew for each round, and medians count; `drift` is how much the later rounds differ
from the earlier ones. Models, gamma and temperature are those of a sweep's configuration. Ends in one JSON
line.
"""

import argparse
import json
import random
import statistics
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from bench_loop import clock, extends

from spec_cascades import Decoding, Engine, config
from spec_cascades.config import CATCH_UP
from spec_cascades.decode import loop, sequence
from spec_cascades.engine import engine_of
from spec_cascades.sweep import versions

ROOM = 12
"""New tokens of the longer of the two answers: about as long as the answers that are to be simulated, since
an answer's first steps take longer than its later ones."""
PROMPT = "My brother goes to school by bus."
Job = Callable[[], float]
Key = tuple[str, str, int]


def capacity(call: Any, gamma: int) -> int:
    """Places in the caches of a block's loop: a call's time depends on them."""
    return call.tokens.shape[1] + call.max_new + gamma + 1


def prefill(engine: Engine, role: str, call: Any, gamma: int) -> Job:
    """Seconds of one prefill of the prompts."""
    model = engine.model(role)
    run = jax.jit(partial(model.lm.prefill, capacity=capacity(call, gamma)))
    return lambda: clock(lambda: run(model.params, call.tokens, call.lengths))


def answer(engine: Engine, decoding: Decoding, batch: int, tokens: int) -> tuple[Job, int]:
    """Seconds of one batch, prefill and round trips included, rows ending at `tokens` only; and its steps."""
    call = engine.call([PROMPT] * batch, replace(decoding, eos=[]))
    limit = jnp.full_like(call.request.max_new_tokens, tokens)
    call = call._replace(request=call.request._replace(max_new_tokens=limit))

    def looped() -> Any:
        progress = loop.run(call.method, call.params, loop.start(*call), call.request)
        return jax.device_get((loop.finish(progress, call.request), progress.done))[0]

    def staged() -> Any:
        return jax.device_get(sequence.run(*call)[0])

    one = isinstance(call.method, sequence.Sequence)
    # A sequence cascade's ledger counts the steps of both stages, which are of the same number.
    steps = tokens if one else int(looped().ledger.steps.max())
    return lambda: clock(staged if one else looped), steps


def loops(gamma: int, temperature: float) -> dict[str, Decoding]:
    """The loops that simulated methods are made of. A token cascade keeps every token or defers every one."""
    base = Decoding(gamma=gamma, temperature=temperature, max_new_tokens=64, alpha=0.0)
    return {
        "target": replace(base, method="target"),
        "drafter": replace(base, method="drafter"),
        "lossless": replace(base, rule="lossless"),
        "cascade": replace(base, rule="v3", alpha=0.5),
        "token_kept": replace(base, method="token", rule="chow", alpha=1.0),
        "token_deferred": replace(base, method="token", rule="chow", alpha=-1.0),
        "sequence_kept": replace(base, method="sequence", alpha=float("inf")),
        "sequence_deferred": replace(base, method="sequence", alpha=float("-inf")),
    }


def jobs_of(engine: Engine, batch: int, gamma: int, temperature: float) -> tuple[dict[Key, Job], dict]:
    """What is timed at a batch, and the steps of those that are answers."""
    call = engine.call([PROMPT] * batch, Decoding(method="target", max_new_tokens=64))
    reads = {"target": (*range(1, gamma + 2), CATCH_UP), "drafter": (1, 2)}
    jobs: dict[Key, Job] = {("prefill", role, 0): prefill(engine, role, call, gamma) for role in reads}
    for role, widths in reads.items():
        jobs |= {
            ("calls", role, k): extends(engine, role, call, k, capacity(call, gamma), ROOM // 2)
            for k in sorted(set(widths))
        }
    steps = {}
    for name, decoding in loops(gamma, temperature).items():
        for n in (1, lengths(name)):
            jobs["answer", name, n], steps[name, n] = answer(engine, decoding, batch, n)
    return jobs, steps


def lengths(name: str) -> int:
    """New tokens of a loop's longer answer: a drafter's steps are short, and alike from the first one on."""
    return 4 * ROOM if name in ("drafter", "token_kept", "sequence_kept") else ROOM


def in_turns(jobs: dict[int, dict[Key, Job]], repeats: int) -> dict[int, dict[Key, list[float]]]:
    """Seconds of every job of every batch, round by round; a first round compiles."""
    seen: dict[int, dict[Key, list[float]]] = {batch: {key: [] for key in own} for batch, own in jobs.items()}
    rng = random.Random(0)
    for turn in range(repeats + 1):
        for batch, own in jobs.items():
            # What ran before a job, and left its own weights in the caches, must not be the same each time.
            for key in rng.sample(list(own), len(own)):
                seconds = own[key]()
                if turn:
                    seen[batch][key].append(seconds)
    return seen


def figures(median: dict[Key, float], steps: dict) -> dict[str, Any]:
    """{"prefill", "calls", "first", "step"} of one batch, in seconds."""
    out: dict[str, Any] = {"prefill": {}, "calls": {"target": {}, "drafter": {}}, "first": {}, "step": {}}
    for (kind, name, n), seconds in median.items():
        if kind == "prefill":
            out[kind][name] = seconds
        elif kind == "calls":
            out[kind][name][str(n)] = seconds
        elif n == 1:
            long = lengths(name)
            out["first"][name] = seconds
            more = median["answer", name, long] - seconds
            out["step"][name] = more / (steps[name, long] - steps[name, 1])
    return out


def drift(seen: dict[int, dict[Key, list[float]]]) -> float:
    """By how much the second half of the rounds differs from the first: the batch in which it is most."""
    median = statistics.median
    halves = lambda x: abs(median(x[len(x) // 2 :]) / median(x[: len(x) // 2]) - 1)
    return max(median(halves(x) for x in own.values()) for own in seen.values())


def joined(rows: list[Any]) -> Any:
    """One nested mapping of lists, an entry a batch, from a mapping for each batch."""
    if isinstance(rows[0], dict):
        return {key: joined([row[key] for row in rows]) for key in rows[0]}
    return [float(f"{x:.4g}") for x in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="configs/simulate/measured.yaml", help="of a sweep")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--repeats", type=int, default=15)
    a = parser.parse_args()
    asked = config.load(config.Sweep, a.config)
    gamma, temperature = asked.base.gamma, asked.base.temperature
    engine = engine_of(asked.models)
    batches = sorted(a.batch)
    jobs, steps = {}, {}
    for batch in batches:
        jobs[batch], steps[batch] = jobs_of(engine, batch, gamma, temperature)
    seen = in_turns(jobs, a.repeats)
    medians = {b: {key: statistics.median(x) for key, x in own.items()} for b, own in seen.items()}
    rows = [figures(medians[b], steps[b]) for b in batches]
    prompt = int(np.asarray(engine.call([PROMPT], asked.base).tokens).shape[1])
    about = {
        "bench": "call_times",
        "unit": "s",
        "models": asdict(asked.models),
        "gamma": gamma,
        "temperature": temperature,
        "catch_up": CATCH_UP,
        "prompt_tokens": prompt,
        "tokens": ROOM,
        "cores": versions()["cpus"],
        "versions": versions(),
        "repeats": a.repeats,
        "drift": round(drift(seen), 3),
        "batches": batches,
    }
    print(json.dumps(about | joined(rows)))


if __name__ == "__main__":
    main()
