"""Accept a prefix of the drafts and add one token, exactly from pi (Alg. 4 of the paper)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from spec_cascades.probs import Pair, draw
from spec_cascades.rules import Rule
from spec_cascades.typing import Array, Bool, Float, Int


class Noise(NamedTuple):
    """Independent uniforms in [0, 1), one of each kind an emitted position."""

    draft: Float[Array, "b w"]
    accept: Float[Array, "b w"]
    residual: Float[Array, "b w"]


class Verdict(NamedTuple):
    """tokens [b, w]: the accepted drafts, then one token drawn from pi; what follows it is to be ignored.

    accepted [b]: how many drafts stand; the row has accepted + 1 new tokens.
    """

    tokens: Int[Array, "b w"]
    accepted: Int[Array, " b"]


def verify(
    noise: Noise,
    drafts: Int[Array, "b w"],
    drafted: Int[Array, " b"],
    pair: Pair,
    rule: Rule,
    alpha: Float[Array, " b"],
) -> Verdict:
    """Speculative sampling aimed at `rule`'s pi, whatever q is.

    Draft i stands if u * q(d) < pi(d), no division and no epsilon. At the first that does not, a token is
    drawn from norm(max(0, pi - q)); if all stand, from pi at the position behind them (Alg. 4).
    drafted: how many of a row's w drafts were proposed, at most w - 1; pair: [b, w, v] over the prefix before
    each draft. pi exists at one position only.
    """
    w = drafts.shape[1]
    q_drafts = jnp.take_along_axis(pair.q, drafts[..., None], axis=-1)[..., 0]
    stands = noise.accept * q_drafts < rule.at(pair, drafts, alpha[:, None, None])
    stands = stands & (jnp.arange(w) < drafted[:, None])
    accepted = jnp.sum(jnp.cumprod(stands.astype(jnp.int32), axis=1), axis=1)
    here = jax.tree.map(lambda x: at(x, accepted), pair)
    pi, rejected = rule.pi(here, alpha[:, None]), (accepted < drafted)[:, None]
    rest = residual(pi, here.q, rejected)
    return ended(noise, drafts, accepted, jnp.where(jnp.sum(rest, axis=-1, keepdims=True) > 0, rest, pi))


def at(x: Float[Array, "b w v"], place: Int[Array, " b"]) -> Float[Array, "b v"]:
    """x at one place a row.

    Sliced row by row: of `take_along_axis` a TPU's compiler divides the rows once more where they are divided
    already, and exchanges whole vocabularies for it.
    """
    return jax.vmap(lambda x, i: jax.lax.dynamic_index_in_dim(x, i, 0, keepdims=False))(x, place)


def residual(
    pi: Float[Array, "b n"], q: Float[Array, "b n"], rejected: Bool[Array, "b 1"]
) -> Float[Array, "b n"]:
    """max(0, pi - q) after a rejection, else pi. A row that rounding leaves nothing is to take pi, too."""
    return jnp.where(rejected, jnp.maximum(pi - q, 0.0), pi)


def ended(
    noise: Noise, drafts: Int[Array, "b w"], accepted: Int[Array, " b"], weights: Float[Array, "b v"]
) -> Verdict:
    """The verdict, whose own token, behind the drafts that stand, is drawn from the weights."""
    own = draw(weights, jnp.take_along_axis(noise.residual, accepted[:, None], axis=1)[:, 0])
    tokens = jnp.where(jnp.arange(drafts.shape[1]) == accepted[:, None], own[:, None], drafts)
    return Verdict(tokens, accepted)
