"""How often verification reads the logits on a v5e chip, as its compiler counts: python scripts/aot_verify.py

From both models' logits [b, gamma + 1, v] to the verdict, compiled for one chip that is not there. Prints a
JSON line a rule: bytes that the program accesses over those of the two arrays of logits (a read of both
counts 1, and so does a write), scratch memory over them, and how long the bytes take at the chip's bandwidth.
`plain` has temperatures alone; `filtered` is what the library runs, where the compiler counts what a batch
without filters skips as run, and a loop's body as run once. No speed is measured.
"""

import argparse
import json
from functools import partial

import jax
import jax.numpy as jnp
from jax.sharding import SingleDeviceSharding

from spec_cascades import probs, verify
from spec_cascades.lowering import aot
from spec_cascades.rules import RULES

BANDWIDTH = 819e9
"""Bytes a second of a v5e chip (cloud.google.com/tpu/docs/v5e)."""


def judged(rule, plain, noise, drafts, drafted, q_logits, p_logits, sampling, alpha):
    """A block's verdict, its distributions made here; plain: the batch's filters are known to be off."""
    made = probs.distribution
    if plain:
        made = lambda logits, sampling: probs.raw(logits / sampling.temperature[:, None, None])
    pair = probs.Pair(
        made(q_logits, sampling), made(p_logits, sampling), probs.raw(q_logits), probs.raw(p_logits)
    )
    return verify.verify(noise, drafts, drafted, pair, rule, alpha)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rules", nargs="+", default=["lossless", "v3"], choices=sorted(RULES))
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--gamma", type=int, default=4)
    parser.add_argument("--vocab", type=int, default=256_000)
    a = parser.parse_args()
    here, (b, w) = SingleDeviceSharding(aot.devices("v5e:2x4")[0]), (a.batch, a.gamma + 1)
    shape = lambda dtype, *n: jax.ShapeDtypeStruct((b, *n), dtype, sharding=here)
    f32, i32 = jnp.float32, jnp.int32
    noise = verify.Noise(*[shape(f32, w)] * 3)
    sampling = probs.Sampling(shape(f32), shape(i32), shape(f32), shape(f32))
    logits = shape(f32, w, a.vocab)
    both = 2 * 4 * b * w * a.vocab
    given = noise, shape(i32, w), shape(i32), logits, logits, sampling, shape(f32)
    for name in a.rules:
        line = {"rule": name, "batch": b, "gamma": a.gamma, "vocab": a.vocab}
        for kind in ("plain", "filtered"):
            one = jax.jit(partial(judged, RULES[name], kind == "plain"))
            done = one.lower(*given).compile()
            read = done.cost_analysis()["bytes accessed"]
            scratch = done.memory_analysis().temp_size_in_bytes
            line |= {f"{kind}_reads": round(read / both, 1), f"{kind}_temp": round(scratch / both, 2)}
            line |= {f"{kind}_ms_at_bandwidth": round(read / BANDWIDTH * 1e3, 2)}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
