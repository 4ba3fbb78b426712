"""Verification from logits against the plain path, interpreted: each verdict, the law, the loop."""

import math
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import laws
import numpy as np
import pytest
from laws import Setting

from spec_cascades import kernels
from spec_cascades.checks import ConfigError
from spec_cascades.config import Models
from spec_cascades.decode.autoregressive import Autoregressive
from spec_cascades.decode.bild import bild
from spec_cascades.decode.lookup import Lookup
from spec_cascades.decode.loop import generate
from spec_cascades.decode.sequence import Sequence
from spec_cascades.decode.speculative import Speculative
from spec_cascades.kernels import verification
from spec_cascades.models.markov import Markov
from spec_cascades.probs import Edits, Pair, Sampling, draw, raw
from spec_cascades.rules import RULES
from spec_cascades.verify import Noise, verify

ROWS, W, V, CHUNK = 244, 3, 37, 16
"""Neither the rows fill their blocks of eight, nor the ids their chunks."""


QUICK = {"xla_backend_optimization_level": 0}
"""What compiles these small programs in two thirds of the time."""
ALIKE = ("drafter_only", "chow_log", "diff_log", "opt_log")
"""Rules that the kernel serves as it does others."""


def by_kernel(noise, drafts, drafted, logits, temperature, alpha, rule):
    given = noise, drafts, drafted, *logits, temperature
    return verification.unfiltered(*given, rule, alpha, chunk=CHUNK, interpret=True)


kernel = jax.jit(by_kernel, static_argnames="rule", compiler_options=QUICK)


@partial(jax.jit, static_argnames="rule", compiler_options=QUICK)
def plain(noise, drafts, drafted, pair, alpha, rule):
    return verify(noise, drafts, drafted, pair, rule, alpha)


def sampling(temperature):
    none = jnp.zeros_like(temperature)
    return Sampling(temperature, none.astype(jnp.int32), none + 1, none)


def law_of(logits, temperature):
    """`distribution` without filters, whose search for them takes longer to compile than all else here."""
    t = temperature[:, None, None]
    best = jax.nn.one_hot(jnp.argmax(logits, axis=-1), logits.shape[-1])
    return jnp.where(t == 0, best, raw(logits / jnp.where(t == 0, 1, t)))


@pytest.fixture(scope="module")
def batch():
    return make()


@partial(jax.jit, compiler_options=QUICK)
def make():
    """Rows of every kind: greedy and sampled, ties, ids of no mass, equal models, 0..W-1 drafts."""
    i, keys = jnp.arange(ROWS), jax.random.split(jax.random.key(0), 6)
    kind = lambda n, k: (i % n == k)[:, None, None]
    p = 2 * jax.random.normal(keys[0], (ROWS, W, V))
    q = jnp.where(kind(11, 5), p, p + jax.random.normal(keys[1], (ROWS, W, V)))
    p, q = (jnp.where(kind(3, 0), jnp.round(x), x) for x in (p, q))
    gone = jax.random.uniform(keys[2], (2, ROWS, W, V)) < 0.3
    p, q = (jnp.where(kind(5, 2) & gone[j] & (jnp.arange(V) != j), -jnp.inf, (p, q)[j]) for j in (0, 1))
    temperature = jnp.where(i % 4 == 0, 0.0, jax.random.uniform(keys[3], (ROWS,), minval=0.4, maxval=1.5))
    noise = Noise(*jax.random.uniform(keys[4], (3, ROWS, W)))
    pair = Pair(law_of(q, temperature), law_of(p, temperature), raw(q), raw(p))
    drafted = jax.random.randint(keys[5], (ROWS,), 0, W)
    return noise, draw(pair.q, noise.draft), drafted, (q, p), temperature, pair


def alphas(rule):
    """Both limits, the default, and what lies around it."""
    ends = [x for x in (rule.lossless, rule.draft_only) if not math.isnan(x)]
    around = jnp.linspace(-0.1, 1.1, ROWS)
    at = jnp.arange(ROWS) % 7
    for k, x in enumerate([rule.default, *ends]):
        around = jnp.where(at == k, x, around)
    return around


def test_the_batch_has_what_it_is_to_have(batch):
    _, _, drafted, (q, p), _, pair = batch
    assert set(np.asarray(drafted).tolist()) == set(range(W))
    ties = (p == p.max(-1, keepdims=True)).sum(-1) > 1
    assert ties[::12].any(), "greedy rows with ties"
    for x, other in ((q, pair.p), (p, pair.q)):
        assert (jnp.isneginf(x) & (other > 0)).any()
    assert jnp.all(pair.q == pair.p, axis=(1, 2)).any()


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n in ALIKE)) for n in verification.SERVED]
)
def test_verdicts_equal_those_of_whole_distributions(batch, name):
    rule, (noise, drafts, drafted, logits, temperature, pair) = RULES[name], batch
    alpha = alphas(rule)
    got = kernel(noise, drafts, drafted, logits, temperature, alpha, rule)
    want = plain(noise, drafts, drafted, pair, alpha, rule)
    np.testing.assert_array_equal(got.accepted, want.accepted)
    told = np.arange(W) <= np.asarray(want.accepted)[:, None]
    np.testing.assert_array_equal(np.where(told, got.tokens, 0), np.where(told, want.tokens, 0))
    assert len(np.unique(np.asarray(want.accepted))) == W or name == "drafter_only"


@pytest.mark.parametrize("name", ["v3", "opt"])
def test_the_law_is_pi_by_enumeration(name):
    """Every draft by its q, and a grid of both uniforms: how often each token comes first."""
    rule, n, v = RULES[name], 100, 5
    q, p = jnp.asarray([[0.2, -1.0, 1.4, 0.0, -jnp.inf], [0.0, 0.8, 3.0, -0.5, 0.3]])
    grid = (jnp.arange(n) + 0.5) / n
    draft, u, own = (x.reshape(-1) for x in jnp.meshgrid(jnp.arange(v), grid, grid, indexing="ij"))
    b, two = draft.size, lambda x: jnp.stack([x, x], axis=1)
    temperature, alpha = jnp.full(b, 0.7), jnp.full(b, 0.4)
    wide = [jnp.broadcast_to(x, (b, 2, v)) for x in (q, p)]
    noise = Noise(two(u), two(u), two(own))
    got = kernel(noise, two(draft), jnp.ones(b, jnp.int32), wide, temperature, alpha, rule)
    pair = Pair(raw(q / 0.7)[None], raw(p / 0.7)[None], raw(q)[None], raw(p)[None])
    weight = np.asarray(pair.q[0, draft], np.float64) / n**2
    law = np.bincount(np.asarray(got.tokens)[:, 0], weight, v)
    # Two ends of an interval, each half a step off at most, for the draft and for the token in its place.
    pi = np.asarray(laws.pi_of(rule, pair, 0.4))[0]
    np.testing.assert_allclose(law, pi, atol=2 / n)
    weight = weight * np.asarray(got.accepted)
    assert 0.05 < 1 - weight.sum() < 0.95
    # The bonus token: its uniform is one of the grid's, whatever was accepted.
    np.testing.assert_allclose(
        np.bincount(np.asarray(got.tokens)[:, 1], weight / weight.sum(), v), pi, atol=2 / n
    )


def test_an_empty_residual_falls_back_to_pi():
    """A uniform of 1 rejects a draft though pi = q: the token then comes from pi."""
    b, logits = 16, jnp.log(jnp.asarray([0.0, 0.5, 0.5, 0.0]))
    wide = [jnp.broadcast_to(logits, (b, 2, 4))] * 2
    noise = Noise(jnp.zeros((b, 2)), jnp.ones((b, 2)), jnp.tile((jnp.arange(b) / b)[:, None], 2))
    drafts, one = jnp.ones((b, 2), jnp.int32), jnp.ones(b)
    got = kernel(noise, drafts, one.astype(jnp.int32), wide, one, 0 * one, RULES["lossless"])
    np.testing.assert_array_equal(got.accepted, 0)
    np.testing.assert_array_equal(got.tokens[:, 0], 1 + (np.arange(b) >= b // 2))


def test_a_batch_that_filters_takes_the_plain_path(batch):
    noise, drafts, drafted, logits, temperature, _ = jax.tree.map(lambda x: x[:8], batch)
    rule, alpha, asked = RULES["v3"], jnp.full(8, 0.3), sampling(temperature + 0.5)
    quick = partial(jax.jit, static_argnums=6, compiler_options=QUICK)
    judge, want = quick(partial(verification.judge, interpret=True)), quick(verification.reference)
    filtered = asked._replace(top_k=jnp.asarray([0] * 4 + [1] * 4, jnp.int32))
    ask = lambda f, s: np.asarray(f(noise, drafts, drafted, *logits, s, rule, alpha).tokens)
    np.testing.assert_array_equal(ask(judge, filtered), ask(want, filtered))
    np.testing.assert_array_equal(ask(judge, asked), ask(want, asked))
    assert (ask(want, asked) != ask(want, filtered)).any()


# ------------------------------------------------------------------------------------------------------------
# In a method


def judge(noise, drafts, drafted, q, p, sampling, rule, alpha):
    return by_kernel(noise, drafts, drafted, (q, p), sampling.temperature, alpha, rule)


@pytest.mark.parametrize("name", ["v3", pytest.param("lossless", marks=pytest.mark.slow)])
def test_texts_are_those_of_the_plain_path(name):
    """Of greedy and sampled rows with edited scores, through blocks that the drafter's cache lags in."""
    rows = [Setting(0.5, 0.0), Setting(0.3, 0.8), Setting(0.7, 1.3)]
    request, v = laws.request(rows, 4), laws.VOCAB
    bias = jnp.zeros((12, v)).at[1::3, 2].set(-jnp.inf)
    request = request._replace(edits=Edits(bias, jnp.full(12, 1.3), jnp.zeros((12, v), bool)))
    prompts = jax.random.randint(jax.random.key(4), (12, 4), 0, v)
    dense = Speculative(laws.LM, laws.LM, RULES[name], 2)
    run = lambda m: generate(m, laws.tables(), prompts, jnp.full(12, 4), request, 16)
    want, got = run(dense), run(replace(dense, judge=judge))
    np.testing.assert_array_equal(got.tokens, want.tokens)
    for ours, theirs in zip(jax.tree.leaves(got.ledger), jax.tree.leaves(want.ledger), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_what_the_kernel_does_not_serve_is_refused(monkeypatch):
    make = lambda name, lm=laws.LM: Speculative(lm, lm, RULES[name], 2)
    with pytest.raises(ValueError, match="verification 'kernel' is for TPUs, and this is a cpu"):
        kernels.verified(make("v3"))
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    assert kernels.verified(make("v3")).judge is verification.judge
    with pytest.raises(ValueError, match="not on a mesh"):
        kernels.verified(make("v3"), mesh=True)
    for name in set(RULES) - set(verification.SERVED):
        with pytest.raises(ValueError, match=f"serves lossless, .*, not '{name}'"):
            kernels.verified(make(name))
    with pytest.raises(ValueError, match="not 'bild'"):
        kernels.verified(bild(laws.LM, laws.LM, 2))
    with pytest.raises(ValueError, match="up to 305834 ids, and there are 400000"):
        kernels.verified(make("v3", Markov(400_000)))
    with pytest.raises(ValueError, match="does not serve method 'hybrid'"):
        kernels.verified(Sequence(laws.LM, laws.LM, "average", 0.5, verify=True))
    with pytest.raises(ValueError, match="needs a model as drafter, not a Lookup"):
        kernels.verified(Speculative(Lookup(laws.VOCAB), laws.LM, RULES["v3"], 2))
    alone = Autoregressive(laws.LM)
    assert kernels.verified(alone) is alone
    with pytest.raises(ConfigError, match="verification"):
        Models(verification="fast")
