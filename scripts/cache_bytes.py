"""What the caches of the published Gemmas hold for one row: python scripts/cache_bytes.py [--gamma 4]

Keys and values in bfloat16, with rings for the local layers and without, from shapes alone. One row of a
markdown table for each model (docs/long_prompts.md).
"""

import argparse
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from spec_cascades.models.gemma import PRESETS, Gemma, shapes_of

MODELS = ("gemma-2-9b", "gemma-3-4b", "gemma-3-12b", "gemma-3-27b")
CONTEXTS = (8192, 32_768, 131_072)


def cache_bytes(name: str, capacity: int, width: int | None) -> int:
    """Bytes of all layers' caches for a row of so many slots; width: of a block, None for no rings."""
    lm = Gemma(PRESETS[name], jnp.bfloat16, scan=True)
    kernel: Any = partial(jax.ShapeDtypeStruct, dtype=jnp.bfloat16)
    params = jax.tree.map(kernel, shapes_of(lm.config), is_leaf=lambda x: isinstance(x, tuple))
    fill = lambda params, tokens, lengths: lm.prefill(lm.serving(params), tokens, lengths, capacity, width)
    prompt, length = (jax.ShapeDtypeStruct(shape, jnp.int32) for shape in ((1, 32), (1,)))
    cache = jax.eval_shape(fill, params, prompt, length)[1]
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(cache.layers))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=sorted(PRESETS))
    parser.add_argument("--contexts", type=int, nargs="+", default=list(CONTEXTS))
    parser.add_argument("--gamma", type=int, default=4)
    a = parser.parse_args()
    print(f"| model, GB a row at | {' | '.join(f'{n:,}' for n in a.contexts)} |")
    print(f"| --- | {' | '.join(['---:'] * len(a.contexts))} |")
    for name in a.models:
        for label, width in (("whole", None), ("rings", a.gamma + 1)):
            cells = [f"{cache_bytes(name, n, width) / 1e9:.3f}" for n in a.contexts]
            print(f"| {name}, {label} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
