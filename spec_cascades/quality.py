"""How good a point's answers are: the figures of its record, and how they compare with another point's."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from spec_cascades.metrics import scoring, text
from spec_cascades.tasks.asked import Asked


class Quality(NamedTuple):
    """figures: of the record; per_example: scores by name, over an example's repeats together.

    rows: what corpus scores are made of, BLEU counts [examples, 10] or scores [examples], or None where
    nothing was scored.
    """

    figures: dict[str, Any]
    per_example: dict[str, Any]
    rows: np.ndarray | None


def of(asked: Asked, answers: Sequence[dict[str, Any]], check: scoring.Check | None) -> Quality:
    """The quality of logged answers, every example as often as there are repeats, repeat by repeat."""
    texts = [asked.extract(a["text"]) for a in answers]
    references = [asked.examples[a["index"]].reference for a in answers]
    if asked.metric == "bleu":
        return _bleu(texts, references, asked)
    scores = scoring.score(asked.metric, texts, references, check)
    if not scores:
        why = scoring.NO_REFERENCE if asked.metric == "none" else scoring.NOT_RUN
        return Quality({"metric": asked.metric, "score": None, "interval": None, "why": why}, {}, None)
    return of_scores(
        asked.metric, {name: np.reshape(values, (-1, len(asked.examples))) for name, values in scores.items()}
    )


def of_scores(name: str, runs: dict[str, np.ndarray]) -> Quality:
    """The quality by metric `name` of scores [repeats, examples] by name; stored means are one repeat."""
    means = {key: table.mean(axis=0) for key, table in runs.items()}
    interval = scoring.mean_interval(means[name])
    figures = {
        "metric": name,
        "score": interval.value,
        "interval": [interval.low, interval.high],
        "scores": {key: float(values.mean()) for key, values in means.items()},
    }
    metric = scoring.METRICS.get(name)
    if metric and metric.signature:
        figures["signature"] = metric.signature()
    if name == "pass@1":
        figures["scores"] |= _pass_at(runs["pass@1"])
    per_example = {key: values.tolist() for key, values in means.items()}
    return Quality(figures, per_example, means[name])


def _bleu(texts: list[str], references: list[str], asked: Asked) -> Quality:
    """A sentence is resampled with all its repeats."""
    counts = text.bleu_counts(texts, references)
    counts = counts.reshape(-1, len(asked.examples), counts.shape[1]).sum(0)
    scores, interval = text.score(texts, references), text.bleu_interval(counts)
    figures = {**scores._asdict(), "bleu_interval": [interval.low, interval.high]}
    return Quality(figures, {"bleu_counts": counts.tolist()}, counts)


def _pass_at(passed: np.ndarray) -> dict[str, float]:
    """pass@k for k = 10, 100 and the number of repeats; passed [repeats, examples], 0 or 100."""
    from spec_cascades.metrics.sandbox import pass_at_k

    n, right = len(passed), (passed > 0).sum(axis=0)
    ks = sorted(k for k in {10, 100, n} if 1 < k <= n)
    return {f"pass@{k}": 100 * float(np.mean([pass_at_k(n, int(c), k) for c in right])) for k in ks}


def difference(ours: Quality, theirs: Quality) -> dict[str, Any]:
    """One point's quality less another's on the same examples, for `against_target`."""
    if ours.rows is None or theirs.rows is None:
        return {"score_difference": None, "score_difference_interval": None}
    bleu = "bleu" in ours.figures
    gap = (text.bleu_difference if bleu else scoring.difference_interval)(ours.rows, theirs.rows)
    name = "bleu_difference" if bleu else "score_difference"
    return {name: gap.value, f"{name}_interval": [gap.low, gap.high]}
