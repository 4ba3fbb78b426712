"""Rings and chunks change no token, whatever the method: against whole caches and prompts in one piece."""

from dataclasses import dataclass, replace
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
    **dict(generation=3, vocab=40, embeddings=48, d_model=16, d_ff=32, layers=4, heads=4, kv_heads=1),
    **dict(head_dim=4, pattern=3, window=WINDOW, query_scalar=4),
)
TARGET = Gemma(CONFIG, chunk=16)


def _pair():
    """A target and its first two layers, both local; loud layers, else the text is one token repeated."""
    sharp = lambda path, x: x * (1.0 if "scale" in str(path) or "embed" in str(path) else 2.5)
    params = jax.tree_util.tree_map_with_path(sharp, init(jax.random.key(0), CONFIG))
    drafter, small = exited(TARGET, params, 2)
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


def run(method, params=PARAMS, request=None):
    state = loop.start(method, params, TOKENS, jnp.asarray(LENGTHS), request or ask(), N)
    return loop.finish(loop.run(method, params, state, request or ask()), request or ask()), state


METHODS = {
    "lossless-1": lambda q, p: Speculative(q, p, RULES["lossless"], 1),
    "lossless-4": lambda q, p: Speculative(q, p, RULES["lossless"], 4),
    "v3-2": lambda q, p: Speculative(q, p, RULES["v3"], 2),
    "v3-5": lambda q, p: Speculative(q, p, RULES["v3"], 5),
    "token-8": lambda q, p: TokenCascade(q, p, RULES["chow"], 8),
    "bild-3": lambda q, p: bild(q, p, 3, 0.3),
    "alone": lambda q, p: Autoregressive(p),
}


@pytest.fixture(scope="module", params=METHODS)
def pair(request):
    """(the method, its answers with rings, those without, the state that it began with)."""
    made = METHODS[request.param]
    asked = ask(range(4)) if "bild" in request.param else ask()
    whole, _ = run(made(Whole(DRAFTER), Whole(TARGET)), request=asked)
    ringed, state = run(made(DRAFTER, TARGET), request=asked)
    return made(DRAFTER, TARGET), ringed, whole, state


def test_every_token_is_that_of_whole_caches(pair):
    _, ringed, whole, _ = pair
    jax.tree.map(np.testing.assert_array_equal, ringed, whole)
    assert (ringed.length == jnp.asarray([N, N, N, 25])).all()
    assert len(np.unique(ringed.tokens)) > 10


def test_local_layers_hold_the_window_and_the_longest_block(pair):
    method, _, _, state = pair
    capacity = 60 + N + method.width
    for cache in state.caches.values():
        for i, layer in enumerate(cache.layers):
            assert isinstance(layer, Ring) == CONFIG.local(i)
            slots = WINDOW + loop.reach(method) if CONFIG.local(i) else capacity
            assert {x.shape for x in layer} == {(4, 1, slots, 4)}


def test_refilled_slots_give_the_answers_of_a_batch():
    """Newcomers' rings are put where finished rows' were."""
    method = METHODS["v3-2"](DRAFTER, TARGET)
    expected, _ = run(method)
    served = dict(scheduler.serve(method, PARAMS, PROMPTS, ask(), N, 2, bucket=60))
    for i, row in served.items():
        np.testing.assert_array_equal(row.tokens[0], expected.tokens[i])


def test_a_hybrid_verifies_an_answer_longer_than_the_window():
    answers = []
    for q, p in ((DRAFTER, TARGET), (Whole(DRAFTER), Whole(TARGET))):
        cascade = sequence.Sequence(q, p, verify=True)
        request = ask()._replace(alpha=jnp.asarray([-9.0] * 3 + [9.0]))
        answers.append(sequence.run(cascade, PARAMS, TOKENS, jnp.asarray(LENGTHS), request, N))
    assert answers[0][1].deferred.tolist() == [True] * 3 + [False]
    jax.tree.map(np.testing.assert_array_equal, answers[0][0], answers[1][0])


def test_wrappers_pass_the_width_on():
    wrapped = [
        (Copying(TARGET), PARAMS["target"], lambda cache: cache.layers[0]),
        (Widened(TARGET, 60), PARAMS["target"], lambda cache: cache.layers),
        (Subset(TARGET, 48), {"model": PARAMS["target"], "place": jnp.arange(48)}, lambda c: c.layers),
    ]
    for lm, params, layers in wrapped:
        shapes = jax.eval_shape(lambda p, lm=lm: lm.prefill(p, TOKENS, jnp.asarray(LENGTHS), 110, 3), params)
        kinds = [isinstance(pair, Ring) for pair in layers(shapes[1])]
        assert kinds == [True, True, False, True], lm
