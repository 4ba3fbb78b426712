"""Logged batches to records: each point's quality, rates and time, and how the target alone compares."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from spec_cascades import costs, quality
from spec_cascades.config import CATCH_UP, Decoding, Point
from spec_cascades.metrics import rates, text
from spec_cascades.metrics.scoring import Check
from spec_cascades.quality import Quality
from spec_cascades.tasks.asked import Asked


class Outcome(NamedTuple):
    """All of one point's finished work, batches ordered by (repeat, first example)."""

    point: Point
    batches: list[dict[str, Any]]
    compile_seconds: float
    quality: Quality

    @property
    def answers(self) -> list[dict[str, Any]]:
        return [answer for batch in self.batches for answer in batch["answers"]]


def build_records(
    config: dict[str, Any],
    points: list[Point],
    asked: Asked,
    lines: list[dict[str, Any]],
    check: Check | None = None,
) -> list[dict[str, Any]]:
    """One record a point from the lines of a finished run's log; `config` is the resolved sweep.

    check: runs generated programs, where a task is scored by them and its user allows it.
    """
    score = lambda point, answers: quality.of(asked, answers, check)
    return records_of(config, [outcome(p, lines, score) for p in points], asked, lines)


def records_of(
    config: dict[str, Any], finished: Sequence[Outcome], asked: Asked, lines: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """`build_records` of work that is scored already."""
    outcomes = {o.point.name: o for o in finished}
    session = [line for line in lines if line["kind"] == "session"][-1]
    shared = {key: config[key] for key in ("models", "task", "repeats")}
    return [
        {
            "name": o.point.name,
            "n_examples": len(asked.examples),
            **_own_figures(o, session["flops_per_token"]),
            "against_target": _against(o, outcomes, config["base"]),
            "decoding": asdict(o.point.decoding),
            "sampling": _sampling(o.point.decoding),
            "seeds": _seeds(o.point.decoding, config["repeats"], asked),
            **shared,
            **_prompts(o, asked, session.get("cut")),
            "versions": session["versions"],
        }
        for o in finished
    ]


def outcome(
    point: Point, lines: list[dict[str, Any]], score: Callable[[Point, list[dict[str, Any]]], Quality]
) -> Outcome:
    """A point's work among the lines of a log; `score` sees its answers by repeat and example."""
    mine = [line for line in lines if line.get("point") == point.name]
    batches = sorted((b for b in mine if b["kind"] == "batch"), key=lambda b: (b["repeat"], b["first"]))
    answers = [a for b in batches for a in b["answers"]]
    compiling = sum(line["compile_seconds"] for line in mine)
    return Outcome(point, batches, compiling, score(point, answers))


def _prompts(outcome: Outcome, asked: Asked, cut: dict[str, Any] | None) -> dict[str, Any]:
    """How prompts were made and shortened, and each example's scores: of a task with a name."""
    found: dict[str, Any] = {"truncated": cut} if cut else {}
    return found | (
        {"prompts": asked.about, "per_example": outcome.quality.per_example} if asked.about else {}
    )


def _own_figures(outcome: Outcome, flops: dict[str, float]) -> dict[str, Any]:
    answers = outcome.answers
    ledger = rates.total(_counts(a) for a in answers)
    figures = rates.rates(ledger)
    return {
        "quality": outcome.quality.figures,
        "rates": figures._asdict(),
        "target_calls": ledger.target_calls / len(answers),
        "drafter_calls": ledger.drafter_calls / len(answers),
        "tokens_per_target_call": figures.tokens_per_target_call,
        "gflops_per_answer": _gflops(outcome.point.decoding, ledger, flops) / len(answers),
        **costs.traffic(outcome.batches),
        "latency": costs.latency(outcome.batches, ledger.tokens),
        **costs.first_token(outcome.batches),
        "answer_tokens": ledger.tokens / len(answers),
        "answer_length": costs.lengths(outcome.batches),
        "cut_off": sum(a["finish_reason"] in ("length", "capacity") for a in answers) / len(answers),
        "compile_seconds": outcome.compile_seconds,
        **_stages(outcome),
    }


def _stages(outcome: Outcome) -> dict[str, Any]:
    """Of a sequence cascade: how many answers were deferred, and the wait that its sequential start costs.

    waiting_share: of the time of batches in which the target ran, the part before its first tokens.
    """
    told = [b["info"] for b in outcome.batches if b.get("info")]
    if not told:
        return {}
    ran = [i for i in told if i["waiting_seconds"] is not None]
    total = sum(i["drafter_seconds"] + i["target_seconds"] for i in ran)
    return {
        "stages": {
            "deferral_rate": float(np.mean([d for i in told for d in i["deferred"]])),
            "drafter_seconds": float(np.mean([i["drafter_seconds"] for i in told])),
            "target_seconds": float(np.mean([i["target_seconds"] for i in told])),
            "waiting_seconds": float(np.mean([i["waiting_seconds"] for i in ran])) if ran else None,
            "waiting_share": sum(i["waiting_seconds"] for i in ran) / total if ran else None,
        }
    }


def _counts(answer: dict[str, Any]) -> rates.Counts:
    calls = (answer["target_calls"], answer["drafter_calls"])
    return rates.Counts(len(answer["tokens"]), *calls, answer["judged"], answer["accepted"])


def _gflops(decoding: Decoding, ledger: rates.Counts, flops: dict[str, float]) -> float:
    """Decoder arithmetic of all answers, the reading of prompts not counted: a verifying call reads gamma + 1
    tokens, and a row that is done costs nothing though its batch goes on.

    Under rule lossless a block's first draft call reads two. A lazy token cascade catches up in calls of
    eight; a hybrid reads a deferred answer once with each model.
    """
    block = {"speculative": decoding.gamma + 1, "bild": decoding.gamma + 1, "token": CATCH_UP}
    spent = {
        "target": ledger.target_calls * block.get(decoding.method, 1),
        "drafter": ledger.drafter_calls,
    }
    if decoding.method == "speculative" and decoding.rule == "lossless" and ledger.drafter_calls:
        spent["drafter"] += ledger.target_calls
    if decoding.method == "hybrid":
        deferred = sum(ledger.judged) - sum(ledger.accepted)
        spent = {role: calls + deferred * decoding.max_new_tokens for role, calls in spent.items()}
    return sum(calls * flops.get(role, 0.0) for role, calls in spent.items()) / 1e9


def _sampling(decoding: Decoding) -> dict[str, Any]:
    """The filters, edits and ends in force; greedy decoding reads no filter."""
    edits = ("repetition_penalty", "logit_bias", "forbidden") if decoding.edits else ()
    ends = [key for key in ("stop", "eos") if getattr(decoding, key)]
    keys = ("temperature", "top_k", "top_p", "min_p") if decoding.temperature > 0 else ()
    return {
        "greedy": decoding.temperature == 0,
        **{key: getattr(decoding, key) for key in (*keys, *edits, *ends)},
    }


def _seeds(decoding: Decoding, repeats: int, asked: Asked) -> dict[str, Any]:
    first, last = asked.first, (repeats - 1) * asked.total + asked.first + len(asked.examples) - 1
    return {
        "first": decoding.seed + first,
        "last": decoding.seed + last,
        "rule": "seed + repeat * n + example",
    }


# ------------------------------------------------------------------------------------------
# Against the target alone


def reference_of(decoding: Decoding, points: list[Point], base: dict[str, Any]) -> str | None:
    """The target-alone point to compare with: same temperature and batch size, fewest filters of its own."""
    alike = ("temperature", "batch_size", "max_new_tokens")
    own = lambda d: sum(getattr(d, key) != base[key] for key in ("top_k", "top_p", "min_p", "seed"))
    found = [
        p
        for p in points
        if p.decoding.method == "target"
        and all(getattr(p.decoding, k) == getattr(decoding, k) for k in alike)
    ]
    return min(found, key=lambda p: own(p.decoding)).name if found else None


def _against(outcome: Outcome, outcomes: dict[str, Outcome], base: dict[str, Any]) -> dict[str, Any] | None:
    name = reference_of(outcome.point.decoding, [o.point for o in outcomes.values()], base)
    if name is None:
        return None
    other = outcomes[name]
    ratios = _paired(outcome, other)
    return {
        "name": name,
        "relative_seconds": float(np.median(ratios)),
        "relative_interval": _median_interval(ratios),
        "relative_total": sum(b["seconds"] for b in outcome.batches)
        / sum(b["seconds"] for b in other.batches),
        **quality.difference(outcome.quality, other.quality),
        "relative_tokens": sum(len(a["tokens"]) for a in outcome.answers)
        / max(1, sum(len(a["tokens"]) for a in other.answers)),
    }


def _paired(outcome: Outcome, other: Outcome) -> np.ndarray:
    """Seconds of each batch over the reference's for the same examples in the same repeat."""
    theirs = {(b["repeat"], b["first"]): b["seconds"] for b in other.batches}
    return np.array([b["seconds"] / theirs[b["repeat"], b["first"]] for b in outcome.batches])


def _median_interval(ratios: np.ndarray) -> list[float]:
    draws = np.random.default_rng(0).choice(ratios, (text.RESAMPLES, len(ratios)))
    low, high = np.quantile(np.median(draws, axis=1), [(1 - text.LEVEL) / 2, (1 + text.LEVEL) / 2])
    return [float(low), float(high)]
