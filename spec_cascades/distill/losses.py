"""Divergences from the target's likeliest tokens and the rest (DistillSpec; Zhou et al., 2024)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from spec_cascades.train.settings import DIVERGENCES
from spec_cascades.typing import Array, Float, Int

TINY = 1e-9


class Sums(NamedTuple):
    """Sums over weighted positions: loss in nats, positions, expected and greedy acceptance."""

    loss: Float[Array, ""]
    count: Float[Array, ""]
    overlap: Float[Array, ""]
    greedy: Float[Array, ""]


class Label(NamedTuple):
    """The target at each position: its k likeliest ids' places among the student's logits, their log p.

    place: r where the student has no logit for the id.
    """

    place: Int[Array, "b t k"]
    log_p: Float[Array, "b t k"]


def sums(kind: str, logits: Float[Array, "b t r"], label: Label, weights: Float[Array, "b t"]) -> Sums:
    """The divergence `kind` of (p_1..p_k, rest) and (q_1..q_k, rest), acceptance sum_v min(p, q) likewise.

    kl = sum p log p/q; reverse_kl = sum q log q/p; tv = 1/2 sum |p - q|. Merging the rest into one bucket can
    only lower a divergence and raise the acceptance, by what the two disagree on there.
    greedy: whether both have the same argmax. Raises ValueError for another kind.
    """
    r = logits.shape[-1]
    log_q = jax.nn.log_softmax(logits.astype(jnp.float32))
    held = label.place < r
    own = jnp.take_along_axis(log_q, jnp.minimum(label.place, r - 1), axis=-1)
    p, q = jnp.exp(label.log_p), jnp.where(held, jnp.exp(own), 0.0)
    rest = lambda x: jnp.clip(1 - jnp.sum(x, axis=-1, keepdims=True), 0.0, 1.0)
    p, q = jnp.concatenate([p, rest(p)], axis=-1), jnp.concatenate([q, rest(q)], axis=-1)
    if kind == "kl":
        # An id that the student cannot propose costs a constant: no gradient can mend it.
        reach = jnp.concatenate([held, jnp.ones_like(held[..., :1])], axis=-1)
        each = jnp.where(reach, p * (jnp.log(p + TINY) - jnp.log(q + TINY)), 0.0)
        distance = jnp.sum(each, axis=-1)
    elif kind == "reverse_kl":
        distance = jnp.sum(q * (jnp.log(q + TINY) - jnp.log(p + TINY)), axis=-1)
    elif kind == "tv":
        distance = 0.5 * jnp.sum(jnp.abs(p - q), axis=-1)
    else:
        raise ValueError(f"loss {kind!r} is not one of {', '.join(DIVERGENCES)}")
    same = (jnp.argmax(logits, axis=-1) == label.place[..., 0]).astype(jnp.float32)
    total = lambda x: jnp.sum(x * weights)
    return Sums(total(distance), jnp.sum(weights), total(jnp.sum(jnp.minimum(p, q), axis=-1)), total(same))
