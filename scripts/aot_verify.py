"""How often verification reads the logits on a v5e chip, as its compiler counts: python scripts/aot_verify.py

From both models' logits [b, gamma + 1, v] to the verdict, compiled for one chip that is not there. Prints a
JSON line a rule: bytes that the program accesses over those of the two arrays of logits (a read of both
counts 1, and so does a write), scratch memory over them, and how long the bytes take at the chip's bandwidth.

`plain` is verification of whole distributions with temperatures alone; `filtered` has the filters, where the
compiler counts what a batch without filters skips as run, and a loop's body as run once. `kernel` is that of
`kernels.verification`, for rules that it serves. The compiler counts nothing for a kernel: what it fetches
and writes is added here, a block each time that the grid's next step names another one, as the pipeline does;
`kernel_blocks_reads` is that part. `loop` is `plain` as a decode loop does it, which keeps the q that
drafting made anyway; the kernel reads logits in its place. `drawn` is what drafting spends in any case: q
from the logits at gamma places, and a draw from it. No speed is measured, no arithmetic is counted, and what
the compiler keeps in the chip's fast memory counts like all else.
"""

import argparse
import itertools
import json
import math
from functools import partial

import jax
import jax.numpy as jnp
from jax.sharding import SingleDeviceSharding

from spec_cascades import probs, verify
from spec_cascades.kernels import verification
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


def kept(rule, noise, drafts, drafted, q, p_logits, sampling, alpha, q_raw):
    """A block's verdict where q and q_raw are there already, temperatures alone."""
    p = probs.raw(p_logits / sampling.temperature[:, None, None])
    return verify.verify(noise, drafts, drafted, probs.Pair(q, p, q_raw, probs.raw(p_logits)), rule, alpha)


def drawn(noise, drafts, drafted, q_logits, p_logits, sampling, alpha):
    """What drafting makes of the logits of gamma places, temperatures alone: the drafts."""
    q = probs.raw(q_logits[:, :-1] / sampling.temperature[:, None, None])
    return probs.draw(q, noise.draft[:, :-1])


def by_kernel(rule, noise, drafts, drafted, q_logits, p_logits, sampling, alpha):
    """A block's verdict by the kernel, filters known to be off."""
    given = noise, drafts, drafted, q_logits, p_logits
    return verification.unfiltered(*given, sampling.temperature, rule, alpha)


def moved(traced):
    """Bytes that a traced function's kernel fetches and writes, by its block specs over its grid."""
    (call,) = [e for e in traced.jaxpr.eqns if e.primitive.name == "pallas_call"]
    mapping, total = call.params["grid_mapping"], 0
    for one in mapping.block_mappings:
        # `Mapped` axes, which the kernel does not see, are one wide.
        size = math.prod(n if isinstance(n, int) else getattr(n, "block_size", 1) for n in one.block_shape)
        index = one.index_map_jaxpr
        steps = itertools.product(*map(range, mapping.grid))
        named = [tuple(map(int, jax.core.eval_jaxpr(index.jaxpr, index.consts, *step))) for step in steps]
        changes = 1 + sum(a != b for a, b in itertools.pairwise(named))
        total += changes * size * one.array_aval.dtype.itemsize
    return total


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
        rule = RULES[name]
        kinds = {kind: partial(judged, rule, kind == "plain") for kind in ("plain", "filtered")}
        kinds |= {"loop": partial(kept, rule), "drawn": drawn}
        if name in verification.SERVED:
            kinds["kernel"] = partial(by_kernel, rule)
        for kind, function in kinds.items():
            traced = jax.jit(function).trace(*given, *[logits] * (kind == "loop"))
            done = traced.lower().compile()
            blocks = moved(traced) if kind == "kernel" else 0
            read = done.cost_analysis()["bytes accessed"] + blocks
            scratch = done.memory_analysis().temp_size_in_bytes
            line |= {f"{kind}_reads": round(read / both, 2), f"{kind}_temp": round(scratch / both, 2)}
            line |= {f"{kind}_ms_at_bandwidth": round(read / BANDWIDTH * 1e3, 3)}
            line |= {"kernel_blocks_reads": round(blocks / both, 2)} if blocks else {}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
