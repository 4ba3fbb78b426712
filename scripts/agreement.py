"""How often a drafter's argmax is the target's, by kind of prompt, along the target's greedy answers.

    python scripts/agreement.py PAIR.yaml PROMPTS.jsonl ANSWERS.jsonl [--key kind] [--every 8] [--most 400]

PAIR.yaml has `models`, as for `generate`. ANSWERS.jsonl is OUT/answers/KEY-N/examples.jsonl of a
distillation, made for PROMPTS.jsonl; --every as in its source. Also how often the token behind the newest
earlier occurrence of the longest suffix (1 to 4 tokens) is the target's, and the drafter there: what
`models.copying.TRUST` is made of. Prints a table, then one JSON line.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

from spec_cascades.config import Generate, load
from spec_cascades.engine import engine_of
from spec_cascades.finding import followed
from spec_cascades.models.copying import TRUST

LENGTH = 512
"""Tokens of a prompt and its answer; longer ones are left out."""


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text("utf-8").strip().split("\n")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pair")
    parser.add_argument("prompts", type=Path)
    parser.add_argument("answers", type=Path)
    parser.add_argument("--key", default="kind")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--most", type=int)
    a = parser.parse_args()
    models = load(Generate, a.pair, ()).models
    engine = engine_of(models)
    drafter = engine.model("drafter")

    @jax.jit
    def argmaxes(params, tokens):
        _, cache = drafter.lm.prefill(params, tokens[:, :1], jnp.ones(1, jnp.int32), LENGTH)
        return jnp.argmax(drafter.lm.extend(params, tokens, cache)[0][0], axis=-1)

    @jax.jit
    def copies(tokens):
        """Behind each prefix, the token that a copy would be and how long its suffix is."""
        find = lambda n: followed(tokens, n[None], len(TRUST), None)
        return jax.vmap(find)(1 + jnp.arange(LENGTH))

    prompts, counts = lines(a.prompts)[:: a.every], defaultdict(lambda: [0, 0, 0])
    for row in lines(a.answers)[: a.most]:
        asked = prompts[row["text"]]
        text = asked["turns"][0] if "turns" in asked else asked["prompt"]
        before = engine.encode(text)
        ids = np.asarray(before + row["ids"], np.int32)
        if len(ids) > LENGTH:
            continue
        padded = jnp.pad(ids, (0, LENGTH - len(ids)))[None]
        answer = slice(len(before) - 1, len(ids) - 1)
        agreed = np.asarray(argmaxes(drafter.params, padded))[answer] == row["ids"]
        copy, run = (np.asarray(x)[answer, 0] for x in copies(padded))
        found = [
            (f"suffix of {n}: {who}", hit[run == n])
            for n in range(1, len(TRUST) + 1)
            for who, hit in (("copy", copy == row["ids"]), ("drafter", agreed))
        ]
        for kind, hits in [(asked[a.key], agreed), ("all", agreed), *found]:
            counts[kind] = [x + y for x, y in zip(counts[kind], (1, hits.size, hits.sum()), strict=True)]
    table = Table("kind", "answers", "tokens", "agreement")
    for kind, (n, tokens, agreed) in sorted(counts.items()):
        table.add_row(kind, str(n), str(tokens), f"{agreed / max(tokens, 1):.3f}")
    Console(stderr=True).print(table)
    print(json.dumps({kind: round(float(x[2] / max(x[1], 1)), 4) for kind, x in sorted(counts.items())}))


if __name__ == "__main__":
    main()
