"""Question answering: exact match and F1 over normalised words, as SQuAD 2.0 and TriviaQA define them.

Both lower the text, drop the articles a, an and the, and compare words. SQuAD deletes ASCII punctuation;
TriviaQA puts a space for it, and for the quotes that ASCII has not. SQuAD 2.0 also asks questions without an
answer: there the empty answer is right, and every other one is wrong.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

ARTICLES = re.compile(r"\b(?:a|an|the)\b")
DELETED = {ord(c): None for c in string.punctuation}
SPACED = {ord(c): " " for c in string.punctuation + "‘’´`"}


class Match(NamedTuple):
    """em: 100 if some reference is matched exactly, else 0; f1: of the best reference, 0 to 100."""

    em: float
    f1: float


def normalised(text: str) -> str:
    """Words of a text as SQuAD compares them, joined by single spaces."""
    return _words(text.lower().translate(DELETED))


def normalised_trivia(text: str) -> str:
    """Words of a text as TriviaQA compares them, joined by single spaces."""
    return _words(text.lower().translate(SPACED))


def _words(text: str) -> str:
    return " ".join(ARTICLES.sub(" ", text).split())


def squad(answer: str, references: Sequence[str]) -> Match:
    """The best match with any reference; none, or none with a word in it, stands for "no answer"."""
    return _best(answer, [r for r in references if normalised(r)] or [""], normalised)


def open_domain(answer: str, references: Sequence[str]) -> Match:
    """The best match with any reference, words as SQuAD compares them: of Natural Questions and WebQuestions.

    A reference without a word in it ("A+" is an article and a sign) is matched by every such answer, the
    empty one included, as in the scripts that are used with these sets. Raises ValueError if there is none.
    """
    if not references:
        raise ValueError("an open question needs at least one reference")
    return _best(answer, references, normalised)


def trivia(answer: str, aliases: Sequence[str]) -> Match:
    """The best match with any alias of the answer. Raises ValueError where there is none."""
    if not aliases:
        raise ValueError("a TriviaQA question needs at least one alias of its answer")
    return _best(answer, aliases, normalised_trivia)


def _best(answer: str, references: Sequence[str], normal: Callable[[str], str]) -> Match:
    ours, theirs = normal(answer), [normal(r) for r in references]
    best = max(_f1(ours.split(), r.split()) for r in theirs)
    return Match(100.0 * (ours in theirs), 100.0 * best)


def _f1(answer: list[str], reference: list[str]) -> float:
    """Harmonic mean of the shares of words in common; of two texts without words 1."""
    if not answer or not reference:
        return float(answer == reference)
    common = sum((Counter(answer) & Counter(reference)).values())
    return 2 * common / (len(answer) + len(reference))
