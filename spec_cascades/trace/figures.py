"""What both models and the rule held of each token, and the decode's draws made again from its noise."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from spec_cascades import axes
from spec_cascades.decode.loop import noise_table
from spec_cascades.engine import BUCKET
from spec_cascades.probs import Pair, draw, first_best, total_variation
from spec_cascades.rules import Deferral, Rule
from spec_cascades.trace.tokens import Numbers
from spec_cascades.typing import Array, Bool, Float, Int
from spec_cascades.verify import Noise, verify

BEST = 2
"""How many of each model's likeliest tokens are told."""


class Law(NamedTuple):
    """The law an answer was drawn from.

    masked: the rule is a mask, and a draft that it defers gives way to a draw from p (the cascades of one
    token a step); otherwise drafts are verified (Alg. 4).
    """

    rule: Rule
    alpha: float
    masked: bool = False


class Figures(NamedTuple):
    """Arrays over an answer's t tokens, on the host.

    numbers: of the tokens; uniform: of the verdicts; holds: whether lossless verification, too, would keep
    the token as a draft; draft, stands, drawn: the draft at each position, the verdict on it and the token,
    drawn again; drafted: the drafts' numbers; drafter_best, target_best: (ids, probabilities) [t, BEST].
    """

    numbers: Numbers
    uniform: np.ndarray
    holds: np.ndarray
    draft: np.ndarray
    stands: np.ndarray
    drawn: np.ndarray
    drafted: Numbers
    drafter_best: tuple[np.ndarray, np.ndarray]
    target_best: tuple[np.ndarray, np.ndarray]


def figures(pair: Pair, tokens: list[int], judged: list[bool], law: Law, seed: int) -> Figures:
    """The figures of an answer's t tokens from its pair [t, v] (`along.along`).

    The noise is a table of (seed, position), so every draw can be made again: with its own u, lossless
    verification would have kept a draft d where u q(d) < p(d). Greedily that is where d = argmax p.
    judged: where a draft was proposed and decided on.
    """
    t = len(tokens)
    longer = lambda x: np.pad(np.asarray(x), [(0, -t % BUCKET)] + [(0, 0)] * (np.ndim(x) - 1))
    pair, ids = Pair(*map(longer, pair)), longer(np.asarray(tokens, np.int32))
    found = _figures(pair, ids, longer(judged), law.rule, law.masked, np.float32(law.alpha), np.uint32(seed))
    return jax.tree.map(lambda x: x[:t], jax.device_get(found))


@partial(jax.jit, static_argnames=("rule", "masked"))
def _figures(
    pair: Pair,
    ids: Int[Array, " t"],
    judged: Bool[Array, " t"],
    rule: Rule,
    masked: bool,
    alpha: Array,
    seed: Array,
) -> Figures:
    # On a mesh as the decode had it: where a vocabulary is divided, its draws' sums end elsewhere.
    pair = Pair(*map(axes.by_vocabulary, pair))
    noise = Noise(*noise_table(seed[None], len(ids))[:, 0])
    alphas = jnp.full((len(ids), 1), alpha)
    numbers = _numbers(pair, rule, masked, alphas, ids)
    again = (_masked if masked else _verified)(pair, noise, judged, rule, alphas)
    return Figures(
        numbers,
        noise.accept,
        noise.accept * numbers.q < numbers.p,
        *again,
        _numbers(pair, rule, masked, alphas, again[0]),
        _best(pair.q_raw),
        _best(pair.p_raw),
    )


def _numbers(
    pair: Pair, rule: Rule, masked: bool, alphas: Float[Array, "t 1"], ids: Int[Array, " t"]
) -> Numbers:
    at = lambda x: jnp.take_along_axis(x, ids[:, None], axis=1)[:, 0]
    distance = lambda x, y: total_variation(x, y)[:, 0]
    pi = rule.pi(pair, alphas)
    r = _mask(rule, pair, alphas) if isinstance(rule, Deferral) else None
    return Numbers(
        q=at(pair.q),
        p=at(pair.p),
        tv=distance(pair.p, pair.q),
        q_raw=at(pair.q_raw),
        p_raw=at(pair.p_raw),
        tv_raw=distance(pair.p_raw, pair.q_raw),
        pi=at(pi),
        rejects=jnp.sum(jnp.where(r, pair.q, 0.0), axis=1) if masked else distance(pair.q, pi),
        r=None if r is None else at(r),
    )


Again = tuple[Int[Array, " t"], Bool[Array, " t"], Int[Array, " t"]]
"""The draft at each position, whether it stands, and the token."""


def _verified(pair: Pair, noise: Noise, judged: Array, rule: Rule, alphas: Array) -> Again:
    """Blocks of one draft, or of none; the place behind is there for the shape, its token is not read."""
    twice = lambda x: jnp.stack([x, x], axis=1)
    draft = draw(pair.q, noise.draft)
    both, noise = Pair(*map(twice, pair)), Noise(*map(twice, noise))
    verdict = verify(noise, twice(draft), judged.astype(jnp.int32), both, rule, alphas[:, 0])
    return draft, verdict.accepted > 0, verdict.tokens[:, 0]


def _masked(pair: Pair, noise: Noise, judged: Array, rule: Deferral, alphas: Array) -> Again:
    """A draft each, and a draw from p where the rule defers it."""
    draft = draw(pair.q, noise.draft)
    defers = jnp.take_along_axis(_mask(rule, pair, alphas), draft[:, None], axis=1)[:, 0]
    return draft, ~defers, jnp.where(defers, draw(pair.p, noise.residual), draft)


def _mask(rule: Deferral, pair: Pair, alphas: Float[Array, "t 1"]) -> Bool[Array, "t v"]:
    return jnp.broadcast_to(rule.mask(pair, alphas), pair.q.shape)


def _best(x: Float[Array, "t v"]) -> tuple[Any, Any]:
    """One after another: a sort would gather a divided vocabulary."""
    found = []
    for _ in range(min(BEST, x.shape[-1])):
        at = first_best(x)
        found.append((at, jnp.take_along_axis(x, at, axis=-1)))
        x = jnp.where(jnp.arange(x.shape[-1]) == at, -1.0, x)
    return tuple(jnp.concatenate(part, axis=-1) for part in zip(*found, strict=True))
