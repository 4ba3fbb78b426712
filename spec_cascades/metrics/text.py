"""BLEU and chrF through sacrebleu, with their signatures, and bootstrap intervals for BLEU."""

from typing import NamedTuple

import numpy as np
from sacrebleu.metrics import BLEU, CHRF

RESAMPLES = 1000
LEVEL = 0.95


class Scores(NamedTuple):
    """Corpus scores on sacrebleu's 0-100 scale."""

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str


class Interval(NamedTuple):
    """A value and the bounds of its 95 % bootstrap interval."""

    value: float
    low: float
    high: float


def score(answers: list[str], references: list[str]) -> Scores:
    """Corpus BLEU and chrF of answers against one reference each."""
    bleu, chrf = BLEU(), CHRF()
    b = bleu.corpus_score(answers, [references]).score
    c = chrf.corpus_score(answers, [references]).score
    return Scores(b, str(bleu.get_signature()), c, str(chrf.get_signature()))


def sentence_chrf(answers: list[str], references: list[str]) -> list[float]:
    """chrF of every answer alone."""
    chrf = CHRF()
    return [chrf.sentence_score(a, [r]).score for a, r in zip(answers, references, strict=True)]


def bleu_counts(answers: list[str], references: list[str]) -> np.ndarray:
    """int64 [sentences, 10]: n-gram matches 1-4, n-gram totals 1-4, answer length, reference length.

    Corpus BLEU is a function of their sum, so that a resampled corpus costs one addition.
    """
    bleu = BLEU(effective_order=True)
    scores = [bleu.sentence_score(a, [r]) for a, r in zip(answers, references, strict=True)]
    return np.array([[*s.counts, *s.totals, s.sys_len, s.ref_len] for s in scores], np.int64).reshape(-1, 10)


def bleu_of(counts: np.ndarray) -> float:
    """Corpus BLEU of summed counts [10], smoothed as `score` does."""
    c = [int(x) for x in counts]
    return BLEU.compute_bleu(c[:4], c[4:8], c[8], c[9], smooth_method="exp").score


def bleu_interval(counts: np.ndarray, seed: int = 0) -> Interval:
    """BLEU with a percentile bootstrap interval over sentences; counts [sentences, 10]."""
    return interval(
        bleu_of(counts.sum(0)), [bleu_of(counts[rows].sum(0)) for rows in resamples(len(counts), seed)]
    )


def bleu_difference(counts: np.ndarray, reference: np.ndarray, seed: int = 0) -> Interval:
    """BLEU of one system less that of another on the same sentences, resampled in pairs (Koehn 2004)."""
    if counts.shape != reference.shape:
        raise ValueError(f"paired systems need the same sentences, not {len(counts)} and {len(reference)}")
    gap = lambda a, b: bleu_of(a.sum(0)) - bleu_of(b.sum(0))
    draws = [gap(counts[rows], reference[rows]) for rows in resamples(len(counts), seed)]
    return interval(gap(counts, reference), draws)


def resamples(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, n, (RESAMPLES, n))


def interval(value: float, draws: list[float]) -> Interval:
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(value, float(low), float(high))
