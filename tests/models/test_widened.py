"""Tables padded to different sizes: what is sampled follows pi exactly, whichever of the two is narrower."""

import jax
import jax.numpy as jnp
import laws
import numpy as np
import pytest

from spec_cascades.decode.loop import LM, generate
from spec_cascades.decode.speculative import Speculative
from spec_cascades.models.markov import Markov
from spec_cascades.models.widened import Widened, same_width
from spec_cascades.probs import Pair, raw
from spec_cascades.rules import RULES

V, NARROW, ROWS, N = laws.VOCAB, laws.VOCAB - 1, 4000, 3


def narrow(tables):
    """The model without a row for the last id, which it reads as the one before."""
    return tables[:, :NARROW, :NARROW]


def contexts(tables, vocab):
    """Logits after each of the v^3 contexts, -inf beyond `vocab`: [v^3, v]."""
    seen = np.minimum(np.arange(V), vocab - 1)
    two, one, last = np.asarray(tables)[2][seen], np.asarray(tables)[1][seen], np.asarray(tables)[0][seen]
    logits = two[:, None, None] + one[None, :, None] + last[None, None, :]
    wide = np.full((V, V, V, V), -np.inf, np.float32)
    wide[..., :vocab] = logits
    return jnp.asarray(wide.reshape(-1, V))


def pair(params, vocabs):
    p, q = (contexts(params[name], vocabs[name]) for name in ("target", "drafter"))
    return Pair(raw(q), raw(p), raw(q), raw(p))


@pytest.mark.parametrize("short", ["drafter", "target"])
@pytest.mark.parametrize(("rule", "alpha"), [("lossless", 0.0), ("opt", 0.2), ("v3", 0.3), ("chow", 0.5)])
def test_samples_follow_pi(short, rule, alpha):
    params, vocabs = dict(laws.tables()), {"drafter": V, "target": V}
    params[short], vocabs[short] = narrow(params[short]), NARROW
    drafter, target = same_width(*(Markov(vocabs[name]) for name in ("drafter", "target")))
    method = Speculative(drafter, target, RULES[rule], 2)
    prompts = jnp.broadcast_to(jnp.asarray(laws.PROMPT, jnp.int32), (ROWS, len(laws.PROMPT)))
    lengths = jnp.full(ROWS, len(laws.PROMPT), jnp.int32)
    request = laws.request([laws.Setting(alpha=alpha)], ROWS, max_new=N)
    got = generate(method, params, prompts, lengths, request, N)
    law = laws.joint(laws.pi_of(RULES[rule], pair(params, vocabs), alpha), N)
    assert laws.follows(laws.triples(np.asarray(got.tokens), N), law) > laws.FLOOR
    if short == "target" and rule == "lossless":
        assert int(got.tokens.max()) < NARROW
    if short == "drafter":
        assert int(got.tokens.max()) == NARROW, "what the drafter cannot say must come from the target"


def test_only_the_narrower_is_widened():
    five, seven = Markov(5), Markov(7)
    assert same_width(five, seven) == (Widened(five, 7), seven)
    assert same_width(seven, five) == (seven, Widened(five, 7))
    assert same_width(five, five) == (five, five)
    assert isinstance(Widened(five, 7), LM)
    with pytest.raises(ValueError, match="4 is less than the 5 ids"):
        Widened(five, 4)


def test_the_ids_both_know_keep_their_scores():
    params = laws.tables()["target"]
    tokens, lengths = jnp.asarray([[1, 3, 2]]), jnp.asarray([3])
    plain, wide = Markov(V), Widened(Markov(V), V + 3)
    last, cache = plain.prefill(params, tokens, lengths, 8)
    last_wide, cache_wide = wide.prefill(params, tokens, lengths, 8)
    logits, _ = plain.extend(params, last[:, None], cache)
    widened, _ = wide.extend(params, last_wide[:, None], cache_wide)
    np.testing.assert_array_equal(widened[..., :V], logits)
    assert bool(jnp.all(jnp.isneginf(widened[..., V:])))
    jax.tree.map(np.testing.assert_array_equal, cache, cache_wide)
