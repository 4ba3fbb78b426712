"""Does the decode loop compile for a TPU, and what does it take there? No TPU is needed, but libtpu is.

    python scripts/aot_tpu.py gemma-2-2b:gemma-2-9b [DRAFTER:TARGET ...] [--mesh 1x8 2x4]

Prints one JSON line for each pair of published sizes and each mesh (data x model): bytes a device of the two
programs, what devices exchange in a block of the loop, and copies of caches in it; or the compiler's error.
Ends in a table. Weights are shapes; rule v3, layers scanned.
"""

import argparse
import json
from collections import Counter
from dataclasses import replace
from typing import Any

import jax.numpy as jnp

from spec_cascades.config import Mesh
from spec_cascades.decode.speculative import Speculative
from spec_cascades.lowering import aot
from spec_cascades.models import gemma, llama, t5
from spec_cascades.models.widened import same_width
from spec_cascades.rules import RULES

GIB = 2**30
FAMILIES = ((gemma, gemma.Gemma), (llama, llama.Llama), (t5, t5.T5))


def model(name: str, cache: Any) -> tuple[Any, Any]:
    """A published size as an LM with scanned layers, and its parameters' shapes."""
    for module, kind in FAMILIES:
        if name in module.PRESETS:
            config = module.PRESETS[name]
            return kind(config, cache_dtype=cache, scan=True), module.shapes_of(config)
    known = sorted(name for module, _ in FAMILIES for name in module.PRESETS)
    raise ValueError(f"{name!r} is none of {known}")


def divided(lm: Any, mesh: Mesh, topology: str) -> Mesh:
    """The mesh, with as many parts of the drafter as its heads allow."""
    for parts in sorted((n for n in range(1, mesh.model + 1) if mesh.model % n == 0), reverse=True):
        at = replace(mesh, drafter=parts)
        try:
            aot.layout(at, topology).place(lm, "drafter")
        except ValueError:
            continue
        return at
    raise ValueError(f"{lm} fits no part of {mesh}")


def measure(pair: str, mesh: Mesh, a: argparse.Namespace) -> dict[str, Any]:
    """What the compiler says of one pair on one mesh."""
    names = dict(zip(("drafter", "target"), pair.split(":"), strict=True))
    given = {role: model(name, a.cache) for role, name in names.items()}
    mesh = divided(given["drafter"][0], mesh, a.topology)
    at = aot.layout(mesh, a.topology)
    params = {role: aot.params(lm, shapes, a.dtype, role, at) for role, (lm, shapes) in given.items()}
    method = Speculative(*same_width(*(lm for lm, _ in given.values())), RULES["v3"], a.gamma)
    report, _ = aot.compiled(method, params, aot.Sizes(a.batch, a.prompt, a.new), at)
    vocab = method.target.vocab
    exchanged = Counter()
    for c in report.collectives:
        exchanged[c.kind] += c.bytes * c.times
    largest = max(report.collectives, key=lambda c: c.bytes, default=None)
    return {
        "drafter_parts": mesh.drafter,
        **{name: _told(getattr(report, name)) for name in ("start", "run")},
        "exchanged_bytes": dict(exchanged),
        "collectives": len(report.collectives),
        "largest": largest and [largest.kind, largest.shape, largest.bytes, largest.times],
        # By size, since it may travel in any shape: the scores of one place of each row of a device.
        "whole_vocabulary": [
            f"{c.kind} {c.shape}"
            for c in report.collectives
            if c.kind != "all-reduce" and c.bytes >= 4 * a.batch // mesh.data * vocab
        ],
        "cache_copies": len(report.copies),
        "entry_copies": len(report.entry_copies),
    }


def _told(program: aot.Program) -> dict[str, Any]:
    return program._asdict() | {"seconds": round(program.seconds, 1), "peak": program.peak}


def row(line: dict[str, Any]) -> str:
    """A line as a row of the table."""
    name = f"| {line['drafter']} -> {line['target']} | {line['mesh']} |"
    if "error" in line:
        return f"{name} does not compile: {line['error'][:160]} |"
    gib = lambda n: f"{n / GIB:.2f}"
    start, run = line["start"], line["run"]
    moved = sum(line["exchanged_bytes"].values()) / 2**20
    cells = (
        *(line["drafter_parts"], gib(run["arguments"]), gib(start["temporaries"]), gib(run["temporaries"])),
        *(gib(max(start["peak"], run["peak"])), f"{moved:.2f}", line["collectives"], line["cache_copies"]),
        line["entry_copies"],
    )
    return name + " | ".join(f" {cell}" for cell in cells) + " |"


HEAD = (
    "| pair | mesh | drafter parts | arguments | temp, prefill | temp, loop | peak | MiB exchanged a block | "
    "collectives | caches copied in the loop | at its entry |\n| --- | --- |" + " ---: |" * 9
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", nargs="+", metavar="DRAFTER:TARGET")
    parser.add_argument("--mesh", nargs="+", default=["1x8", "2x4"], metavar="DATAxMODEL")
    parser.add_argument("--topology", default="v5e:2x4")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=1024)
    parser.add_argument("--new", type=int, default=256)
    parser.add_argument("--gamma", type=int, default=4)
    parser.add_argument("--dtype", type=jnp.dtype, default="bfloat16")
    parser.add_argument("--cache", type=jnp.dtype, default="bfloat16", help="dtype of keys and values")
    a = parser.parse_args()
    lines = []
    for pair in a.pairs:
        for text in a.mesh:
            mesh = Mesh(*map(int, text.split("x")))
            drafter, target = pair.split(":")
            line = {"drafter": drafter, "target": target, "mesh": text, "topology": a.topology}
            line |= {
                key: str(getattr(a, key)) for key in ("batch", "prompt", "new", "gamma", "dtype", "cache")
            }
            try:
                line |= measure(pair, mesh, a)
            except Exception as error:  # the compiler's word is the result
                line["error"] = " ".join(str(error).split())
            lines.append(line)
            print(json.dumps(line), flush=True)
    print("\n".join([HEAD, *map(row, lines)]))


if __name__ == "__main__":
    main()
