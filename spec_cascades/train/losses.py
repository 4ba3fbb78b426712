"""Training losses over target positions: the data's NLL and the distillation divergences of DistillSpec."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from spec_cascades.train.settings import DIVERGENCES
from spec_cascades.typing import Array, Float, Int


class Sums(NamedTuple):
    """Sums over real positions: loss and NLL in nats, positions, and expected acceptance sum_v min(p, q)."""

    loss: Float[Array, ""]
    nll: Float[Array, ""]
    count: Float[Array, ""]
    overlap: Float[Array, ""]


def nll(logits: Float[Array, "b t v"], targets: Int[Array, "b t"]) -> Float[Array, "b t"]:
    """-log q(target), float32, nats."""
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], axis=-1)[..., 0]


def divergence(
    kind: str, p_logits: Float[Array, "... v"], q_logits: Float[Array, "... v"]
) -> Float[Array, "..."]:
    """D(p, q) per position: kl = sum p log p/q, reverse_kl = sum q log q/p, tv = 1/2 sum |p - q|.

    Raises ValueError for another kind. Ids that both models mask (-inf) count nothing.
    """
    log_p, log_q = jax.nn.log_softmax(p_logits), jax.nn.log_softmax(q_logits)
    p, q = jnp.exp(log_p), jnp.exp(log_q)
    both = jnp.isfinite(log_p) & jnp.isfinite(log_q)
    ratio = jnp.where(both, jnp.where(both, log_p, 0.0) - jnp.where(both, log_q, 0.0), 0.0)
    if kind == "kl":
        return jnp.sum(p * ratio, axis=-1)
    if kind == "reverse_kl":
        return -jnp.sum(q * ratio, axis=-1)
    if kind == "tv":
        return 0.5 * jnp.sum(jnp.abs(p - q), axis=-1)
    raise ValueError(f"teacher.loss {kind!r} is not one of {', '.join(DIVERGENCES)}")


def overlap(p_logits: Float[Array, "... v"], q_logits: Float[Array, "... v"]) -> Float[Array, "..."]:
    """sum_v min(p, q) = 1 - TV: the chance that lossless speculation accepts a draft (Lemma 3, r = 1)."""
    return jnp.sum(jnp.minimum(jax.nn.softmax(p_logits), jax.nn.softmax(q_logits)), axis=-1)
