"""ROUGE-1, ROUGE-2 and ROUGE-Lsum (F-measure) through rouge-score, with a signature."""

from functools import cache
from importlib.metadata import version
from typing import Any

NAMES = ("rouge1", "rouge2", "rougeLsum")


def scores(answer: str, reference: str) -> dict[str, float]:
    """F-measures by name, 0 to 100. Lsum takes each line, and what stands before " . ", as a sentence.

    Words are not stemmed. Raises ModuleNotFoundError without the package rouge-score.
    """
    found = _scorer().score(_lines(reference), _lines(answer))
    return {name: 100.0 * float(found[name].fmeasure) for name in NAMES}


def signature() -> str:
    """What two scores must share to be compared: 'stem:no|lsum:lines|version:rouge-score 0.1.2'."""
    return f"stem:no|lsum:lines|version:rouge-score {version('rouge-score')}"


def _lines(text: str) -> str:
    return text.replace(" . ", " .\n")


@cache
def _scorer() -> Any:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(list(NAMES), use_stemmer=False)
