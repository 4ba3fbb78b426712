"""The truncation control: how much of a token rule's gain the target gets by cutting its own distribution.

A token rule drops tokens that the target finds unlikely, and so do min-p, top-p and greedy decoding. A gain
under sampling is the rule's own only as far as it goes beyond theirs, for the target alone and for lossless
speculation.
"""

from typing import NamedTuple

from spec_cascades.report import groups
from spec_cascades.report.groups import Record
from spec_cascades.report.picks import runs

TOKEN_RULES = ("v1", "v2", "v3", "topk", "typical")
CUTS = ("min-p", "top-p", "greedy")
"""The cuts that a claim needs, each for the target alone and for lossless speculation."""
SIDES = ("target alone", "lossless")


class Control(NamedTuple):
    """One cut of one side, and its best point ("uncut": the side as it is); None where it was not run."""

    side: str
    cut: str
    record: Record | None


class Claim(NamedTuple):
    """The best token rule's point, the target uncut, and the controls."""

    best: Record
    target: Record
    controls: list[Control]

    @property
    def gain(self) -> float:
        return groups.score(self.best) - groups.score(self.target)

    @property
    def missing(self) -> list[str]:
        return [f"{c.cut} for {c.side}" for c in self.controls if c.record is None and c.cut != "uncut"]


def claim(group: list[Record], everything: list[Record]) -> Claim | None:
    """The claim of a sampled group; None without a token rule or the target alone, or when it is greedy.

    everything: the records of the same task and models, of which the greedy controls are.
    """
    target = groups.target_alone(group)
    token = [r for r in group if runs(r, TOKEN_RULES) and not groups.filtered(r)]
    if not token or target is None or groups.score(target) is None or not _sampled(target):
        return None
    best = max(token, key=groups.score)
    batch = target["decoding"]["batch_size"]
    greedy = [r for r in everything if not _sampled(r) and r["decoding"]["batch_size"] == batch]
    found = [Control(SIDES[1], "uncut", _best([r for r in group if _of(r, SIDES[1]) and _cut(r) == "uncut"]))]
    for side in SIDES:
        mine = [r for r in group if _of(r, side)]
        extra = sorted({_cut(r) for r in mine} - {"uncut", *CUTS})
        for cut in (*CUTS[:2], *extra):
            found.append(Control(side, cut, matching(best, [r for r in mine if _cut(r) == cut])))
        found.append(Control(side, CUTS[2], _best([r for r in greedy if _of(r, side)])))
    return Claim(best, target, found)


def share(asked: Claim, record: Record) -> str:
    """'92 %', 'all' or 'none' of the token rule's gain, which a control gives by itself."""
    by_cut = groups.score(record) - groups.score(asked.target)
    if 0 < by_cut < asked.gain:
        return f"{100 * by_cut / asked.gain:.0f} %"
    return "all" if by_cut > 0 else "none"


def matching(record: Record, found: list[Record]) -> Record | None:
    """The control at V3's own threshold (min_p = 1 - alpha) if it ran, else the best one."""
    d = record["decoding"]
    threshold = 1 - float(d["alpha"])
    exact = [c for c in found if d["rule"] == "v3" and abs(c["decoding"]["min_p"] - threshold) < 1e-6]
    return exact[0] if exact else _best(found)


def _best(found: list[Record]) -> Record | None:
    return max(found, key=groups.score, default=None)


def _of(record: Record, side: str) -> bool:
    return record["decoding"]["method"] == "target" if side == SIDES[0] else runs(record, ("lossless",))


def _sampled(record: Record) -> bool:
    return record["decoding"]["temperature"] > 0


def _cut(record: Record) -> str:
    """'min-p', 'top-p', 'top-k', 'several filters' or 'uncut'."""
    d = record["decoding"]
    on = [key.replace("_", "-") for key, off in groups.FILTERS.items() if d[key] != off]
    return "several filters" if len(on) > 1 else (on[0] if on else "uncut")
