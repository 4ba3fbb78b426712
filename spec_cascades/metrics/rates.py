"""What decoding did, counted one way everywhere. Imports no jax.

The ledger. A speculative step ("block") drafts gamma tokens and spends one target call on them. For position
i = 0..gamma-1 of a block:

* judged[i]    blocks in which the verifier decided on draft i: all before it stood, and no end of the answer
               (EOS or the length limit) lay before it;
* accepted[i]  those in which draft i was accepted and is in the answer;
* rejected[i]  = judged[i] - accepted[i];
* drafted[i]   = judged[i] + rejected before i: the drafts that could have counted. Those behind a rejection
               are in it, since they were paid for; those behind the end of the answer are not, since no
               verifier could keep them.

From these:

* rejection_rate          = sum rejected / sum judged
* draft_acceptance_rate   = sum accepted / sum drafted
* acceptance_by_position  = accepted[i] / judged[i]
* acceptance_histogram[n] = blocks with exactly n drafts in the answer, n = 0..gamma
* mean_acceptance_length  = tokens of the answers / target calls, the verifier's own token included
* tokens_per_target_call  = the same for any method that calls the target

Where nothing was drafted the first five are None, not 0; tokens_per_target_call is None where the target
never ran.
"""

from collections.abc import Iterable
from itertools import accumulate, pairwise, zip_longest
from typing import NamedTuple


class Counts(NamedTuple):
    """One answer's tally, or the sum of many; by position for the two lists."""

    tokens: int
    target_calls: int
    drafter_calls: int
    judged: list[int]
    accepted: list[int]


class Rates(NamedTuple):
    """The ledger's figures; None where there is nothing to divide by."""

    drafted: list[int] | None
    judged: list[int] | None
    accepted: list[int] | None
    rejection_rate: float | None
    draft_acceptance_rate: float | None
    acceptance_by_position: list[float | None] | None
    acceptance_histogram: list[int] | None
    mean_acceptance_length: float | None
    tokens_per_target_call: float | None


def total(counts: Iterable[Counts]) -> Counts:
    """The sum of tallies, position by position."""
    rows = list(counts)
    add = lambda lists: [sum(column) for column in zip_longest(*lists, fillvalue=0)]
    sums = (sum(getattr(r, name) for r in rows) for name in ("tokens", "target_calls", "drafter_calls"))
    return Counts(*sums, add([r.judged for r in rows]), add([r.accepted for r in rows]))


def rates(counts: Counts) -> Rates:
    """The figures of the module's ledger. Raises ValueError for a tally that no decoding can produce."""
    per_call = _ratio(counts.tokens, counts.target_calls)
    if not counts.judged or not counts.judged[0]:
        return Rates(None, None, None, None, None, None, None, None, per_call)
    _check(counts)
    judged, accepted = counts.judged, counts.accepted
    rejected = [j - a for j, a in zip(judged, accepted, strict=True)]
    before = list(accumulate(rejected, initial=0))[:-1]
    drafted = [j + b for j, b in zip(judged, before, strict=True)]
    return Rates(
        drafted,
        judged,
        accepted,
        rejection_rate=sum(rejected) / sum(judged),
        draft_acceptance_rate=sum(accepted) / sum(drafted),
        acceptance_by_position=[_ratio(a, j) for a, j in zip(accepted, judged, strict=True)],
        acceptance_histogram=_histogram(judged[0], accepted),
        mean_acceptance_length=per_call,
        tokens_per_target_call=per_call,
    )


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _histogram(blocks: int, accepted: list[int]) -> list[int]:
    at_least = [blocks, *accepted, 0]
    return [a - b for a, b in pairwise(at_least)]


def _check(counts: Counts) -> None:
    """judged[0] >= accepted[0] >= judged[1] >= ...: a draft is judged only behind accepted ones."""
    if len(counts.judged) != len(counts.accepted):
        raise ValueError(f"judged has {len(counts.judged)} positions and accepted {len(counts.accepted)}")
    chain = [x for pair in zip(counts.judged, counts.accepted, strict=True) for x in pair]
    if any(a < b for a, b in pairwise(chain)):
        raise ValueError(
            f"no decoding judges {counts.judged} and accepts {counts.accepted} drafts by position"
        )
