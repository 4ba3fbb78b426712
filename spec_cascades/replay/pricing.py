"""What a rule would cost along stored texts: rejections by the rules' own code, blocks by renewal."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from spec_cascades.probs import Pair
from spec_cascades.replay.store import Rows, chunks, dense
from spec_cascades.rules import Rule
from spec_cascades.typing import Array

ENTRIES = 2**21
"""Of one column of a chunk: a chunk has as many positions as fit."""


def rejections(rows: Rows, rule: Rule, alphas: Sequence[float]) -> np.ndarray:
    """P(a draft is rejected) = sum_v max(0, q(v) - pi(v)) at every position and alpha: [alphas, n].

    A draft d ~ q stands with probability min(1, pi(d) / q(d)) (Alg. 4); for a mask of one bit it is Lemma 3's
    r D_TV(p, q). pi is `Rule.pi` on the stored ids: within the store's remainder of the dense one.
    """
    width = 1 << max(0, rows.width - 1).bit_length()
    n = max(1, min(ENTRIES // width, len(rows.counts)))
    found = []
    for some in chunks(rows, n):
        pair = {name: np.pad(x, ((0, n - len(x)), (0, 0))) for name, x in dense(some, width).items()}
        rejected = _rejected(rule, Pair(**pair), jnp.asarray(alphas, jnp.float32))
        found.append(np.asarray(rejected, np.float64)[:, : len(some.counts)])
    return np.clip(np.concatenate(found, axis=1), 0.0, 1.0)


@partial(jax.jit, static_argnames="rule")
def _rejected(rule: Rule, pair: Pair, alphas: Array) -> Array:
    """[alphas, n], one alpha after the other: a chunk for each at once would not fit."""
    one = lambda alpha: jnp.sum(
        jnp.maximum(pair.q - rule.pi(pair, jnp.full((len(pair.q), 1), alpha)), 0.0), -1
    )
    return lax.map(one, alphas)


class Blocks(NamedTuple):
    """Expected counts of the ledger (`metrics.rates`) over an answer, or the sum of many.

    judged, accepted [g]: by position in the block.
    """

    tokens: int
    calls: float
    judged: np.ndarray
    accepted: np.ndarray


def blocks(stands: np.ndarray, gamma: int) -> Blocks:
    """Expected blocks along a text whose token t's draft would stand with probability stands[t].

    Renewal: let u(s) be the probability that a block begins at token s, u(0) = 1. From s the block keeps
    exactly n drafts with probability prod_{i<n} stands[s+i] * (1 - stands[s+n]), or all gamma with
    prod_{i<gamma} stands[s+i]; one token of the verifier's own follows, and the next block begins at
    s + n + 1. Hence, over the tokens of the text, what lies behind it being cut off,

        calls = sum_s u(s),  judged[i] = sum_s u(s) prod_{j<i} stands[s+j],
        accepted[i] = sum_s u(s) prod_{j<=i} stands[s+j],  tokens per target call = tokens / calls.

    Drafts follow the recorded text, and so does what comes after a rejection. Past the first token at which
    the rule would have written another, that is not the text the rule would have seen, and tokens that stand
    are not told from tokens that are replaced: an estimate.
    """
    t = len(stands)
    begins = np.zeros(t + gamma + 1)
    begins[0] = 1.0
    judged, accepted = np.zeros(gamma), np.zeros(gamma)
    for s in range(t):
        reached = begins[s]
        for i, kept in enumerate(stands[s : s + gamma]):
            judged[i] += reached
            accepted[i] += reached * kept
            begins[s + i + 1] += reached * (1 - kept)
            reached *= kept
        begins[s + gamma + 1] += reached
    return Blocks(t, float(begins[:t].sum()), judged, accepted)


class Price(NamedTuple):
    """A point along the texts of a store.

    acceptance: mean over positions of P(a draft stands), each exact for its own prefix; the others are
    expectations of the ledger's figures, with standard errors over answers (None for a single answer).
    """

    acceptance: float
    rejection_rate: float
    rejection_error: float | None
    tokens_per_target_call: float
    tokens_error: float | None
    acceptance_by_position: list[float | None]


def price(rejected: np.ndarray, lengths: Sequence[int], gamma: int) -> Price:
    """The price of one rule and alpha: rejected [n] over the positions of answers of these lengths."""
    parts = np.split(1 - rejected, np.cumsum(lengths)[:-1])
    each = [blocks(stands, gamma) for stands in parts]
    judged, accepted = (np.stack([getattr(b, name) for b in each]) for name in ("judged", "accepted"))
    by_position = zip(accepted.sum(0), judged.sum(0), strict=True)
    return Price(
        float(np.mean(1 - rejected)),
        *_ratio((judged - accepted).sum(1), judged.sum(1)),
        *_ratio(np.array([b.tokens for b in each], float), np.array([b.calls for b in each])),
        [float(a / j) if j else None for a, j in by_position],
    )


def _ratio(parts: np.ndarray, wholes: np.ndarray) -> tuple[float, float | None]:
    """sum(parts) / sum(wholes) and its standard error over answers, by linearisation."""
    n, ratio = len(parts), parts.sum() / wholes.sum()
    if n == 1:
        return float(ratio), None
    spread = np.sqrt(np.sum((parts - ratio * wholes) ** 2) * n / (n - 1))
    return float(ratio), float(spread / wholes.sum())
