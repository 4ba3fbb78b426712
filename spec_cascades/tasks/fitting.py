"""Prompts that are too long for a model: what goes first, and how much went. The tokenizer is an argument."""

from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple

from spec_cascades.checks import ConfigError
from spec_cascades.tasks.base import Parts

Encode = Callable[[str], list[int]]


class Cut(NamedTuple):
    """limit: tokens that a prompt may have; examples: prompts that were longer; tokens: taken out of them
    in all; shots: solved examples left out; longest: tokens of the longest prompt as it was."""

    limit: int
    examples: int
    tokens: int
    shots: int
    longest: int


def fit(prompts: list[Parts], encode: Encode, limit: int) -> tuple[list[str], Cut]:
    """Prompts of at most `limit` tokens as the model reads them, special ones included.

    Solved examples are left out, the first ones first, then the context loses words from its end; head and
    tail, which hold the question, stay. Raises ConfigError naming a prompt that is too long without them.
    """
    texts, cut, tokens, left_out, longest = [], 0, 0, 0, 0
    for number, parts in enumerate(prompts):
        before = len(encode(parts.text))
        longest = max(longest, before)
        if before > limit:
            shorter = _shorter(parts, encode, limit, number)
            cut, left_out = cut + 1, left_out + len(parts.shots) - len(shorter.shots)
            tokens += before - len(encode(shorter.text))
            parts = shorter
        texts.append(parts.text)
    return texts, Cut(limit, cut, tokens, left_out, longest)


def _shorter(parts: Parts, encode: Encode, limit: int, number: int) -> Parts:
    fits = lambda some: len(encode(some.text)) <= limit
    while parts.shots:
        parts = parts._replace(shots=parts.shots[1:])
        if fits(parts):
            return parts
    ends = _word_ends(parts.context)
    within = lambda end: parts._replace(context=parts.context[:end])
    kept = bisect_right(ends, False, key=lambda end: not fits(within(end)))
    if kept == 0:
        bare = len(encode(within(0).text))
        raise ConfigError(
            f"example {number}: its question alone is {bare} tokens, more than the {limit} of a prompt; "
            "it is never cut: raise task.max_input_tokens, or take a model with a larger window"
        )
    return within(ends[kept - 1])


def _word_ends(text: str) -> list[int]:
    """0, and where words end."""
    inner = [i for i in range(1, len(text)) if text[i].isspace() and not text[i - 1].isspace()]
    return [0, *inner]
