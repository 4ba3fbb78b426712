"""The number that a solution of a word problem ends in, and whether it is the right one."""

import re
from decimal import Decimal

MARK = "####"
"""What the data set puts before the final number."""
NUMBER = re.compile(
    r"(?P<sign>(?<![\w).])[-−])?[$€£]?(?P<size>\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?|(?<!\d)\.\d+)"
)
"""A minus sign counts where no number or word stands before it: "5-3" and "16 - 3" hold no negative ones."""


def number(text: str) -> Decimal | None:
    """The number behind the first `####`, or the last of the text where there is none; None if no number.

    Currency, units, per cent signs and thousands separators are no part of it; 18, 18.0 and $18.00 are equal.
    """
    _, mark, behind = text.partition(MARK)
    marked = _numbers(behind.split("\n", 1)[0]) if mark else []
    return marked[0] if marked else next(reversed(_numbers(text)), None)


def _numbers(text: str) -> list[Decimal]:
    return [_value(m["sign"], m["size"]) for m in NUMBER.finditer(text)]


def _value(sign: str | None, size: str) -> Decimal:
    value = Decimal(size.replace(",", ""))
    return -value if sign else value


def correct(answer: str, reference: str) -> float:
    """100 if both end in the same number, else 0. Raises ValueError for a reference without a number."""
    right = number(reference)
    if right is None:
        raise ValueError(f"a reference solution without a number: {reference[-60:]!r}")
    return 100.0 * (number(answer) == right)
