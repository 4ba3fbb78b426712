"""Keys and values of a layer that sees a window: a ring, so that its memory does not grow with the context.

Token i lies in slot i mod r of r slots. Rewinding still lowers an integer and is exact across the wrap. Say a
row has read n tokens and t more are appended; h is how far beyond n a token was ever appended that has been
taken back since (a rejected draft, another row's longer block). A ring of r >= W + max(t, h) - 1 slots, W the
window, holds all that the new queries see:

    A query stands at n or later, so it sees positions p > n - W only. Where p >= n, p has just been written.
    Else p's slot holds p unless p + r, or p plus more turns, was written after it. But
    p + r >= n - W + 1 + W + max(t, h) - 1 >= n + h and >= n + t: no token was ever appended there.

So what a slot holds follows from where the appended tokens end (`positions`): a stale entry passes for the
position one turn before its own, which is out of everyone's sight. A method's width w bounds t and h; a ring
has W + w slots.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from spec_cascades import cache as kv
from spec_cascades.typing import Array, Int


class Ring(NamedTuple):
    """Keys and values [b, h, r, d], or [b, n, h, r, d] of n scanned layers, of the newest tokens."""

    keys: Any
    values: Any


def size(window: int, width: int | None, capacity: int) -> int | None:
    """Slots of the ring for blocks of at most `width` tokens; None where a whole cache is no larger.

    width None: no bound is known, and every token is kept.
    """
    return None if width is None or window + width >= capacity else window + width


def positions(end: Int[Array, " b"], pair: Any) -> Int[Array, "#b l"]:
    """The position whose entry each slot holds once `end` tokens are there; negative for none.

    In a whole cache a slot's own number: what lies at or beyond the end, causality hides.
    """
    at = jnp.arange(jax.tree.leaves(pair)[0].shape[-2])
    newest = end[:, None] - 1
    return newest - (newest - at) % at.size if isinstance(pair, Ring) else at[None]


def positions_of_prompts(start: Int[Array, ""], t: int, pair: Any) -> Int[Array, "1 l"]:
    """Those of the keys that `store_prompts` gives a layer."""
    before = positions(start[None], pair)
    return jnp.concatenate([before, start + jnp.arange(t)[None]], 1) if isinstance(pair, Ring) else before


def store(pair: Any, new: Any, length: Int[Array, " b"], layer: Any = None) -> tuple[Any, Any]:
    """A ring, or a whole cache, with t tokens appended at length[b]; and the layer's own (`cache.store`).

    Raises ValueError for more tokens than a ring has slots.
    """
    slots = length[:, None] + jnp.arange(new[0].shape[2])
    if isinstance(pair, Ring):
        room = pair.keys.shape[-2]
        if slots.shape[1] > room:
            raise ValueError(f"a block of {slots.shape[1]} tokens does not fit a ring of {room} slots")
        slots %= room
    return kv.store(pair, new, slots, layer)


def store_prompts(
    pair: Any, new: Any, start: Int[Array, ""] | None, end: Int[Array, " b"], layer: Any = None
) -> tuple[Any, Any]:
    """`cache.store_prompts`, of which a ring keeps each row's newest tokens before end[b].

    Padding never enters a ring, where it would take a seen token's place. The layer's own are the ring as it
    was and the new tokens behind it: a block may be longer than the ring.
    """
    if not isinstance(pair, Ring):
        return kv.store_prompts(pair, new, start, layer)
    t, room = new[0].shape[2], pair.keys.shape[-2]
    at = jnp.arange(t) + (0 if start is None else start)
    last = jnp.minimum(at[-1] + 1, end)[:, None]
    kept = (at < last) & (at >= last - room)
    whole, _ = kv.store(pair, new, jnp.where(kept, at % room, room + jnp.arange(t)), layer)
    new = kv.alike(pair, new)
    if start is None:
        return whole, tuple(new)
    behind = lambda old, entries: jnp.concatenate([old, entries], axis=2)
    return whole, tuple(jax.tree.map(behind, kv.of_layer(pair, layer), new))
