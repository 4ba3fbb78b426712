"""Logits to the distributions that rules read and samplers draw from, and one exact draw.

Everything applies in one fixed order, to both models alike: first a request's edits of the scores
(repetition penalty, then bias), which rules see too; then temperature, top-k, top-p, min-p, each on the
renormalised result of the one before.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from spec_cascades import axes
from spec_cascades.typing import Array, Bool, Float, Int


class Sampling(NamedTuple):
    """One row's filters, all data: temperature 0 is the one-hot argmax; top_k 0, top_p 1, min_p 0 are off."""

    temperature: Float[Array, " b"]
    top_k: Int[Array, " b"]
    top_p: Float[Array, " b"]
    min_p: Float[Array, " b"]


class Edits(NamedTuple):
    """A row's changes to the logits; -inf in `bias` forbids an id, penalty 1 leaves repetitions alone.

    seen: ids that count as repeated before the first token, such as the prompt's.
    """

    bias: Float[Array, "b v"]
    penalty: Float[Array, " b"]
    seen: Bool[Array, "b v"]


def edited(
    logits: Float[Array, "b ... v"], edits: Edits | None, seen: Bool[Array, "b ... v"] | None
) -> Float[Array, "b ... v"]:
    """Logits after the repetition penalty (x / penalty where x > 0, else x * penalty; Keskar et al. 2019)
    on ids in `seen`, and the bias; as they are for None.
    """
    if edits is None:
        return logits
    spread = lambda x: x.reshape(x.shape[0], *[1] * (logits.ndim - 2), -1)
    penalty = jnp.where(seen, spread(edits.penalty), 1.0)
    return jnp.where(logits > 0, logits / penalty, logits * penalty) + spread(edits.bias)


def used(seen: Bool[Array, "b v"], tokens: Int[Array, "b t"], count: Int[Array, " b"]) -> Bool[Array, "b v"]:
    """`seen` and the first count[b] tokens of each row."""
    v = seen.shape[-1]
    at = jnp.where(jnp.arange(tokens.shape[1]) < count[:, None], tokens, v)
    return jax.vmap(lambda row, ids: row.at[ids].set(True, mode="drop"))(seen, at)


def used_along(seen: Bool[Array, "b v"] | None, tokens: Int[Array, "b t"]) -> Bool[Array, "b t+1 v"] | None:
    """What has been seen before each of the tokens, and after the last."""
    if seen is None:
        return None
    one = lambda now, token: (now | (jnp.arange(now.shape[-1]) == token[:, None]),) * 2
    along = lax.scan(one, seen, tokens.T)[1]
    return jnp.moveaxis(jnp.concatenate([seen[None], along]), 0, 1)


class Pair(NamedTuple):
    """Drafter's q and target's p over the same prefixes, as sampled, and at temperature 1 unfiltered (raw).

    Rules read confidences off the raw pair; mixing, acceptance, residual and TV use q and p.
    """

    q: Float[Array, "... v"]
    p: Float[Array, "... v"]
    q_raw: Float[Array, "... v"]
    p_raw: Float[Array, "... v"]

    @property
    def q_top(self) -> Float[Array, "... 1"]:
        """max q_raw."""
        return jnp.max(self.q_raw, axis=-1, keepdims=True)

    @property
    def p_top(self) -> Float[Array, "... 1"]:
        """max p_raw."""
        return jnp.max(self.p_raw, axis=-1, keepdims=True)

    @property
    def q_entropy(self) -> Float[Array, "... 1"]:
        """H(q_raw)."""
        return entropy(self.q_raw)

    @property
    def p_entropy(self) -> Float[Array, "... 1"]:
        """H(p_raw)."""
        return entropy(self.p_raw)

    @property
    def distance(self) -> Float[Array, "... 1"]:
        """D_TV(p, q)."""
        return total_variation(self.p, self.q)


class Part(NamedTuple):
    """A pair at some ids [..., n], beside what all of the vocabulary says [..., 1] (see `Pair`).

    A mask that reads no other sums or maxima is the same for a part as for the pair.
    """

    q: Float[Array, "... n"]
    p: Float[Array, "... n"]
    q_raw: Float[Array, "... n"]
    p_raw: Float[Array, "... n"]
    q_top: Float[Array, "... 1"]
    p_top: Float[Array, "... 1"]
    q_entropy: Float[Array, "... 1"]
    p_entropy: Float[Array, "... 1"]
    distance: Float[Array, "... 1"]


def raw(logits: Float[Array, "... v"]) -> Float[Array, "... v"]:
    """softmax(logits) in float32: temperature 1, unfiltered."""
    return jax.nn.softmax(axes.by_vocabulary(logits).astype(jnp.float32), axis=-1)


def distribution(logits: Float[Array, "b ... v"], sampling: Sampling) -> Float[Array, "b ... v"]:
    """What tokens are drawn from, float32, one setting a row; ties at temperature 0 take the lowest id."""
    logits = axes.by_vocabulary(logits)
    spread = lambda x: x.reshape(-1, *[1] * (logits.ndim - 1))
    temperature, *filters = map(spread, sampling)
    greedy = temperature <= 0
    only_best = lambda: (jnp.arange(logits.shape[-1]) == first_best(logits)).astype(jnp.float32)

    def sampled() -> Float[Array, "b ... v"]:
        drawn = _filtered(raw(logits / jnp.where(greedy, 1.0, temperature)), *filters)
        mixed = lambda x: jnp.where(greedy, only_best(), x)
        return lax.cond(jnp.any(greedy), mixed, lambda x: x, drawn)

    # A batch computes nothing that none of its rows asks for.
    return lax.cond(jnp.all(greedy), only_best, sampled)


def _filtered(
    probs: Float[Array, "b ... v"],
    k: Int[Array, "..."],
    top_p: Float[Array, "..."],
    min_p: Float[Array, "..."],
) -> Float[Array, "b ... v"]:
    """The three filters in turn; k, top_p and min_p broadcast against the probabilities."""
    asked = (k > 0) | (top_p < 1) | (min_p > 0)
    # Each runs only if some row asks for it; the others keep every bit.
    fewer = lambda asked, cut, x: lax.cond(
        jnp.any(asked), lambda x: jnp.where(asked, cut(x), x), lambda x: x, x
    )
    most = jnp.minimum(k, probs.shape[-1]).astype(jnp.float32)

    def cut(x: Float[Array, "b ... v"]) -> Float[Array, "b ... v"]:
        kept = fewer(k > 0, lambda x: _fewest(x, jnp.ones_like(x), most), x)
        kept = fewer(top_p < 1, lambda x: _fewest(x, x, top_p * jnp.sum(x, axis=-1, keepdims=True)), kept)
        kept = jnp.where(kept >= min_p * jnp.max(kept, axis=-1, keepdims=True), kept, 0.0)
        return kept / jnp.sum(kept, axis=-1, keepdims=True)

    return fewer(asked, cut, probs)


def first_best(x: Float[Array, "... v"]) -> Int[Array, "... 1"]:
    """argmax, the lowest id among ties; two plain reductions, which a CPU vectorises and `jnp.argmax` not."""
    v = x.shape[-1]
    at_top = x == jnp.max(x, axis=-1, keepdims=True)
    return jnp.min(jnp.where(at_top, jnp.arange(v), v - 1), axis=-1, keepdims=True)


def _fewest(
    probs: Float[Array, "... v"], weights: Float[Array, "... v"], wanted: Float[Array, "... 1"]
) -> Float[Array, "... v"]:
    """The fewest, likeliest first, whose weights reach `wanted`; of ties, which weigh alike, lower ids."""
    least = least_kept(probs, weights, wanted)
    above, ties = probs > least, probs == least
    before = _weight(above, weights) + weights * (_cumulated(ties) - 1)
    return jnp.where(above | (ties & (before < wanted)), probs, 0.0)


def _weight(kept: Bool[Array, "... v"], weights: Float[Array, "... v"]) -> Float[Array, "... 1"]:
    return jnp.sum(jnp.where(kept, weights, 0.0), axis=-1, keepdims=True)


def least_kept(
    probs: Float[Array, "... v"], weights: Float[Array, "... v"], wanted: Float[Array, "... 1"]
) -> Float[Array, "... 1"]:
    """The largest probability such that those no smaller have weights of `wanted` or more; 0 if none is.

    Halves its bit patterns, which are ordered as the floats are: 31 reductions, where a sort of 49k ids takes
    a CPU thirty times as long, and one on shards would gather them.
    """
    floats = lambda x: lax.bitcast_convert_type(x, jnp.float32)

    def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = low + (high - low) // 2
        enough = _weight(probs >= floats(middle), weights) >= wanted
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    top = lax.bitcast_convert_type(jnp.max(probs, axis=-1, keepdims=True), jnp.int32) + 1
    return floats(lax.fori_loop(0, 31, halve, (jnp.zeros_like(top), top))[0])


def _cumulated(ties: Bool[Array, "... v"]) -> Int[Array, "... v"]:
    """How many there are up to each id: within its shard of the vocabulary, and in the shards before."""
    n = axes.shards(ties.shape[-1])
    if n == 1:
        return jnp.cumsum(ties, axis=-1, dtype=jnp.int32)
    within = jnp.cumsum(ties.reshape(*ties.shape[:-1], n, -1), axis=-1, dtype=jnp.int32)
    total = within[..., -1:]
    return (within + jnp.cumsum(total, axis=-2) - total).reshape(ties.shape)


def total_variation(p: Float[Array, "... v"], q: Float[Array, "... v"]) -> Float[Array, "... 1"]:
    """D_TV(p, q) = sum_v max(0, p(v) - q(v)), the distance of the paper's Lemma 3 and eq. 10."""
    return jnp.sum(jnp.maximum(p - q, 0.0), axis=-1, keepdims=True)


def entropy(p: Float[Array, "... v"]) -> Float[Array, "... 1"]:
    """H(p) in nats, 0 log 0 = 0."""
    return -jnp.sum(jnp.where(p > 0, p * jnp.log(jnp.where(p > 0, p, 1.0)), 0.0), axis=-1, keepdims=True)


def draw(weights: Float[Array, "... v"], u: Float[Array, "..."]) -> Int[Array, "..."]:
    """The token where the cumulated weights pass u * total: exact in law for u uniform in [0, 1).

    Weights need not be normalised; one of weight 0 is never drawn. One uniform does, where Gumbel noise costs
    v of them. The sum runs in two levels, blocks of about sqrt(v): a flat float32 sum over 256k ids would
    lose the tail. A block lies in one shard of the vocabulary, so that where blocks end, and with it the last
    bits of the sums, depends on the number of shards.
    """
    v, n = weights.shape[-1], axes.shards(weights.shape[-1])
    side = _side(v // n)
    blocks = -(-v // (n * side))
    spare = blocks * side - v // n
    shards = axes.by_vocabulary(weights).reshape(*weights.shape[:-1], n, v // n)
    padded = jnp.pad(shards, [(0, 0)] * weights.ndim + [(0, spare)])
    grid = padded.reshape(*weights.shape[:-1], n * blocks, side)
    outer = jnp.cumsum(jnp.sum(grid, axis=-1), axis=-1)
    x = u[..., None] * outer[..., -1:]
    block = _first(outer, x)[..., None]
    x = x - jnp.where(block > 0, jnp.take_along_axis(outer, jnp.maximum(block - 1, 0), axis=-1), 0.0)
    inner = jnp.cumsum(jnp.take_along_axis(grid, block[..., None], axis=-2)[..., 0, :], axis=-1)
    filled = block[..., 0] // blocks * spare if n > 1 else 0  # what pads the shards before
    return block[..., 0] * side - filled + _first(inner, x)


def _side(v: int) -> int:
    """About sqrt(v); a divisor of v where one is near, so that nothing is padded, which is a copy."""
    root = max(1, round(v**0.5))
    near = [d for d in range(-(-root * 2 // 3), root * 3 // 2 + 1) if d and v % d == 0]
    return min(near, key=lambda d: abs(d - root), default=root)


def _first(cumulated: Float[Array, "... n"], x: Float[Array, "... 1"]) -> Int[Array, "..."]:
    """Where a growing sum first passes x, or reaches its end: rounding never carries x onto a zero weight."""
    passed = (cumulated > x) | (cumulated >= cumulated[..., -1:])
    return jnp.sum(~passed, axis=-1, dtype=jnp.int32)
