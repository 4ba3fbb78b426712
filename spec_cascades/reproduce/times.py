"""How long a column takes: from a chip's stated peaks, or from times that were measured."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from spec_cascades.config import CATCH_UP, Decoding, Point
from spec_cascades.reproduce.experiment import Chip
from spec_cascades.reproduce.sizes import Size

Span = tuple[float, float]


class Load(NamedTuple):
    """What one point is asked: batches of its decoding, prompts of so many tokens, the models by role."""

    batches: int
    prompt: int
    sizes: Mapping[str, Size]


def from_peaks(points: Sequence[Point], load: Load, chip: Chip) -> Span | None:
    """Seconds of all points at the chip's peaks, answers at their longest: every draft stands, or none.

    A call takes `sizes.limit` of its models' weights and caches, and nothing else: these are the bounds of a
    run whose acceptance nobody knows, every draft kept or none. What attention, verdicts, collectives and
    launches add at an assumed acceptance is `planning.roofline`, which ends in the same `limit`. None where
    the size of a model that a point runs is unknown.
    """
    spans = [_span(point.decoding, load, chip) for point in points]
    if any(span is None for span in spans):
        return None
    return sum(low for low, _ in spans) * load.batches, sum(high for _, high in spans) * load.batches


def _span(decoding: Decoding, load: Load, chip: Chip) -> Span | None:
    """The least and the most seconds of one batch."""
    roles = {"target": ("target",), "drafter": ("drafter",)}.get(decoding.method, ("target", "drafter"))
    if any(role not in load.sizes for role in roles):
        return None
    peaks = (decoding.batch_size, chip.tflops * 1e12, chip.gb_per_second * 1e9)
    call = lambda role, tokens: load.sizes[role].seconds(tokens, *peaks)
    read = {role: load.sizes[role].prefill(load.prompt, *peaks) for role in roles}
    n, gamma = decoding.max_new_tokens, decoding.gamma
    if decoding.method in ("target", "drafter"):
        return (read[decoding.method] + n * call(decoding.method, 1),) * 2
    drafts, both = n * call("drafter", 1), sum(read.values())
    if decoding.method == "token":
        return both + drafts, both + drafts + n * call("target", CATCH_UP)
    if decoding.method == "oracle":
        return (both + drafts + n * call("target", 1),) * 2
    if decoding.method in ("sequence", "hybrid"):
        return read["drafter"] + drafts, both + drafts + n * call("target", 1)
    block = (gamma + 1) * call("drafter", 1) + call("target", gamma + 1)
    return both + block * -(-n // (gamma + 1)), both + block * n


def from_records(
    points: Sequence[Point], answers: float, records: Sequence[Mapping[str, Any]]
) -> Span | None:
    """Seconds of so many answers of each point, at the time an answer took in these records.

    Of the record with the point's name, else the median over its method and rule, else over its method, else
    the target's and the drafter's own together, which a cascade that runs each at most once a token hardly
    exceeds; None where these were not measured either.
    """
    spent = [_measured(point, records) for point in points]
    return None if None in spent else (answers * sum(spent),) * 2


def _measured(point: Point, records: Sequence[Mapping[str, Any]]) -> float | None:
    d = point.decoding
    like = lambda *keys: [r for r in records if all(r["decoding"][k] == getattr(d, k) for k in keys)]
    for found in ([r for r in records if r["name"] == point.name], like("method", "rule"), like("method")):
        if found:
            return _typical(found)
    alone = [[r for r in records if r["decoding"]["method"] == role] for role in ("target", "drafter")]
    return sum(map(_typical, alone)) if all(alone) else None


def _typical(records: Sequence[Mapping[str, Any]]) -> float:
    """The median over records of the seconds of an answer."""
    return median(r["latency"]["total"] / r["n_examples"] / r["repeats"] for r in records)
