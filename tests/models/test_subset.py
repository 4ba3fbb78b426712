"""A drafter that knows only some ids: its logits, and that what is emitted still follows pi exactly."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import laws
import numpy as np
import pytest
from laws import Setting

from spec_cascades.decode.loop import generate
from spec_cascades.decode.speculative import Speculative
from spec_cascades.models.subset import Subset, places
from spec_cascades.rules import RULES

KEPT = jnp.asarray([0, 2, 3])
ROWS = 20_000


@dataclass(frozen=True)
class Cut:
    """The toy LM, scoring `KEPT` alone."""

    lm: Any

    def prefill(self, params, tokens, lengths, capacity, width=None):
        return self.lm.prefill(params, tokens, lengths, capacity)

    def extend(self, params, tokens, cache):
        logits, cache = self.lm.extend(params, tokens, cache)
        return logits[..., KEPT], cache


DRAFTER = Subset(Cut(laws.LM), laws.VOCAB)


def params():
    tables = laws.tables()
    held = {"model": tables["drafter"], "place": places(KEPT, laws.VOCAB)}
    return {"target": tables["target"], "drafter": held}


def test_ids_without_a_logit_score_minus_infinity():
    lm, own = Cut(laws.LM), laws.tables()["drafter"]
    tokens, lengths = jnp.asarray([laws.PROMPT] * 2), jnp.full(2, 3)
    last, cache = DRAFTER.prefill(params()["drafter"], tokens, lengths, 8)
    full, after = DRAFTER.extend(params()["drafter"], jnp.stack([last, last], 1), cache)
    _, cache = lm.prefill(own, tokens, lengths, 8)
    some, _ = lm.extend(own, jnp.stack([last, last], 1), cache)
    assert full.shape == (2, 2, laws.VOCAB)
    np.testing.assert_array_equal(full[..., KEPT], some)
    assert np.isneginf(np.asarray(full)[..., [1, 4]]).all()
    np.testing.assert_array_equal(after.length, cache.length + 2)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_lossless_speculation_follows_the_target_whatever_the_drafter_knows(temperature):
    """Two of five ids are never drafted; they come from the residual as often as p wants them."""
    method = Speculative(DRAFTER, laws.LM, RULES["lossless"], 2)
    setting = Setting(temperature=temperature)
    prompts = jnp.broadcast_to(jnp.asarray(laws.PROMPT), (ROWS, 3))
    request = laws.request([setting], ROWS, max_new=6)
    got = generate(method, params(), prompts, jnp.full(ROWS, 3), request, 6)
    for n in (3, 6):
        counts = laws.triples(np.asarray(got.tokens), n)
        assert laws.follows(counts, laws.joint(laws.pairs(setting).p, n)) > laws.FLOOR
