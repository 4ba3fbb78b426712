"""pi of a configured method along given prefixes, by the rules' own code and calls that decode nothing."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from spec_cascades import along, axes, methods, rules
from spec_cascades.config import Decoding
from spec_cascades.probs import Pair
from spec_cascades.rules import Rule
from spec_cascades.typing import Array

ROWS = 4
"""Texts read in a call; what is left over is filled up, so that one shape serves."""

Read = Callable[[list[str], list[list[int]], int | None], Iterator[Pair]]
"""The pairs along answers to prompts, read so many tokens at a time (None: at once)."""


def reader(engine: Any, drafter: str | None, decoding: Decoding) -> Read:
    """How the pair of a method is read: of both models, or of the one that its law depends on (q = p then).

    Raises ValueError for drafts looked up in the text under a rule that asks for their q.
    """
    role = _only(drafter, decoding)
    if role is None:
        one = lambda texts, answers, block: along.along(engine, texts, answers, decoding, block)
    else:
        one = lambda texts, answers, block: along.alone(engine, texts, answers, decoding, role, block)
    return partial(_in_rows, one)


def _only(drafter: str | None, decoding: Decoding) -> str | None:
    """The role of the one model that pi depends on; None where it depends on both."""
    if decoding.method in ("target", "drafter"):
        return decoding.method
    if methods.looked_up(drafter) is None:
        return None
    if decoding.rule != "lossless":
        raise ValueError(
            f"decoding.rule: {decoding.rule!r} cannot be audited with models.drafter {drafter!r}: its law "
            "depends on where the text was looked up; set decoding.rule=lossless"
        )
    return "target"


def _in_rows(
    read: Callable[..., list[Pair]], texts: list[str], answers: list[list[int]], block: int | None
) -> Iterator[Pair]:
    """ROWS texts a call, each when it is asked for: of a wide vocabulary more would not fit."""
    for first in range(0, len(texts), ROWS):
        some, given = texts[first : first + ROWS], answers[first : first + ROWS]
        missing = ROWS - len(some)
        yield from read(some + some[:1] * missing, given + given[:1] * missing, block)[: len(some)]


def pi(decoding: Decoding, pair: Pair, alpha: float | None = None) -> np.ndarray:
    """The law [t, v] that a decoding with an alpha draws from; alpha: in place of its own."""
    if decoding.method in ("target", "drafter"):
        return np.asarray(pair.p)
    n = len(pair.q)
    rows = 1 << (n - 1).bit_length()  # few lengths, few programs
    padded = Pair(*(np.pad(x, ((0, rows - n), (0, 0))) for x in pair))
    value = jnp.full((rows, 1), decoding.alpha if alpha is None else alpha, jnp.float32)
    return np.asarray(_pi(rules.get(decoding.rule), padded, value))[:n]


@partial(jax.jit, static_argnames="rule")
def _pi(rule: Rule, pair: Pair, alpha: Array) -> Array:
    return axes.by_vocabulary(rule.pi(Pair(*map(axes.by_vocabulary, pair)), alpha))


def behind(
    read: Read, decoding: Decoding, text: str, block: int | None, prefixes: list[tuple[int, ...]]
) -> list[np.ndarray]:
    """pi [v] of the token behind each prefix of an answer to a prompt."""
    # The pair before a token does not depend on it: any stands for the one to come.
    answers = [[*prefix, 0] for prefix in prefixes]
    # Copies: a view of the last position would hold all of them.
    last = [Pair(*(x[-1:].copy() for x in pair)) for pair in read([text] * len(answers), answers, block)]
    return [pi(decoding, pair)[0] for pair in last]
