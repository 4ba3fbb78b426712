"""What depth costs the compiler: python scripts/bench_compile.py [--depths 2 4 8 16 46]

For layers one after another and for scanned ones, at each depth, the decode loop of one decoder-only model
(`loop.start` and `loop.run`, batch 1): the process's seconds (CPU time, which other programs disturb little)
to trace and lower and to compile, bytes of the optimised HLO, instructions in it, and milliseconds of a step
(wall clock, the median over rounds in which both take turns). Ends in one JSON line.
"""

import argparse
import json
import statistics
import time
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from spec_cascades.decode import loop
from spec_cascades.decode.autoregressive import Autoregressive
from spec_cascades.models import gemma, llama
from spec_cascades.probs import Sampling

FAMILIES = {
    "llama": (
        llama,
        llama.Llama,
        llama.Config(vocab=512, embeddings=512, d_model=256, d_ff=1024, heads=8, kv_heads=4, head_dim=32),
    ),
    "gemma": (
        gemma,
        gemma.Gemma,
        replace(
            gemma.Config(generation=2, pattern=2, vocab=512, embeddings=512, attention_softcap=50.0),
            **dict(d_model=256, d_ff=1024, heads=8, kv_heads=4, head_dim=32, window=64, query_scalar=32),
        ),
    ),
}
PROMPT, NEW = 32, 32


def request() -> loop.Request:
    one = lambda value, dtype: jnp.full(1, value, dtype)
    sampling = Sampling(one(0, jnp.float32), one(0, jnp.int32), one(1, jnp.float32), one(0, jnp.float32))
    return loop.Request(
        sampling, one(0, jnp.float32), one(-1, jnp.int32)[:, None], one(NEW, jnp.int32), one(0, jnp.uint32)
    )


class Compiled:
    """One model's compiled loop."""

    def __init__(self, family: str, depth: int, scan: bool) -> None:
        module, kind, config = FAMILIES[family]
        config = replace(config, layers=depth)
        lm = kind(config, scan=scan)
        self.params = {"target": lm.serving(module.init(jax.random.key(0), config, jnp.bfloat16))}
        self.given = (jnp.ones((1, PROMPT), jnp.int32), jnp.full(1, PROMPT), request())
        began = time.process_time()
        method = Autoregressive(lm, "target")
        start = loop.start.lower(method, self.params, *self.given, NEW)
        state = jax.eval_shape(lambda: loop.start(method, self.params, *self.given, NEW))
        run = loop.run.lower(method, self.params, state, self.given[2])
        lowered = time.process_time()
        self.start, self.run = start.compile(), run.compile()
        self.lower_s, self.compile_s = lowered - began, time.process_time() - lowered
        self.text = self.start.as_text() + self.run.as_text()

    def step_ms(self) -> float:
        state = jax.block_until_ready(self.start(self.params, *self.given))
        began = time.perf_counter()
        jax.block_until_ready(self.run(self.params, state, self.given[2]))
        return (time.perf_counter() - began) / NEW * 1e3


def measure(family: str, depth: int, rounds: int) -> dict[str, Any]:
    both = {name: Compiled(family, depth, name == "scanned") for name in ("unrolled", "scanned")}
    for one in both.values():
        one.step_ms()
    times: dict[str, list[float]] = {name: [] for name in both}
    for _ in range(rounds):
        for name, one in both.items():
            times[name].append(one.step_ms())
    return {
        name: {
            "lower_cpu_s": round(one.lower_s, 3),
            "compile_cpu_s": round(one.compile_s, 3),
            "hlo_bytes": len(one.text),
            "hlo_instructions": one.text.count(" = "),
            "step_ms": round(statistics.median(times[name]), 3),
        }
        for name, one in both.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--family", default="llama", choices=sorted(FAMILIES))
    parser.add_argument("--depths", type=int, nargs="+", default=[2, 4, 8, 16, 46])
    parser.add_argument("--rounds", type=int, default=5)
    a = parser.parse_args()
    rows = {f"layers_{n}": measure(a.family, n, a.rounds) for n in a.depths}
    given = {"family": a.family, "d_model": FAMILIES[a.family][2].d_model, "backend": jax.default_backend()}
    print(json.dumps({"bench": "compile", "jax": jax.__version__, **given} | rows))


if __name__ == "__main__":
    main()
