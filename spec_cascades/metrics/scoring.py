"""Scores by name: each answer's own, and the corpus score, which for all but BLEU is their mean.

Scores run from 0 to 100. A metric is one score of a family that is computed together: ROUGE-2 comes with
ROUGE-1 and ROUGE-Lsum, exact match with F1.
"""

import importlib.util
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from spec_cascades.metrics import gsm8k, qa, rouge, text

Scores = dict[str, list[float]]
"""A score for each answer, by name."""
Check = Callable[[list[tuple[str, str]]], list[bool]]
"""Which of some (program, assertions) pass."""
NOT_RUN = "generated code was not run: add --allow-code-execution"
NO_REFERENCE = "the data set has no reference answers"


class Metric(NamedTuple):
    """score: answers and references to scores by name, one of which is the metric; signature: settings."""

    score: Callable[[list[str], list[Any]], Scores]
    signature: Callable[[], str] | None = None


def _each(one: Callable[[str, Any], dict[str, float]]) -> Callable[[list[str], list[Any]], Scores]:
    """A family from what it says of one answer."""

    def score(answers: list[str], references: list[Any]) -> Scores:
        rows = [one(a, r) for a, r in zip(answers, references, strict=True)]
        return {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}

    return score


def _matching(one: Callable[[str, list[str]], qa.Match], prefix: str = "") -> Metric:
    """Exact match and F1 by one of the rules of `metrics.qa`."""
    return Metric(_each(lambda a, r: {prefix + name: v for name, v in one(a, r)._asdict().items()}))


GSM8K = _each(lambda answer, reference: {"accuracy": gsm8k.correct(answer, reference)})
ROUGE = _each(rouge.scores)
METRICS: dict[str, Metric] = {
    **{name: Metric(ROUGE, rouge.signature) for name in rouge.NAMES},
    **dict.fromkeys(("em", "f1"), _matching(qa.squad)),
    **dict.fromkeys(("open_em", "open_f1"), _matching(qa.open_domain, "open_")),
    **dict.fromkeys(("trivia_em", "trivia_f1"), _matching(qa.trivia, "trivia_")),
    "accuracy": Metric(GSM8K),
}
"""Those that need nothing but answers and references. BLEU is not a mean: see `metrics.text`."""


def programs(answers: list[str], references: list[dict[str, str]]) -> list[tuple[str, str]]:
    """What a test of each answer runs: the program, and the assertions behind it."""
    return [(r["before"] + a, r["after"]) for a, r in zip(answers, references, strict=True)]


def check(pairs: list[tuple[str, str]]) -> list[bool]:
    """Which programs pass their assertions, run in the sandbox on half of the machine's cores.

    Raises ValueError where programs cannot be run at all.
    """
    from spec_cascades.metrics import sandbox

    workers = max(1, (os.cpu_count() or 1) // 2)
    return [outcome.passed for outcome in sandbox.check(pairs, workers=workers)]


def require(metric: str) -> None:
    """Raises ModuleNotFoundError, before anything is decoded, where a metric's package is not installed."""
    if metric in rouge.NAMES and importlib.util.find_spec("rouge_score") is None:
        raise ModuleNotFoundError(f"{metric} needs rouge-score: pip install 'spec-cascades[tasks]'")


def unwalled() -> list[str]:
    """Sentences on what the sandbox cannot enforce on this machine."""
    from spec_cascades.metrics import sandbox

    return sandbox.available()


def score(metric: str, answers: list[str], references: list[Any], check: Check | None = None) -> Scores:
    """Scores of each answer by name, the metric's own first; {} where there is nothing to score by.

    check: runs programs, for "pass@1" alone, which is not scored without it. Raises ValueError for a metric
    that is not a mean of such scores (bleu) or unknown.
    """
    if metric == "none" or (metric == "pass@1" and check is None):
        return {}
    if metric == "pass@1":
        return {"pass@1": [100.0 * passed for passed in check(programs(answers, references))]}
    if metric not in METRICS:
        raise ValueError(f"metric: {metric!r} is not one of {', '.join((*METRICS, 'pass@1', 'none'))}")
    found = METRICS[metric].score(answers, references)
    return {metric: found[metric], **found}


def mean_interval(scores: Sequence[float], seed: int = 0) -> text.Interval:
    """The mean with a percentile bootstrap interval over examples; scores [examples]."""
    values = np.asarray(scores, np.float64)
    draws = values[text.resamples(len(values), seed)].mean(axis=1)
    return text.interval(float(values.mean()), draws)


def difference_interval(scores: Sequence[float], others: Sequence[float], seed: int = 0) -> text.Interval:
    """The mean of one system less that of another on the same examples, resampled in pairs."""
    if len(scores) != len(others):
        raise ValueError(f"paired systems need the same examples, not {len(scores)} and {len(others)}")
    return mean_interval(np.asarray(scores, np.float64) - np.asarray(others, np.float64), seed)
