"""No cache is copied in the decode loop: a walk of the optimised HLO, nested loops and fusions included."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import laws
import pytest
from laws import Setting

from spec_cascades.decode import loop
from spec_cascades.decode.autoregressive import Autoregressive
from spec_cascades.decode.speculative import Speculative
from spec_cascades.decode.token_cascade import TokenCascade
from spec_cascades.lowering import hlo
from spec_cascades.models import t5
from spec_cascades.models.copying import Copying
from spec_cascades.rules import RULES

# Sizes that make a cache's shape unlike any other array's: [3, 4, 7 + 600 + 3, 16].
SIZES = dict(vocab=40, embeddings=48, d_model=24, d_kv=16, d_ff=40, heads=4, encoder_layers=1)
B, S, N, GAMMA = 3, 7, 600, 2
LAYERS = {"target": 3, "drafter": 1}


@dataclass(frozen=True)
class Keeping(Speculative):
    """A method that goes back to the old cache where a row is at its start: what the test must notice."""

    def step(self, params, noise, view, caches, request):
        block = super().step(params, noise, view, caches, request)
        new, old = block.caches["target"], caches["target"]
        stay = (old.length < 2)[:, None, None, None]
        kept = jax.tree.map(lambda a, b: jnp.where(stay, b, a), new.layers, old.layers)
        return block._replace(caches={**block.caches, "target": new._replace(layers=kept)})


def speculative(rule, kind=Speculative, scan=False):
    """The method over a tiny T5 pair."""
    models = {name: t5.T5(t5.Config(**SIZES, decoder_layers=n), scan=scan) for name, n in LAYERS.items()}
    return kind(models["drafter"], models["target"], RULES[rule], GAMMA)


def copying():
    """The same pair, whose drafter also copies."""
    plain = speculative("v3")
    return Speculative(Copying(plain.drafter), plain.target, plain.rule, GAMMA)


def config_of(lm):
    return lm.lm.config if isinstance(lm, Copying) else lm.config


def compiled(method, b=B):
    """The compiled loop of a method for b rows."""
    params = {
        name: lm.serving(t5.init(jax.random.key(0), config_of(lm))) for name, lm in method.models.items()
    }
    request = laws.request([Setting(0.5)], b)
    prompts, lengths = jnp.ones((b, S), jnp.int32), jnp.full(b, S)
    state = jax.eval_shape(lambda: loop.start(method, params, prompts, lengths, request, N))
    return loop.run.lower(method, params, state, request).compile()


def cache_shape(method, b=B):
    """A cache's shape as HLO writes it."""
    return f"{b},4,{S + N + method.width},16"


def stack_shape(method):
    """That of the target's scanned layers' caches."""
    return f"{B},{LAYERS['target']},4,{S + N + method.width},16"


def cache_bytes(method, b=B):
    """Bytes of all the models' own keys and values."""
    layers = sum(config_of(lm).decoder_layers for lm in method.models.values())
    return 2 * 4 * b * (S + N + method.width) * 4 * 16 * layers


def inside_loops(text):
    """All instructions that run within any while body: (instructions, number of loops)."""
    lines, loops = hlo.inside_loops(text)
    return [line.text for line in lines], loops


def copies(lines, method, b=B):
    """Instructions that copy, transpose or select an array of a cache's sizes, in whatever order."""
    shapes = (cache_shape(method, b), stack_shape(method), f"{b},4,{S},16")
    return hlo.copies([hlo.Line(x, 1, True) for x in lines], [map(int, s.split(",")) for s in shapes])


ALONE = Autoregressive(t5.T5(t5.Config(**SIZES, decoder_layers=3)))
CASCADE = TokenCascade(speculative("v3").drafter, speculative("v3").target, RULES["chow"], 4)
METHODS = [
    pytest.param(speculative("v3"), B, 2, id="v3"),
    pytest.param(speculative("lossless"), B, 2, id="lossless", marks=pytest.mark.slow),
    pytest.param(speculative("lossless"), 1, 2, id="lossless-one-row"),
    pytest.param(copying(), B, 2, id="copying"),
    pytest.param(CASCADE, B, 2, id="token-cascade"),
    pytest.param(ALONE, B, 1, id="alone"),
    pytest.param(ALONE, 1, 1, id="alone-one-row"),
]


@pytest.mark.parametrize(("method", "b", "loops"), METHODS)
def test_the_loop_copies_no_cache(method, b, loops):
    done = compiled(method, b)
    lines, found = inside_loops(done.as_text())
    assert found >= loops, "the decode loop and the one inside it"
    assert sum(f"f32[{cache_shape(method, b)}]" in line for line in lines) >= 4, (
        "the walk has lost the caches"
    )
    assert copies(lines, method, b) == []


def test_the_loop_copies_no_cache_of_scanned_layers():
    method = speculative("v3", scan=True)
    lines, found = inside_loops(compiled(method).as_text())
    assert found >= 4, "the decode loop, the one that drafts, and each model's layers"
    assert sum(f"f32[{stack_shape(method)}]" in line for line in lines) >= 4, "the walk has lost the caches"
    assert copies(lines, method) == []


@pytest.mark.parametrize("method", [speculative("v3"), copying(), ALONE], ids=["v3", "copying", "alone"])
def test_the_donated_caches_are_the_result(method):
    sizes = compiled(method).memory_analysis()
    whole = cache_bytes(method)
    assert sizes.temp_size_in_bytes < 0.25 * whole, f"{sizes.temp_size_in_bytes} of {whole}"
    assert sizes.alias_size_in_bytes >= whole


def test_the_walk_notices_a_transposed_copy():
    method = speculative("v3")
    dims = f"{B},{S + N + method.width},4,16"
    assert copies([f"  %t.1 = f32[{dims}]{{3,2,1,0}} transpose(%x), dimensions={{0,2,1,3}}"], method)
    quiet = [f"  %t.1 = f32[{dims}]{{3,2,1,0}} scatter(%x, %y, %z)", "  %c = s32[] copy(%x)"]
    assert not copies(quiet, method)


def test_a_method_that_goes_back_to_the_old_cache_is_noticed():
    method = speculative("lossless", Keeping)
    done = compiled(method)
    lines, _ = inside_loops(done.as_text())
    assert len(copies(lines, method)) >= LAYERS["target"]
    assert done.memory_analysis().temp_size_in_bytes > 0.25 * cache_bytes(method)
