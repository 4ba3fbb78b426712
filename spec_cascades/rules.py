"""Deferral rules: what the drafter may keep.

Narasimhan et al., "Faster Cascades via Speculative Decoding", ICLR 2025.

A rule is a boolean mask r over [..., 1] (a decision a position) or [..., v] (a decision a token); 1 defers to
the target. It aims the sampler at

    pi(v) = q(v) (1 - r(v)) + p(v) sum_u r(u) q(u)                                  (eq. 11)

which for a mask of width 1 is q (1 - r) + p r. To add a rule, decorate a function here; nothing else needs to
know. Inside, `alpha` broadcasts against [..., 1], `pair.q_raw`/`pair.p_raw` are at temperature 1 and
unfiltered.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import jax.numpy as jnp

from spec_cascades.probs import Pair, entropy, first_best, total_variation
from spec_cascades.typing import Array, Bool, Float, Int

Mask = Callable[[Pair, Array], Bool[Array, "..."]]


@runtime_checkable
class Rule(Protocol):
    """A law pi built from a pair: what verification needs, and what a user should know about alpha.

    lossless, draft_only: an alpha at which pi = p (pi = q) for every pair; default: a sensible start.
    """

    name: str
    lossless: float
    draft_only: float
    default: float

    def at(self, pair: Pair, tokens: Int[Array, "..."], alpha: Array) -> Float[Array, "..."]:
        """pi at one token a position, [...], or any value >= q(token) where pi(token) >= q(token)."""

    def pi(self, pair: Pair, alpha: Array) -> Float[Array, "... v"]:
        """The whole law. Verification asks for it at one position only."""


@dataclass(frozen=True)
class Deferral:
    """A rule given by a mask (eq. 11)."""

    name: str
    mask: Mask
    lossless: float
    draft_only: float
    default: float
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
        one = lambda x: jnp.take_along_axis(x, tokens[..., None], axis=-1)
        r = r if r.shape[-1] == 1 else one(r)
        return (jnp.where(r, 0.0, one(pair.q)) + one(pair.p) * eta)[..., 0]

    def pi(self, pair: Pair, alpha: Array) -> Float[Array, "... v"]:
        r, eta = self._parts(pair, alpha)
        return jnp.where(r, 0.0, pair.q) + pair.p * eta


@dataclass(frozen=True)
class Lossy:
    """Lossy speculative decoding, beta = 1: min(q, p / (1 - alpha)) + rest * norm(max(0, p - q)).

    Leviathan et al. 2023 (appendix A.5) as the paper states it: accept with min(1, p / ((1 - alpha) q)), else
    draw from the residual. At alpha = 1 it keeps every draft that the target gives any mass.
    """

    name: str = "lossy"
    lossless: float = 0.0
    draft_only: float = 1.0
    default: float = 0.3
    about: str = "(no mask) accepts with min(1, p / ((1 - alpha) q)), beta = 1"

    @staticmethod
    def _kept(q: Array, p: Array, alpha: Array) -> Array:
        whole = (1 - alpha) * q <= p
        return jnp.where(whole & (p > 0), q, p / jnp.where(whole, 1.0, 1 - alpha))

    def at(self, pair: Pair, tokens: Int[Array, "..."], alpha: Array) -> Float[Array, "..."]:
        one = lambda x: jnp.take_along_axis(x, tokens[..., None], axis=-1)
        return self._kept(one(pair.q), one(pair.p), alpha)[..., 0]

    def pi(self, pair: Pair, alpha: Array) -> Float[Array, "... v"]:
        kept, excess = self._kept(pair.q, pair.p, alpha), jnp.maximum(pair.p - pair.q, 0.0)
        rest = jnp.maximum(1 - jnp.sum(kept, axis=-1, keepdims=True), 0.0)
        total = jnp.sum(excess, axis=-1, keepdims=True)
        return kept + rest * excess / jnp.where(total > 0, total, 1.0)


RULES: dict[str, Deferral | Lossy] = {"lossy": Lossy()}


def get(name: str) -> Deferral | Lossy:
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


def _top(x: Float[Array, "... v"]) -> Float[Array, "... 1"]:
    return jnp.max(x, axis=-1, keepdims=True)


@deferral("lossless", lossless=0.0, draft_only=math.nan, default=0.0)
def lossless(pair: Pair, alpha: Array) -> Bool[Array, "... 1"]:
    """everywhere: pi = p, speculative decoding; no alpha"""
    return jnp.ones_like(_top(pair.q), dtype=bool)


@deferral("drafter_only", lossless=math.nan, draft_only=0.0, default=0.0)
def drafter_only(pair: Pair, alpha: Array) -> Bool[Array, "... 1"]:
    """nowhere: pi = q; no alpha"""
    return jnp.zeros_like(_top(pair.q), dtype=bool)


# Chow at the paper's alpha = 0 keeps a draft whose q is exactly 1; below 0 nothing is kept.
@deferral("chow", lossless=-1.0, draft_only=1.0, default=0.3)
def chow(pair: Pair, alpha: Array) -> Bool[Array, "... 1"]:
    """max q < 1 - alpha (eq. 2)"""
    return _top(pair.q_raw) < 1 - alpha


@deferral("chow_log", lossless=-math.inf, draft_only=math.inf, default=1.0)
def chow_log(pair: Pair, alpha: Array) -> Bool[Array, "... 1"]:
    """H(q) > alpha (entropy in nats)"""
    return entropy(pair.q_raw) > alpha


@deferral("diff", lossless=-1.0, draft_only=1.0, default=0.1)
def diff(pair: Pair, alpha: Array) -> Bool[Array, "... 1"]:
    """max q < max p - alpha (eq. 5)"""
    return _top(pair.q_raw) < _top(pair.p_raw) - alpha


@deferral("diff_log", lossless=-math.inf, draft_only=math.inf, default=0.3)
def diff_log(pair: Pair, alpha: Array) -> Bool[Array, "... 1"]:
    """H(q) > H(p) + alpha"""
    return entropy(pair.q_raw) > entropy(pair.p_raw) + alpha


# alpha * TV is 0 * inf = NaN where p = q at an infinite alpha: no deferral, and pi is the same either way.
@deferral("opt", lossless=-math.inf, draft_only=math.inf, default=0.3)
def opt(pair: Pair, alpha: Array) -> Bool[Array, "... 1"]:
    """max q < max p - alpha * TV(p, q) (eq. 10)"""
    return _top(pair.q_raw) < _top(pair.p_raw) - alpha * total_variation(pair.p, pair.q)


@deferral("opt_log", lossless=-math.inf, draft_only=math.inf, default=0.3)
def opt_log(pair: Pair, alpha: Array) -> Bool[Array, "... 1"]:
    """H(q) > H(p) + alpha * TV(p, q)"""
    return entropy(pair.q_raw) > entropy(pair.p_raw) + alpha * total_variation(pair.p, pair.q)


@deferral("bild", lossless=-math.inf, draft_only=math.inf, default=2.0)
def bild(pair: Pair, alpha: Array) -> Bool[Array, "... 1"]:
    """-log p(argmax q) > alpha (BiLD* of the paper)"""
    best = first_best(pair.q_raw)
    return -jnp.log(jnp.take_along_axis(pair.p_raw, best, axis=-1)) > alpha


@deferral("v1", lossless=-1.0, draft_only=1.0, default=0.3)
def v1(pair: Pair, alpha: Array) -> Bool[Array, "... v"]:
    """q(v) < max p - alpha (eq. 13)"""
    return pair.q_raw < _top(pair.p_raw) - alpha


@deferral("v2", lossless=-1.0, draft_only=1.0, default=0.3)
def v2(pair: Pair, alpha: Array) -> Bool[Array, "... v"]:
    """p(v) < max p - alpha (eq. 14)"""
    return pair.p_raw < _top(pair.p_raw) - alpha


# Under greedy sampling alpha = 0 is lossless too; under sampling only the limit is.
@deferral("v3", lossless=-math.inf, draft_only=1.0, default=0.5)
def v3(pair: Pair, alpha: Array) -> Bool[Array, "... v"]:
    """p(v) < (1 - alpha) max p (eq. 15), the paper's "Token" """
    return pair.p_raw < (1 - alpha) * _top(pair.p_raw)


@deferral("topk", lossless=0.0, draft_only=math.inf, default=3.0)
def topk(pair: Pair, alpha: Array) -> Bool[Array, "... v"]:
    """v not among the target's alpha likeliest tokens (ties with the last one stay)"""
    v = pair.p_raw.shape[-1]
    ranked = jnp.sort(pair.p_raw, axis=-1, descending=True)
    place = jnp.clip(alpha, 1, v).astype(jnp.int32) - 1
    last = jnp.take_along_axis(ranked, jnp.broadcast_to(place, (*ranked.shape[:-1], 1)), axis=-1)
    return (pair.p_raw < last) | (alpha < 1)
