"""Greedy answers, token by token: each must be what pi dictates along its own text, near-ties apart.

Whatever reads other blocks of tokens rounds otherwise, so a near-tie may fall either way. How near is
measured: the texts are read a token at a time and in blocks of gamma + 1, and what differs between the two is
the noise. A difference is explained if pi dictates the token in either reading, or once gaps of less than
twice the noise are turned over and alpha is moved by twice the noise; any other is a violation.
"""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from spec_cascades.audit import laws
from spec_cascades.audit.settings import Audit
from spec_cascades.config import Decoding
from spec_cascades.probs import Pair

LIMITS = {"float32": 0.1, "bfloat16": 1.0}
"""Nats between two readings of one text beyond which it is no rounding: the models' block calls are wrong."""


class Noise(NamedTuple):
    """The largest differences between two readings: of the top-2 gap in nats, and of what rules compare with
    alpha, a probability or an entropy.
    """

    gap: float
    score: float


def check(audit: Audit, engine: Any, texts: list[str]) -> list[dict[str, Any]]:
    """Findings: the configured decoding along its own text, and lossless speculation against the target."""
    greedy = replace(audit.decoding, temperature=0.0, stop=[], samples=1)
    found = [_along_itself(audit, engine, texts, greedy)]
    if greedy.method == "speculative":
        found.append(_against_target(audit, engine, texts, replace(greedy, rule="lossless", alpha=0.0)))
    return found


def _answers(engine: Any, texts: list[str], decoding: Decoding) -> list[list[int]]:
    """Tokens of the answers, in batches of the decoding's own size."""
    size = decoding.batch_size
    batches = [engine.run(texts[i : i + size], decoding) for i in range(0, len(texts), size)]
    return [list(answer.tokens) for batch in batches for answer in batch.answers]


def _along_itself(audit: Audit, engine: Any, texts: list[str], greedy: Decoding) -> dict[str, Any]:
    answers = _answers(engine, texts, greedy)
    read = laws.reader(engine, audit.models.drafter, greedy)
    here, noises = {}, []
    for i, (a, b) in enumerate(_both(read, texts, answers, greedy.gamma)):
        wrong = _not_dictated(greedy, a, answers[i]) & _not_dictated(greedy, b, answers[i])
        here |= {(i, t): _at(a, t) for t in sorted(wrong)}
        noises.append(_noise(a, b, wrong))
    noise = _largest(noises)
    differences = []
    for (i, t), pair in here.items():
        token = answers[i][t]
        differences.append(_told((i, t), token, pair, _explained(greedy, pair, token, noise)))
    return _finding(audit, f"greedy {_name(greedy)} along its own text", answers, differences, noise)


def _against_target(audit: Audit, engine: Any, texts: list[str], lossless: Decoding) -> dict[str, Any]:
    """The first difference of each answer; behind it the two write different texts."""
    ours = _answers(engine, texts, lossless)
    target = replace(lossless, method="target")
    theirs = _answers(engine, texts, target)
    read = laws.reader(engine, audit.models.drafter, target)
    here, noises = {}, []
    for i, (a, b) in enumerate(_both(read, texts, theirs, lossless.gamma)):
        t = _first(ours[i], theirs[i])
        # Where one of the two ends before the other, the last token of the target's stands for the place.
        found = [] if t is None else [min(t, len(theirs[i]) - 1)]
        here |= {(i, at): (t, _at(a, at)) for at in found}
        noises.append(_noise(a, b, set(found)))
    noise = _largest(noises)
    differences = []
    for (i, at), (t, pair) in here.items():
        token = ours[i][t] if t < len(ours[i]) else None
        near = t == at and token in _best(pair.p_raw) and _gap(pair.p_raw) < 2 * noise.gap
        differences.append(_told((i, at), token, pair, near))
    name = f"greedy lossless, gamma {lossless.gamma}, against the target alone"
    return _finding(audit, name, theirs, differences, noise)


def _both(
    read: laws.Read, texts: list[str], answers: list[list[int]], gamma: int
) -> Iterator[tuple[Pair, Pair]]:
    """Each text read a token at a time, and in the blocks that verify gamma drafts."""
    return zip(read(texts, answers, 1), read(texts, answers, gamma + 1), strict=True)


def _first(a: list[int], b: list[int]) -> int | None:
    """Where two answers first differ; None if they do not."""
    if a == b:
        return None
    return next((t for t, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _not_dictated(decoding: Decoding, pair: Pair, tokens: list[int]) -> set[int]:
    """Positions whose token has no mass in greedy pi: one token, or two where a mixture leaves a choice."""
    mass = laws.pi(decoding, pair)[np.arange(len(tokens)), tokens]
    return set(np.flatnonzero(mass <= 0).tolist())


def _explained(decoding: Decoding, pair: Pair, token: int, noise: Noise) -> bool:
    """Whether pi dictates the token for a pair [1, v] or an alpha within the noise."""
    own = decoding.alpha
    for q, p in itertools.product(_tops(pair.q, pair.q_raw, noise), _tops(pair.p, pair.p_raw, noise)):
        for alpha in {own - 2 * noise.score, own, own + 2 * noise.score}:
            if laws.pi(decoding, pair._replace(q=q, p=p), alpha)[0, token] > 0:
                return True
    return False


def _tops(sampled: np.ndarray, raw: np.ndarray, noise: Noise) -> Iterator[np.ndarray]:
    """The one-hot law [1, v], and that of the runner-up where the two are within the noise."""
    yield sampled
    if _gap(raw) < 2 * noise.gap:
        other = np.zeros_like(sampled)
        other[0, _best(raw)[1]] = 1
        yield other


def _at(pair: Pair, t: int) -> Pair:
    return Pair(*(x[t : t + 1].copy() for x in pair))


def _best(raw: np.ndarray) -> list[int]:
    """The two likeliest ids of a law [1, v], the lower id first among ties."""
    return np.argsort(-raw[0], kind="stable")[:2].tolist()


def _gap(raw: np.ndarray) -> float:
    """log of the likeliest over the second of a law [1, v], nats."""
    first, second = _log(raw[0, _best(raw)])
    return float(first - second)


def _noise(a: Pair, b: Pair, but: set[int]) -> Noise:
    """Over all positions of a text but those in question, which must not explain themselves."""
    gap = score = 0.0
    for t in (t for t in range(len(a.p)) if t not in but):
        for x, y in ((a.q_raw[t], b.q_raw[t]), (a.p_raw[t], b.p_raw[t])):
            two = _best(x[None])
            moved = np.diff(_log(x[two])) - np.diff(_log(y[two]))
            gap = max(gap, abs(float(moved[0])))
            score = max(score, float(np.abs(x - y).max()), abs(_entropy(x) - _entropy(y)))
    return Noise(gap, score)


def _largest(noises: list[Noise]) -> Noise:
    return Noise(*map(max, zip(*noises, strict=True)))


def _log(x: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(x, np.finfo(np.float32).tiny))


def _entropy(x: np.ndarray) -> float:
    return float(-np.sum(x * _log(x)))


def _told(place: tuple[int, int], token: int | None, here: Pair, explained: bool) -> dict[str, Any]:
    return {
        "prompt": place[0],
        "position": place[1],
        "token": token,
        "target_best": _best(here.p_raw),
        "top2_gap": _gap(here.p_raw),
        "drafter_top2_gap": _gap(here.q_raw),
        "explained": explained,
    }


def _finding(
    audit: Audit, name: str, answers: list[list[int]], differences: list[dict[str, Any]], noise: Noise
) -> dict[str, Any]:
    limit = LIMITS[audit.models.dtype]
    return {
        "check": name,
        "passed": noise.gap <= limit and all(d["explained"] for d in differences),
        "answers": len(answers),
        "tokens": sum(map(len, answers)),
        "noise": noise.gap,
        "noise_limit": limit,
        "differences": differences,
    }


def _name(decoding: Decoding) -> str:
    return f"{decoding.method} {decoding.rule}" if decoding.ruled else decoding.method
