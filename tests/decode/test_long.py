"""Rings and chunks change no token, whatever the method: against whole caches and prompts in one piece."""

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import laws
import numpy as np
import pytest
from laws import Setting

from spec_cascades.decode import loop, scheduler, sequence
from spec_cascades.decode.autoregressive import Autoregressive
from spec_cascades.decode.bild import bild
from spec_cascades.decode.speculative import Speculative
from spec_cascades.decode.token_cascade import TokenCascade
from spec_cascades.models.copying import Copying
from spec_cascades.models.exited import exited
from spec_cascades.models.gemma import Config, Gemma, init
from spec_cascades.models.rings import Ring
from spec_cascades.models.subset import Subset
from spec_cascades.models.widened import Widened
from spec_cascades.rules import RULES

N, WINDOW = 40, 8
CONFIG = Config(
    **dict(generation=3, vocab=40, embeddings=48, d_model=16, d_ff=32, layers=3, heads=4, kv_heads=1),
    **dict(head_dim=4, pattern=3, window=WINDOW, query_scalar=4),
)
TARGET = Gemma(CONFIG, chunk=16)


def _pair():
    """A target and its first layer, a local one; loud layers, else the text is one token repeated."""
    sharp = lambda path, x: x + 3.0 if "post" in str(path) else x * (1.0 if "embed" in str(path) else 2.5)
    params = jax.tree_util.tree_map_with_path(sharp, init(jax.random.key(0), CONFIG))
    drafter, small = exited(TARGET, params, 1)
    return drafter, {"target": params, "drafter": small}


DRAFTER, PARAMS = _pair()
LENGTHS = np.array([60, 5, 33, 17])
PROMPTS = [np.random.default_rng(i).integers(2, 40, n).tolist() for i, n in enumerate(LENGTHS)]
TOKENS, _ = scheduler.pad(PROMPTS, 4)


@dataclass(frozen=True)
class Whole:
    """The model with whole caches, its prompts read in one piece."""

    lm: Any

    @property
    def vocab(self):
        return self.lm.vocab

    def prefill(self, params, tokens, lengths, capacity, width=None):
        return replace(self.lm, chunk=1000).prefill(params, tokens, lengths, capacity)

    def extend(self, params, tokens, cache):
        return self.lm.extend(params, tokens, cache)


def ask(greedy=(0, 1)):
    """Two rows greedy and two sampled; the last is short."""
    settings = [Setting(0.4, temperature=0.0 if row in greedy else 1.0) for row in range(4)]
    return laws.request(settings, 1, max_new=[N, N, N, 25], seeds=range(4))


METHODS = {
    "alone": lambda q, p: Autoregressive(p),
    "lossless-1": lambda q, p: Speculative(q, p, RULES["lossless"], 1),
    "v3-5": lambda q, p: Speculative(q, p, RULES["v3"], 5),
    "token-8": lambda q, p: TokenCascade(q, p, RULES["chow"], 8),
    "bild-3": lambda q, p: bild(q, p, 3, 0.3),
}


@pytest.fixture(autouse=True, scope="module")
def compiling_is_quick():
    """Two in three seconds of these tests would else go into making small loops fast."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@cache
def answers(name, whole):
    """A method's answers, with rings or without, and the state that it began with."""
    method = METHODS[name](*((Whole(DRAFTER), Whole(TARGET)) if whole else (DRAFTER, TARGET)))
    request = ask(range(4)) if "bild" in name else ask()
    state = loop.start(method, PARAMS, TOKENS, jnp.asarray(LENGTHS), request, N)
    shapes = jax.tree.map(jnp.shape, state.caches)
    return loop.finish(loop.run(method, PARAMS, state, request), request), shapes


@pytest.mark.parametrize("name", METHODS)
def test_every_token_is_that_of_whole_caches(name):
    (ringed, _), (whole, _) = (answers(name, whole) for whole in (False, True))
    jax.tree.map(np.testing.assert_array_equal, ringed, whole)
    assert (ringed.length == jnp.asarray([N, N, N, 25])).all()
    assert len(np.unique(ringed.tokens)) > 6


@pytest.mark.parametrize("name", METHODS)
def test_local_layers_hold_the_window_and_the_longest_block(name):
    method = METHODS[name](DRAFTER, TARGET)
    _, shapes = answers(name, False)
    for own in shapes.values():
        for i, layer in enumerate(own.layers):
            assert isinstance(layer, Ring) == CONFIG.local(i)
            slots = WINDOW + loop.reach(method) if CONFIG.local(i) else 60 + N + method.width
            assert set(layer) == {(4, 1, slots, 4)}


def test_the_loop_copies_no_ring():
    """Nor a whole cache beside them, in either model's calls; the rings are in the loop at all."""
    method = METHODS["v3-5"](DRAFTER, TARGET)
    begin = lambda: loop.start(method, PARAMS, TOKENS, jnp.asarray(LENGTHS), ask(), N)
    lines = loop.run.lower(method, PARAMS, jax.eval_shape(begin), ask()).compile().as_text().splitlines()
    kept = [f"f32[4,1,{slots},4]" for slots in (WINDOW + 6, 60 + N + 6)]
    assert all(any(shape in line for line in lines) for shape in kept)
    made = re.compile(r"= \(?(\w+\[[\d,]*\])\S* .*?\b(?:copy|copy-start|transpose|select)\(")
    assert not [line for line in lines if (m := made.search(line)) and m[1] in kept]


def test_refilled_slots_give_the_answers_of_a_batch():
    """Newcomers' rings are put where finished rows' were."""
    method, (expected, _) = METHODS["alone"](DRAFTER, TARGET), answers("alone", True)
    served = dict(scheduler.serve(method, PARAMS, PROMPTS, ask(), N, 2, bucket=60))
    for i, row in served.items():
        np.testing.assert_array_equal(row.tokens[0], expected.tokens[i])


def test_a_hybrid_verifies_an_answer_longer_than_the_window():
    """One block of 41 tokens; greedily the result is the target's own text."""
    request = ask()._replace(alpha=jnp.full(4, -99.0))
    cascade = sequence.Sequence(DRAFTER, TARGET, verify=True)
    got, info = sequence.run(cascade, PARAMS, TOKENS, jnp.asarray(LENGTHS), request, N)
    assert info.deferred.all()
    np.testing.assert_array_equal(got.tokens[:2], answers("alone", True)[0].tokens[:2])


def test_wrappers_pass_the_width_on():
    wrapped = [
        (Copying(TARGET), PARAMS["target"], lambda c: c.layers[0]),
        (Widened(TARGET, 60), PARAMS["target"], lambda c: c.layers),
        (Subset(TARGET, 48), {"model": PARAMS["target"], "place": jnp.arange(48)}, lambda c: c.layers),
    ]
    for lm, params, layers in wrapped:
        shapes = jax.eval_shape(lambda p, lm=lm: lm.prefill(p, TOKENS, jnp.asarray(LENGTHS), 110, 3), params)
        kinds = [isinstance(pair, Ring) for pair in layers(shapes[1])]
        assert kinds == [True, True, False], lm
