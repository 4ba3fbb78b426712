"""No cache is copied in the decode loop: a walk of the optimised HLO, nested loops and fusions included."""

import re
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import laws
import pytest
from laws import Setting

from spec_cascades.decode import loop
from spec_cascades.decode.speculative import Speculative
from spec_cascades.models import t5
from spec_cascades.rules import RULES

# Sizes that make a cache's shape unlike any other array's: [3, 4, 7 + 600 + 3, 16].
SIZES = dict(vocab=40, embeddings=48, d_model=24, d_kv=16, d_ff=40, heads=4, encoder_layers=1)
B, S, N, GAMMA = 3, 7, 600, 2
CACHE, MEMORY = f"{B},4,{S + N + GAMMA + 1},16", f"{B},4,{S},16"
LAYERS = {"target": 3, "drafter": 1}
CACHES = 2 * 4 * B * (S + N + GAMMA + 1) * 4 * 16 * sum(LAYERS.values())
"""Bytes of both models' own keys and values."""


@dataclass(frozen=True)
class Keeping(Speculative):
    """A method that goes back to the old cache where a row is at its start: what the test must notice."""

    def step(self, params, noise, last, caches, request):
        block = super().step(params, noise, last, caches, request)
        new, old = block.caches["target"], caches["target"]
        stay = (old.length < 2)[:, None, None, None]
        kept = jax.tree.map(lambda a, b: jnp.where(stay, b, a), new.layers, old.layers)
        return block._replace(caches={**block.caches, "target": new._replace(layers=kept)})


def compiled(method_of, rule):
    """The compiled loop of a tiny T5 pair."""
    models = {name: t5.T5(t5.Config(**SIZES, decoder_layers=n)) for name, n in LAYERS.items()}
    params = {name: t5.init(jax.random.key(0), lm.config) for name, lm in models.items()}
    method = method_of(models["drafter"], models["target"], RULES[rule], GAMMA)
    request = laws.request([Setting(0.5)], B)
    prompts, lengths = jnp.ones((B, S), jnp.int32), jnp.full(B, S)
    state = jax.eval_shape(lambda: loop.start(method, params, prompts, lengths, request, N))
    return loop.run.lower(method, params, state, request).compile()


def computations(text):
    """{name: lines} of an HLO module."""
    found, name = {}, None
    for line in text.splitlines():
        if head := re.match(r"(?:ENTRY )?%?([\w.\-]+) .*\{$", line):
            name = head[1]
            found[name] = []
        elif line.startswith("}"):
            name = None
        elif name is not None:
            found[name].append(line)
    return found


def called(line):
    """The computations that an instruction runs."""
    lists = re.findall(
        r"(?:calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.\-]+)", line
    )
    for group in re.findall(r"(?:branch_computations|called_computations)=\{([^}]*)\}", line):
        lists += [name.strip().lstrip("%") for name in group.split(",")]
    return lists


def inside_loops(text):
    """All instructions that run within any while body: (instructions, number of loops)."""
    parts = computations(text)
    bodies = [
        m[1] for lines in parts.values() for x in lines if (m := re.search(r" while\(.*body=%?([\w.\-]+)", x))
    ]
    seen, todo = set(), list(bodies)
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += [x for line in parts[name] for x in called(line)]
    return [line for name in sorted(seen) for line in parts[name]], len(bodies)


def copies(lines):
    """Instructions that copy, transpose or select an array of a cache's sizes, in whatever order."""
    made = re.compile(r"= \(?\w+\[([\d,]*)\]\S* .*?\b(?:copy|copy-start|transpose|select)\(")
    sizes = lambda text: sorted(n for n in map(int, text.split(",")) if n > 1)
    large = [sizes(shape) for shape in (CACHE, MEMORY)]
    return [line for line in lines if (m := made.search(line)) and m[1] and sizes(m[1]) in large]


@pytest.mark.parametrize("rule", ["v3", pytest.param("lossless", marks=pytest.mark.slow)])
def test_the_loop_copies_no_cache(rule):
    done = compiled(Speculative, rule)
    lines, loops = inside_loops(done.as_text())
    assert loops >= 2, "the decode loop and the drafter's scan"
    assert sum(f"f32[{CACHE}]" in line for line in lines) >= 8, "the walk has lost the caches"
    assert copies(lines) == []
    sizes = done.memory_analysis()
    assert sizes.temp_size_in_bytes < 0.25 * CACHES, f"{sizes.temp_size_in_bytes} of {CACHES}"
    assert sizes.alias_size_in_bytes >= CACHES, "the donated caches are the result"


def test_the_walk_notices_a_transposed_copy():
    dims = f"{B},{S + N + GAMMA + 1},4,16"
    assert copies([f"  %t.1 = f32[{dims}]{{3,2,1,0}} transpose(%x), dimensions={{0,2,1,3}}"])
    assert not copies([f"  %t.1 = f32[{dims}]{{3,2,1,0}} scatter(%x, %y, %z)", "  %c = s32[] copy(%x)"])


def test_a_method_that_goes_back_to_the_old_cache_is_noticed():
    done = compiled(Keeping, "lossless")
    lines, _ = inside_loops(done.as_text())
    assert len(copies(lines)) >= LAYERS["target"]
    assert done.memory_analysis().temp_size_in_bytes > 0.25 * CACHES
