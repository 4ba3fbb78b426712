"""Where a stop string ends an answer. Imports nothing of ours."""

from collections.abc import Callable, Sequence


def stopped(
    decode: Callable[[Sequence[int]], str], tokens: Sequence[int], known: int, stops: Sequence[str]
) -> int | None:
    """How many tokens an answer keeps: the fewest whose text holds one of `stops`, or None if none does.

    decode: ids to text; known: so many of the tokens were looked at before. A stop string may begin in one
    block, or in the middle of one token, and end in another.
    """
    if not stops or not _cut(decode(tokens), stops)[1]:
        return None
    return next(n for n in range(known + 1, len(tokens) + 1) if _cut(decode(tokens[:n]), stops)[1])


def before(text: str, stops: Sequence[str]) -> str:
    """The text before the first of the stop strings."""
    return _cut(text, stops)[0]


def _cut(text: str, stops: Sequence[str]) -> tuple[str, bool]:
    found = [at for stop in stops if (at := text.find(stop)) >= 0]
    return (text[: min(found)], True) if found else (text, False)
