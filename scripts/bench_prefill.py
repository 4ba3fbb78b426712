"""Long prompts in chunks against one piece: python scripts/bench_prefill.py [--tokens 2048 4096]

A random model of a published size, its first `--layers` layers, one row, bfloat16 weights and cache, a prompt
without padding. The runs alternate. `seconds` is the median, `ratio` the median over rounds of the time over
that of one piece beside it, `temp_mb` what XLA sets aside beyond arguments and results. `--shapes-only`
compiles and runs nothing. Ends in one JSON line.
"""

import argparse
import json
import statistics
import time
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from spec_cascades.models import gemma, llama
from spec_cascades.sweep import versions

FAMILIES = {"llama": (llama, llama.Llama), "gemma": (gemma, gemma.Gemma)}
WIDTH = 5
"""Tokens of the longest block behind the prompt: gamma 4."""


def model_of(size: str, layers: int | None) -> tuple[Any, Any]:
    """(module, LM) of a published size, cut to its first layers."""
    module, family = next(pair for pair in FAMILIES.values() if size in pair[0].PRESETS)
    config = module.PRESETS[size]
    return module, family(replace(config, layers=layers or config.layers), jnp.bfloat16)


def compiled(lm: Any, params: Any, tokens: int, chunk: int) -> Any:
    """A prefill of one row with room for 64 more tokens."""
    fill = partial(replace(lm, chunk=chunk).prefill, capacity=tokens + 64, width=WIDTH)
    shapes = jax.ShapeDtypeStruct((1, tokens), jnp.int32), jax.ShapeDtypeStruct((1,), jnp.int32)
    return jax.jit(fill).lower(params, *shapes).compile()


def measure(lm: Any, params: Any, tokens: int, chunks: list[int], rounds: int, run: bool) -> dict[str, Any]:
    """Figures of each chunk size, 0 standing for one piece."""
    jobs = {chunk: compiled(lm, params, tokens, chunk or tokens) for chunk in [0, *chunks]}
    temp = {chunk: job.memory_analysis().temp_size_in_bytes / 1e6 for chunk, job in jobs.items()}
    prompt = jax.random.randint(jax.random.key(1), (1, tokens), 2, 1000)
    seen: dict[int, list[float]] = {chunk: [] for chunk in jobs}
    for i in range(rounds + 1 if run else 0):
        for chunk, job in jobs.items():
            began = time.perf_counter()
            jax.block_until_ready(job(params, prompt, jnp.asarray([tokens])))
            if i:
                seen[chunk].append(time.perf_counter() - began)

    def row(chunk: int) -> dict[str, float]:
        beside = [a / b for a, b in zip(seen[chunk], seen[0], strict=True)]
        times = {"seconds": statistics.median(seen[chunk]), "ratio": statistics.median(beside)} if run else {}
        return {"temp_mb": round(temp[chunk], 1)} | {key: round(value, 3) for key, value in times.items()}

    return {f"chunk_{chunk}" if chunk else "one_piece": row(chunk) for chunk in jobs}


def main() -> None:
    sizes = sorted(name for module, _ in FAMILIES.values() for name in module.PRESETS)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="smollm2-135m", choices=sizes)
    parser.add_argument("--layers", type=int)
    parser.add_argument("--tokens", type=int, nargs="+", default=[2048, 4096])
    parser.add_argument("--chunks", type=int, nargs="+", default=[256, 512, 1024])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shapes-only", action="store_true")
    a = parser.parse_args()
    module, lm = model_of(a.size, a.layers)
    draw = lambda: lm.serving(module.init(jax.random.key(0), lm.config, jnp.bfloat16))
    params = jax.eval_shape(draw) if a.shapes_only else jax.jit(draw)()
    rows = {f"tokens_{n}": measure(lm, params, n, a.chunks, a.rounds, not a.shapes_only) for n in a.tokens}
    given = {"size": a.size, "layers": lm.config.layers, "rounds": a.rounds, "machine": versions()}
    print(json.dumps({"bench": "prefill"} | given | rows))


if __name__ == "__main__":
    main()
