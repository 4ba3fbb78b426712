"""A plan's predictions beside what records measured. Imports no jax."""

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from spec_cascades.checks import ConfigError
from spec_cascades.planning.speed import METHODS, Asked, Costs, seconds


class Compared(NamedTuple):
    """One point of a record. share: of drafts accepted, or of tokens or answers deferred (`speed.Asked`).

    measured, predicted: seconds of the target alone over the point's, summed over the same answers.
    """

    name: str
    batch: int
    share: float
    tokens: float
    measured: float
    predicted: float

    @property
    def off(self) -> float:
        """predicted / measured - 1."""
        return self.predicted / self.measured - 1


def verdict(found: Sequence[Compared], within: float = 0.2) -> str:
    """'28 points, 27 within 20 %, median off 5 %, most off -21 % (opt alpha=1)'."""
    if not found:
        return "no point with a prediction"
    worst = max(found, key=lambda c: abs(c.off))
    near = sum(abs(c.off) <= within for c in found)
    middle = median(abs(c.off) for c in found)
    return (
        f"{len(found)} points, {near} within {within:.0%}, median off {middle:.0%}, "
        f"most off {worst.off:+.0%} ({worst.name})"
    )


def compare(records: Sequence[Mapping[str, Any]], costs: Callable[[int], Costs]) -> list[Compared]:
    """Every record with a target beside it and a prediction; the rest is left out.

    costs: of a batch. Acceptance and lengths are the records'; times, and how many calls follow from
    acceptance and lengths, are the plan's.
    """
    by_name = {r["name"]: r for r in records}
    found = []
    for r in records:
        against = r.get("against_target") or {}
        target = by_name.get(against.get("name"))
        asked = target and r is not target and _asked(r)
        if not asked:
            continue
        batch = r["decoding"]["batch_size"]
        try:
            paid = costs(batch)
            took = seconds(paid, asked, r["answer_tokens"])
        except ConfigError:
            continue  # a batch, a gamma or a loop that was not measured
        alone = seconds(paid, Asked("target"), target["answer_tokens"])
        measured = 1 / against["relative_total"]
        found.append(Compared(r["name"], batch, asked.share, r["answer_tokens"], measured, alone / took))
    return found


def _asked(record: Mapping[str, Any]) -> Asked | None:
    """What the plan would have to know of a point; None where it has no prediction."""
    d, rejected = record["decoding"], record["rates"]["rejection_rate"]
    if d["method"] not in METHODS or d["lengths"] != "fixed":
        return None
    if d["method"] in ("target", "drafter"):
        return Asked(d["method"])
    if rejected is None:
        return None
    share = 1 - rejected if d["method"] == "speculative" else rejected
    return Asked(d["method"], d["rule"] == "lossless", d["gamma"], share)
