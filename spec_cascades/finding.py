"""The search of a text for what followed its last tokens where they occurred before."""

import jax.numpy as jnp

from spec_cascades.typing import Array, Bool, Int


def behind(
    first: Int[Array, "b s"], n: Int[Array, " b"], text: Int[Array, "b l"], spare: int = 0
) -> Int[Array, "b c"]:
    """Each row's first n tokens, then its text, in one buffer of s + l + `spare` slots."""
    first = jnp.pad(first, ((0, 0), (0, text.shape[1] + spare)))
    at = jnp.arange(first.shape[1]) - n[:, None]
    text = jnp.take_along_axis(text, jnp.clip(at, 0, text.shape[1] - 1), axis=1)
    return jnp.where(at < 0, first, text)


def followed(
    text: Int[Array, "b l"], length: Int[Array, " b"], longest: int, allowed: Bool[Array, "b v"] | None
) -> tuple[Int[Array, " b"], Int[Array, " b"]]:
    """The token behind the newest earlier occurrence of the longest suffix, and how many tokens that has.

    Both are 0 where not even the last token occurred before.
    text: ids >= 0, what lies at length and beyond is not looked at; allowed: ids to be found, None for all.
    """
    l, end = text.shape[1], length - 1
    # run[j]: how many tokens up to and with j are those up to and with the end, at most `longest`.
    run, same = jnp.zeros_like(text), jnp.ones_like(text, bool)
    for k in range(longest):
        suffix = jnp.take_along_axis(text, jnp.maximum(end - k, 0)[:, None], axis=1)
        shifted = jnp.pad(text, ((0, 0), (k, 0)), constant_values=-1)[:, :l]
        same = same & (shifted == suffix) & (k <= end)[:, None]
        run = run + same
    run, after = run[:, :-1], text[:, 1:]
    place = jnp.arange(l - 1)
    usable = (run > 0) & (place < end[:, None])
    if allowed is not None:
        usable = usable & jnp.take_along_axis(allowed, after, axis=1)
    score = jnp.where(usable, run * l + place, -1)
    best = jnp.argmax(score, axis=1)[:, None]
    at = lambda x: jnp.take_along_axis(x, best, axis=1)[:, 0]
    found = at(score) >= 0
    return jnp.where(found, at(after), 0), jnp.where(found, at(run), 0)
