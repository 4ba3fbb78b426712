"""Deferral rules: what the drafter may keep.

Narasimhan et al., "Faster Cascades via Speculative Decoding", ICLR 2025.

A rule is a boolean mask r over [..., 1] (a decision a position) or [..., v] (a decision a token); 1 defers to
the target. It aims the sampler at

    pi(v) = q(v) (1 - r(v)) + p(v) sum_u r(u) q(u)                                  (eq. 11)

which for a mask of width 1 is q (1 - r) + p r. To add a rule, decorate a function here; nothing else needs to
know. Inside, `alpha` broadcasts against [..., 1], `pair.q_raw`/`pair.p_raw` are at temperature 1 and
unfiltered, `pair.q_top`/`pair.p_top` their maxima. A mask that looks over all ids through such properties
alone also takes a `Part`. The laws that no mask gives are `Lossy` and `Mixture`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import jax.numpy as jnp
from jax import lax

from spec_cascades.probs import Pair, Part, first_best, least_kept
from spec_cascades.typing import Array, Bool, Float, Int

Mask = Callable[[Pair | Part, Array], Bool[Array, "..."]]
Scalars = Callable[[Pair, Array], Float[Array, "... 1"]]

HALVINGS = 30
"""Of an interval of length one, for 1 / beta: a few bits more than float32 has, as 1 / beta may be small."""


@runtime_checkable
class Rule(Protocol):
    """A law pi built from a pair: what verification needs, and what a user should know about alpha.

    lossless, draft_only: an alpha at which pi = p (pi = q) for every pair; default: a sensible start; about:
    the formula in one line.
    """

    name: str
    lossless: float
    draft_only: float
    default: float
    about: str

    def at(self, pair: Pair, tokens: Int[Array, "..."], alpha: Array) -> Float[Array, "..."]:
        """pi at one token a position, [...], or any value >= q(token) where pi(token) >= q(token)."""

    def pi(self, pair: Pair, alpha: Array) -> Float[Array, "... v"]:
        """The whole law. Verification asks for it at one position only."""


def _at(x: Array, tokens: Int[Array, "..."]) -> Array:
    """x [..., v] at one token a position, [..., 1]."""
    return jnp.take_along_axis(x, tokens[..., None], axis=-1)


@dataclass(frozen=True)
class Deferral:
    """A rule given by a mask (eq. 11)."""

    name: str
    mask: Mask
    # What is said of alpha is no part of what is compiled; and NaN is not NaN, so rules would never be equal.
    lossless: float = field(compare=False)
    draft_only: float = field(compare=False)
    default: float = field(compare=False)
    about: str

    def _parts(self, pair: Pair, alpha: Array) -> tuple[Array, Array]:
        r = self.mask(pair, alpha)
        eta = (
            r.astype(jnp.float32)
            if r.shape[-1] == 1
            else jnp.sum(jnp.where(r, pair.q, 0.0), -1, keepdims=True)
        )
        return r, eta

    def at(self, pair: Pair, tokens: Int[Array, "..."], alpha: Array) -> Float[Array, "..."]:
        r, eta = self._parts(pair, alpha)
        r = r if r.shape[-1] == 1 else _at(r, tokens)
        return (jnp.where(r, 0.0, _at(pair.q, tokens)) + _at(pair.p, tokens) * eta)[..., 0]

    def pi(self, pair: Pair, alpha: Array) -> Float[Array, "... v"]:
        return self.mixed(pair, *self._parts(pair, alpha))

    @staticmethod
    def mixed(pair: Pair | Part, r: Bool[Array, "..."], eta: Float[Array, "... 1"]) -> Float[Array, "... n"]:
        """eq. 11 at the pair's ids, given the mask there and eta = sum_u r(u) q(u) over all ids."""
        return jnp.where(r, 0.0, pair.q) + pair.p * eta


@dataclass(frozen=True)
class Lossy:
    """Lossy speculative decoding: min(q, p / (1 - alpha)) + rest * norm(max(0, p / beta - q)).

    Leviathan et al. 2023 (appendix A.5) as the paper states it: accept with min(1, p / ((1 - alpha) q)), else
    draw from the residual. At alpha = 1 it keeps every draft that the target gives any mass. `slope` is
    1 / beta [..., 1], from the pair and the rest [..., 1]; alpha outside [0, 1] stands for the nearer end.
    """

    name: str
    slope: Scalars
    about: str
    lossless: float = 0.0
    draft_only: float = 1.0
    default: float = 0.3

    @staticmethod
    def _kept(q: Array, p: Array, alpha: Array) -> Array:
        share = 1 - jnp.clip(alpha, 0.0, 1.0)
        whole = share * q <= p
        return jnp.where(whole & (p > 0), q, p / jnp.where(whole, 1.0, share))

    def at(self, pair: Pair, tokens: Int[Array, "..."], alpha: Array) -> Float[Array, "..."]:
        # Where less than q is kept, p < (1 - alpha) q <= beta q: the residual adds nothing, whatever beta.
        return self._kept(_at(pair.q, tokens), _at(pair.p, tokens), alpha)[..., 0]

    def pi(self, pair: Pair, alpha: Array) -> Float[Array, "... v"]:
        kept = self._kept(pair.q, pair.p, alpha)
        rest = jnp.maximum(1 - jnp.sum(kept, axis=-1, keepdims=True), 0.0)
        excess = jnp.maximum(self.slope(pair, rest) * pair.p - pair.q, 0.0)
        total = jnp.sum(excess, axis=-1, keepdims=True)
        return kept + rest * excess / jnp.where(total > 0, total, 1.0)


def _heuristic(pair: Pair, rest: Array) -> Float[Array, "... 1"]:
    return jnp.ones_like(rest)


def _solved(pair: Pair, rest: Array) -> Float[Array, "... 1"]:
    """The least x = 1 / beta with sum_v max(0, x p - q) >= rest, where pi sums to one without `norm`.

    The sum grows with x and lies between x - 1 and x, so x is in [rest, 1 + rest]. At x = 1 / (1 - alpha) it
    is x - sum(kept) >= rest: hence beta >= 1 - alpha.
    """

    def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        x = (low + high) / 2
        short = jnp.sum(jnp.maximum(x * pair.p - pair.q, 0.0), axis=-1, keepdims=True) < rest
        return jnp.where(short, x, low), jnp.where(short, high, x)

    return lax.fori_loop(0, HALVINGS, halve, (rest, 1 + rest))[1]


@dataclass(frozen=True)
class Mixture:
    """(1 - w) p + w q: not all or nothing, as a mask of one bit, but a weight in [0, 1] a position.

    Drafts are rejected with probability (1 - w) D_TV(p, q).
    """

    name: str
    weight: Scalars
    default: float
    about: str
    lossless: float = 0.0
    draft_only: float = 1.0

    def at(self, pair: Pair, tokens: Int[Array, "..."], alpha: Array) -> Float[Array, "..."]:
        w = self.weight(pair, alpha)
        return ((1 - w) * _at(pair.p, tokens) + w * _at(pair.q, tokens))[..., 0]

    def pi(self, pair: Pair, alpha: Array) -> Float[Array, "... v"]:
        w = self.weight(pair, alpha)
        return (1 - w) * pair.p + w * pair.q


def _share(pair: Pair, alpha: Array) -> Float[Array, "... 1"]:
    return jnp.clip(alpha, 0.0, 1.0)


def _within(pair: Pair, alpha: Array) -> Float[Array, "... 1"]:
    """min(1, alpha / D_TV(p, q)): as far from p towards q as a total variation of alpha allows.

    P(reject) = D_TV(q, pi) = (1 - w) D_TV(p, q) = max(0, D_TV(p, q) - alpha), and no law within alpha of p
    has less: D_TV(q, pi) >= D_TV(p, q) - D_TV(p, pi) by the triangle inequality, and it is never negative.
    """
    distance, bound = pair.distance, jnp.maximum(alpha, 0.0)
    return jnp.where(distance > bound, bound / jnp.where(distance > 0, distance, 1.0), 1.0)


_LAWS = (
    Lossy("lossy", _heuristic, "(no mask) accepts with min(1, p / ((1 - alpha) q)), beta = 1"),
    Lossy("lossy_solved", _solved, "(no mask) min(q, p / (1 - alpha)) + max(0, p / beta - q), beta solved"),
    Mixture("ensemble", _share, 0.5, "(no mask) (1 - alpha) p + alpha q"),
    Mixture("tv_bound", _within, 0.1, "(no mask) p + min(1, alpha / TV(p, q)) (q - p): TV(p, pi) <= alpha"),
)
RULES: dict[str, Rule] = {law.name: law for law in _LAWS}


def get(name: str) -> Rule:
    """The rule of that name; ValueError with the choices otherwise."""
    if name not in RULES:
        raise ValueError(f"rule {name!r} is not one of {', '.join(sorted(RULES))}")
    return RULES[name]


def deferral(name: str, *, lossless: float, draft_only: float, default: float) -> Callable[[Mask], Mask]:
    """Registers a mask function as a rule; `spec-cascades rules` prints its docstring's first line."""

    def register(mask: Mask) -> Mask:
        about = (mask.__doc__ or "").strip().splitlines()[0]
        RULES[name] = Deferral(name, mask, lossless, draft_only, default, about)
        return mask

    return register


@deferral("lossless", lossless=0.0, draft_only=math.nan, default=0.0)
def lossless(pair: Pair | Part, alpha: Array) -> Bool[Array, "... 1"]:
    """everywhere: pi = p, speculative decoding; no alpha"""
    return jnp.ones_like(pair.q_top, dtype=bool)


@deferral("drafter_only", lossless=math.nan, draft_only=0.0, default=0.0)
def drafter_only(pair: Pair | Part, alpha: Array) -> Bool[Array, "... 1"]:
    """nowhere: pi = q; no alpha"""
    return jnp.zeros_like(pair.q_top, dtype=bool)


# Chow at the paper's alpha = 0 keeps a draft whose q is exactly 1; below 0 nothing is kept.
@deferral("chow", lossless=-1.0, draft_only=1.0, default=0.3)
def chow(pair: Pair | Part, alpha: Array) -> Bool[Array, "... 1"]:
    """max q < 1 - alpha (eq. 2)"""
    return pair.q_top < 1 - alpha


@deferral("chow_log", lossless=-math.inf, draft_only=math.inf, default=1.0)
def chow_log(pair: Pair | Part, alpha: Array) -> Bool[Array, "... 1"]:
    """H(q) > alpha (entropy in nats)"""
    return pair.q_entropy > alpha


@deferral("diff", lossless=-1.0, draft_only=1.0, default=0.1)
def diff(pair: Pair | Part, alpha: Array) -> Bool[Array, "... 1"]:
    """max q < max p - alpha (eq. 5)"""
    return pair.q_top < pair.p_top - alpha


@deferral("diff_log", lossless=-math.inf, draft_only=math.inf, default=0.3)
def diff_log(pair: Pair | Part, alpha: Array) -> Bool[Array, "... 1"]:
    """H(q) > H(p) + alpha"""
    return pair.q_entropy > pair.p_entropy + alpha


# alpha * TV is 0 * inf = NaN where p = q at an infinite alpha: no deferral, and pi is the same either way.
@deferral("opt", lossless=-math.inf, draft_only=math.inf, default=0.3)
def opt(pair: Pair | Part, alpha: Array) -> Bool[Array, "... 1"]:
    """max q < max p - alpha * TV(p, q) (eq. 10)"""
    return pair.q_top < pair.p_top - alpha * pair.distance


@deferral("opt_log", lossless=-math.inf, draft_only=math.inf, default=0.3)
def opt_log(pair: Pair | Part, alpha: Array) -> Bool[Array, "... 1"]:
    """H(q) > H(p) + alpha * TV(p, q)"""
    return pair.q_entropy > pair.p_entropy + alpha * pair.distance


@deferral("bild", lossless=-math.inf, draft_only=math.inf, default=2.0)
def bild(pair: Pair, alpha: Array) -> Bool[Array, "... 1"]:
    """-log p(argmax q) > alpha (BiLD* of the paper)"""
    best = first_best(pair.q_raw)
    return -jnp.log(jnp.take_along_axis(pair.p_raw, best, axis=-1)) > alpha


@deferral("v1", lossless=-1.0, draft_only=1.0, default=0.3)
def v1(pair: Pair | Part, alpha: Array) -> Bool[Array, "... v"]:
    """q(v) < max p - alpha (eq. 13)"""
    return pair.q_raw < pair.p_top - alpha


@deferral("v2", lossless=-1.0, draft_only=1.0, default=0.3)
def v2(pair: Pair | Part, alpha: Array) -> Bool[Array, "... v"]:
    """p(v) < max p - alpha (eq. 14)"""
    return pair.p_raw < pair.p_top - alpha


# Under greedy sampling alpha = 0 is lossless too; under sampling only the limit is.
@deferral("v3", lossless=-math.inf, draft_only=1.0, default=0.5)
def v3(pair: Pair | Part, alpha: Array) -> Bool[Array, "... v"]:
    """p(v) < (1 - alpha) max p (eq. 15), the paper's "Token" """
    return pair.p_raw < (1 - alpha) * pair.p_top


@deferral("topk", lossless=0.0, draft_only=math.inf, default=3.0)
def topk(pair: Pair, alpha: Array) -> Bool[Array, "... v"]:
    """v not among the target's alpha likeliest tokens (ties with the last one stay)"""
    k = jnp.floor(jnp.clip(alpha, 1, pair.p_raw.shape[-1]))
    last = least_kept(pair.p_raw, jnp.ones_like(pair.p_raw), k)
    return (pair.p_raw < last) | (alpha < 1)


# Typical acceptance (Cai et al. 2024) with delta = sqrt(eps). exp(-H(p)) <= max p, so at alpha >= 0 the
# target's likeliest token always stays.
@deferral("typical", lossless=-math.inf, draft_only=1.0, default=0.9)
def typical(pair: Pair | Part, alpha: Array) -> Bool[Array, "... v"]:
    """p(v) < min(eps, sqrt(eps) exp(-H(p))), eps = 1 - alpha (Medusa)"""
    eps = jnp.maximum(1 - alpha, 0.0)
    return pair.p_raw < jnp.minimum(eps, jnp.sqrt(eps) * jnp.exp(-pair.p_entropy))
