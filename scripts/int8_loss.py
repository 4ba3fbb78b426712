"""What int8 weights and caches cost and save: python scripts/int8_loss.py REF TEXTS [--most 64] [--rounds 7]

REF is a target that `models.target` takes. TEXTS is a file of pairs for a translator (source, tab, reference)
or of JSON lines whose `answer` follows their `question` for a decoder-only model. Along the answers,
teacher forced, each variant's law p is compared with the first's, the model in float32: mean KL(float32 ||
variant) in nats, share of equal argmaxes, and the negative log-likelihood of the answers' tokens. Bytes are
those of the parameters and of the caches for 8 rows; milliseconds of processor time of a call on some rows
and tokens a row (on a machine with other work wall clock says little: pin the process to a core) are medians
of variants that take turns. Ends in one JSON line.
"""

import argparse
import gc
import json
import random
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from rich.console import Console
from rich.table import Table

from spec_cascades import Decoding, Engine
from spec_cascades import cache as kv
from spec_cascades.along import alone
from spec_cascades.sweep import versions

CALLS = 12
VARIANTS = {
    "float32": ("float32", "dtype", "float32"),
    "bfloat16": ("bfloat16", "dtype", "float32"),
    "bfloat16, bfloat16 cache": ("bfloat16", "dtype", "bfloat16"),
    "int8 weights": ("bfloat16", "int8", "float32"),
    "int8 cache": ("bfloat16", "dtype", "int8"),
    "int8 weights and cache": ("bfloat16", "int8", "int8"),
    "int8 weights in float32": ("float32", "int8", "float32"),
}
"""dtype, weights and cache of each."""
SHAPES, CAPACITY, READ = ((1, 1), (1, 5), (8, 5)), 256, 64
"""Rows and tokens a row of the calls that are timed; places in the cache, and how many of them are read."""


def read(path: Path, most: int) -> list[tuple[str, str]]:
    """(prompt, answer), evenly spread over the file."""
    lines = path.read_text("utf-8").splitlines()
    lines = [line for line in lines if line.strip() and not line.startswith("#")]
    lines = lines[:: max(1, len(lines) // most)][:most]
    if path.suffix == ".jsonl":
        return [(row["question"], row["answer"]) for row in map(json.loads, lines)]
    return [tuple(line.split("\t")[:2]) for line in lines]


def laws(engine: Engine, texts: list[tuple[str, str]], longest: int) -> tuple[np.ndarray, np.ndarray]:
    """log p [tokens, v] along all answers in turn, temperature 1, and the tokens."""
    found, tokens = [], []
    for i in range(0, len(texts), 8):
        some = texts[i : i + 8]
        answers = [engine.tokenizer.encode(answer)[:longest] for _, answer in some]
        pairs = alone(engine, [prompt for prompt, _ in some], answers, Decoding(temperature=1.0), "target")
        found += [np.log(np.maximum(pair.p_raw, 1e-30)).astype(np.float32) for pair in pairs]
        tokens += [np.asarray(answer) for answer in answers]
    return np.concatenate(found), np.concatenate(tokens)


def compare(exact: np.ndarray, other: np.ndarray, tokens: np.ndarray) -> dict[str, float]:
    """The figures of one variant."""
    kl = np.concatenate([np.sum(np.exp(a) * (a - b), -1) for a, b in zip(*_parts(exact, other), strict=True)])
    agreed = np.mean(exact.argmax(-1) == other.argmax(-1))
    nll = -np.mean(other[np.arange(len(tokens)), tokens], dtype=np.float64)
    return {"kl": float(kl.mean()), "agreement": float(agreed), "nll": float(nll)}


def _parts(*arrays: np.ndarray) -> list[list[np.ndarray]]:
    return [np.array_split(x, max(1, len(x) // 64)) for x in arrays]


def memory(engine: Engine, rows: int) -> dict[str, int]:
    """Bytes of the parameters, and of the caches of so many rows with CAPACITY tokens."""
    model = engine.model("target")
    tokens, lengths = jnp.ones((rows, READ), jnp.int32), jnp.full(rows, READ)
    cache = jax.eval_shape(partial(model.lm.prefill, capacity=CAPACITY), model.params, tokens, lengths)[1]
    size = lambda tree: sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))
    return {"parameter_bytes": size(model.params), "cache_bytes": size((cache.layers, cache.memory))}


def call(engine: Engine, rows: int, width: int) -> Callable[[], float]:
    """Processor seconds of one `extend`, from CALLS in a loop; parameters are an argument, as in a decode."""
    model, length = engine.model("target"), jnp.full(rows, READ, jnp.int32)
    tokens = jnp.ones((rows, READ), jnp.int32)
    _, cache = jax.jit(partial(model.lm.prefill, capacity=CAPACITY))(model.params, tokens, length)

    def body(params: Any, _: int, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        block, cache = carry
        logits, cache = model.lm.extend(params, block, kv.rewind(cache, length))
        return jnp.where(logits[:, :, 0] > 1e30, 3, block), cache

    loop = lambda params, carry: lax.fori_loop(0, CALLS, partial(body, params), carry)[0]
    run, block = jax.jit(loop), jnp.full((rows, width), 5, jnp.int32)

    def measure() -> float:
        began = time.process_time()
        jax.block_until_ready(run(model.params, (block, cache)))
        return (time.process_time() - began) / CALLS

    return measure


def times(engines: dict[str, Engine], rounds: int) -> dict[str, dict[str, float]]:
    """Median milliseconds of each variant's calls by batch and width."""
    jobs = {
        (name, f"ms_{rows}x{width}"): call(engine, rows, width)
        for name, engine in engines.items()
        for rows, width in SHAPES
    }
    seen: dict[Any, list[float]] = {key: [] for key in jobs}
    for job in jobs.values():
        job()
    rng = random.Random(0)
    for _ in range(rounds):
        for key in rng.sample(list(jobs), len(jobs)):
            seen[key].append(jobs[key]())
    table: dict[str, dict[str, float]] = {name: {} for name in engines}
    for (name, what), values in seen.items():
        table[name][what] = round(1e3 * statistics.median(values), 4)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ref")
    parser.add_argument("texts", type=Path)
    parser.add_argument("--most", type=int, default=64)
    parser.add_argument("--longest", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--chat", action="store_true")
    parser.add_argument(
        "--only", nargs="+", choices=VARIANTS, help="the first is what others are compared with"
    )
    a = parser.parse_args()
    texts, rows, exact = read(a.texts, a.most), {}, None
    engines = {}
    for name in a.only or VARIANTS:
        dtype, weights, cache = VARIANTS[name]
        engines[name] = engine = Engine(a.ref, None, dtype, a.chat, weights, cache)
        found, tokens = laws(engine, texts, a.longest)
        exact = found if exact is None else exact
        rows[name] = compare(exact, found, tokens) | memory(engine, 8)
    del exact, found
    gc.collect()
    for name, more in times(engines, a.rounds).items():
        rows[name] |= more
    show(rows)
    told = {"bench": "int8_loss", "ref": a.ref, "texts": a.texts.name, "answers": len(texts)}
    print(json.dumps(told | {"tokens": len(tokens), "versions": versions(), "variants": rows}))


def show(rows: dict[str, dict[str, float]]) -> None:
    table = Table("variant", *next(iter(rows.values())))
    for name, row in rows.items():
        table.add_row(name, *(f"{x:.4g}" if isinstance(x, float) else f"{x:,}" for x in row.values()))
    console = Console(stderr=True)
    console.width = 160
    console.print(table)


if __name__ == "__main__":
    main()
