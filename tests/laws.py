"""Exact laws of the toy Markov pair by enumeration, and the statistics that compare samples with them."""

from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from spec_cascades.decode.loop import Request, generate
from spec_cascades.models import markov
from spec_cascades.probs import Pair, Sampling, distribution, raw

VOCAB = 5
PROMPT = (1, 3, 2)
LM = markov.Markov(VOCAB)
FLOOR = 1e-5
"""The p-value below which a sample is said not to follow a law; seeds are fixed, so a pass is for good."""


class Setting(NamedTuple):
    """What a group of rows asks for."""

    alpha: float = 0.0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0


@cache
def tables():
    """Parameters of a target and of a drafter that is like it, but not very."""
    target = markov.init(jax.random.key(1), VOCAB, 1.0)
    return {"target": target, "drafter": 0.6 * target + markov.init(jax.random.key(2), VOCAB, 0.6)}


def request(settings, rows, eos=-1, max_new=64, seeds=None):
    """`rows` rows a setting, with seeds 0..rows-1 in each."""
    columns = [jnp.repeat(jnp.asarray(x), rows) for x in zip(*settings, strict=True)]
    alpha, temperature, top_k, top_p, min_p = columns
    b = len(settings) * rows
    seeds = jnp.tile(jnp.arange(rows), len(settings)) if seeds is None else jnp.asarray(seeds)
    return Request(
        Sampling(
            temperature.astype(jnp.float32), top_k.astype(jnp.int32), top_p.astype(jnp.float32), min_p * 1.0
        ),
        alpha.astype(jnp.float32),
        _ends(eos, b),
        jnp.broadcast_to(jnp.asarray(max_new, jnp.int32), (b,)),
        seeds.astype(jnp.uint32),
    )


def _ends(eos, b):
    """End symbols [b, e] of one for all rows, one a row, or several a row."""
    eos = jnp.asarray(eos, jnp.int32)
    return eos if eos.ndim == 2 else jnp.broadcast_to(eos, (b,))[:, None]


def sample(method, settings, rows, n):
    """The first n tokens of `rows` rows a setting: [settings, rows, n]."""
    b = rows * len(settings)
    prompts = jnp.broadcast_to(jnp.asarray(PROMPT, jnp.int32), (b, len(PROMPT)))
    lengths = jnp.full(b, len(PROMPT), jnp.int32)
    got = generate(method, tables(), prompts, lengths, request(settings, rows, max_new=n), n)
    assert bool(jnp.all(got.length == n))
    return np.asarray(got.tokens).reshape(len(settings), rows, n)


@jax.jit
def _contexts(params):
    """Logits after each of the v^3 contexts (two before, one before, last): [v, v, v, v]."""
    return params[2][:, None, None] + params[1][None, :, None] + params[0][None, None, :]


FILTER = jax.jit(distribution)


def pairs(setting):
    """The Pair after each of the v^3 contexts, as one batch."""
    p, q = (_contexts(tables()[name]).reshape(-1, VOCAB) for name in ("target", "drafter"))
    sampling = request([setting], len(p)).sampling
    return Pair(FILTER(q, sampling), FILTER(p, sampling), raw(q), raw(p))


@partial(jax.jit, static_argnames="rule")
def pi_of(rule, pair, alpha):
    """A rule's pi for every pair of a batch [b, v]."""
    return rule.pi(pair, jnp.broadcast_to(alpha, (pair.q.shape[0], 1)))


def joint(transition, n):
    """Law of tokens n-2..n after PROMPT, [v, v, v]; `transition` [v^3, v], the law after a context."""
    step = np.asarray(transition, np.float64).reshape((VOCAB,) * 4)
    step = step / step.sum(-1, keepdims=True)
    now = np.zeros((VOCAB,) * 3)
    now[PROMPT] = 1
    for _ in range(n):
        now = np.einsum("abc,abcd->bcd", now, step)
    return now


def follows(counts, law):
    """Chi-square p-value of counts against a law of the same shape, cells of fewer than 5 expected merged.

    Raises AssertionError where a cell of probability zero is hit.
    """
    counts, law = np.ravel(counts).astype(float), np.ravel(law)
    assert counts[law == 0].sum() == 0, "a token of probability zero was drawn"
    expected = law * counts.sum()
    small = expected < 5
    counts = np.append(counts[~small], counts[small].sum())
    expected = np.append(expected[~small], expected[small].sum())
    if expected[-1] < 5:
        i = np.argmin(expected[:-1])
        counts[i], expected[i] = counts[i] + counts[-1], expected[i] + expected[-1]
        counts, expected = counts[:-1], expected[:-1]
    if len(counts) == 1:
        return 1.0
    return stats.chi2.sf(np.sum((counts - expected) ** 2 / expected), len(counts) - 1)


def triples(tokens, n):
    """Counts of the tokens n-2..n of sampled rows [rows, >= n]."""
    index = np.ravel_multi_index(tuple(tokens[:, n - 3 : n].T), (VOCAB,) * 3)
    return np.bincount(index, minlength=VOCAB**3)
