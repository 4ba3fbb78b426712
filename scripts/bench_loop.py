"""What the decode loop adds to the model calls in it: python scripts/bench_loop.py [--batch 1 8 32]

Times, alternating in one run and by medians: one call of each model alone (drafter on 1 token, target on 1
and on gamma + 1), one step of each model decoding alone, one block of lossless speculation (`block`: gamma
drafter calls) and one under rule v3 (`block_v3`: gamma + 1). `overhead` is a block's time over its drafter
calls and one target call. Ends in one JSON line.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from spec_cascades import Decoding, Engine
from spec_cascades import cache as kv
from spec_cascades.decode import loop

CALLS = 24
PROMPT = "My brother goes to school by bus."


def call_alone(engine: Engine, role: str, batch: int, width: int) -> Callable[[], float]:
    """Seconds of one `extend` of `width` tokens."""
    return extends(engine, role, engine.call([PROMPT] * batch, Decoding(method=role)), width, 96, 24)


def extends(
    engine: Engine, role: str, call: Any, width: int, capacity: int, read: int
) -> Callable[[], float]:
    """Seconds of one `extend` of `width` tokens a row, behind `read` of them, from CALLS in one loop."""
    model, rows = engine.model(role), len(call.tokens)
    _, cache = jax.jit(partial(model.lm.prefill, capacity=capacity))(model.params, call.tokens, call.lengths)
    length = jnp.full(rows, read, jnp.int32)

    def body(_: int, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        block, cache = carry
        logits, cache = model.lm.extend(model.params, block, kv.rewind(cache, length))
        # The next block depends on these logits, or the compiler would drop or hoist the call.
        return jnp.where(logits[:, :, 0] > 1e30, 3, block), cache

    block = jnp.full((rows, width), 5, jnp.int32)
    run = jax.jit(lambda block, cache: lax.fori_loop(0, CALLS, body, (block, cache))[0])
    return lambda: clock(lambda: run(block, cache)) / CALLS


def in_turn(engine: Engine, batch: int, gamma: int) -> Callable[[], float]:
    """Seconds of gamma drafter calls and a target call in turn, from CALLS such turns in one loop."""
    call = engine.call([PROMPT] * batch, Decoding(method="target"))
    models, length = [engine.model("drafter"), engine.model("target")], jnp.full(batch, 24, jnp.int32)
    read = lambda m: jax.jit(partial(m.lm.prefill, capacity=96))(m.params, call.tokens, call.lengths)[1]
    caches = tuple(read(m) for m in models)

    def one(m: Any, tokens: Any, cache: Any, last: Any) -> tuple[Any, Any]:
        # Tokens depend on the scores before them, or calls would be dropped or hoisted.
        tokens = jnp.where(last > 1e30, 3, tokens)
        logits, cache = m.lm.extend(m.params, tokens, kv.rewind(cache, length))
        return logits[:, :1, 0], cache

    def body(_: int, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        last, (small, large) = carry
        for _ in range(gamma):
            last, small = one(models[0], jnp.full((batch, 1), 5, jnp.int32), small, last)
        last, large = one(models[1], jnp.full((batch, gamma + 1), 5, jnp.int32), large, last)
        return last, (small, large)

    run = jax.jit(lambda last, caches: lax.fori_loop(0, CALLS, body, (last, caches))[0])
    return lambda: clock(lambda: run(jnp.zeros((batch, 1)), caches)) / CALLS


def steps_of(engine: Engine, decoding: Decoding, batch: int) -> Callable[[], float]:
    """Seconds of one step (a token or a block) of the decode loop; no prefill, no row ends early."""
    call = engine.call([PROMPT] * batch, replace(decoding, eos=[]))

    def measure() -> float:
        begun = jax.block_until_ready(loop.start(*call))
        began = time.perf_counter()
        end = jax.block_until_ready(loop.run(call.method, call.params, begun, call.request))
        return (time.perf_counter() - began) / int(end.ledger.steps.max())

    return measure


def clock(f: Callable[[], Any]) -> float:
    began = time.perf_counter()
    jax.block_until_ready(f())
    return time.perf_counter() - began


def measure(engine: Engine, batch: int, gamma: int, temperature: float, repeats: int) -> dict[str, float]:
    """Medians in milliseconds, and the ratios."""
    decoding = partial(Decoding, temperature=temperature, max_new_tokens=64, alpha=0.0)
    jobs = {
        "drafter_call": call_alone(engine, "drafter", batch, 1),
        "target_call_1": call_alone(engine, "target", batch, 1),
        "target_call_block": call_alone(engine, "target", batch, gamma + 1),
        "calls_in_turn": in_turn(engine, batch, gamma),
        "drafter_step": steps_of(engine, decoding(method="drafter"), batch),
        "target_step": steps_of(engine, decoding(method="target"), batch),
        "block": steps_of(engine, decoding(rule="lossless", gamma=gamma), batch),
        "block_v3": steps_of(engine, decoding(rule="v3", gamma=gamma), batch),
    }
    for job in jobs.values():
        job()
    seen: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(repeats):
        for name, job in jobs.items():
            seen[name].append(job())
    ms = {name: 1e3 * statistics.median(times) for name, times in seen.items()}
    calls = lambda drafts: drafts * ms["drafter_call"] + ms["target_call_block"]
    ratios = {
        "overhead": ms["block"] / calls(gamma),
        "overhead_v3": ms["block_v3"] / calls(gamma + 1),
        "overhead_in_turn": ms["block"] / ms["calls_in_turn"],
        "t_block_over_t_1": ms["target_call_block"] / ms["target_call_1"],
    }
    return {name: round(value, 4) for name, value in (ms | ratios).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="embedded:en-de-target")
    parser.add_argument("--drafter", default="embedded:en-de-drafter")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--gamma", type=int, default=4)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--repeats", type=int, default=15)
    a = parser.parse_args()
    engine = Engine(a.target, a.drafter, a.dtype)
    rows = {f"batch_{b}": measure(engine, b, a.gamma, a.temperature, a.repeats) for b in a.batch}
    given = {"target": a.target, "drafter": a.drafter, "dtype": a.dtype, "gamma": a.gamma}
    print(json.dumps({"bench": "loop", "unit": "ms", **given} | rows))


if __name__ == "__main__":
    main()
