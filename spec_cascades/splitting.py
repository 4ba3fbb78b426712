"""A finished run scored on some of its examples: what is chosen on one part can be reported on another."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spec_cascades import quality, records, runlog
from spec_cascades.config import ConfigError, Decoding, Point, Sweep, build
from spec_cascades.merging import described
from spec_cascades.metrics.scoring import Check
from spec_cascades.quality import Quality
from spec_cascades.tasks.asked import Asked, ask
from spec_cascades.tasks.examples import fingerprint

Record = dict[str, Any]
Keep = Callable[[int], bool]
"""Whether an example, by its index in the run, belongs to the part."""


class Run(NamedTuple):
    """A finished run: its records by name, what it asked, and its log.

    check: runs generated programs; without it their scores are those of the records.
    """

    sweep: Sweep
    records: dict[str, Record]
    asked: Asked
    lines: list[dict[str, Any]]
    check: Check | None = None

    @property
    def points(self) -> list[Point]:
        """The points as they ran, each with its alpha."""
        return [Point(name, decoding_of(record)) for name, record in self.records.items()]


def read(folder: Path, check: Check | None = None) -> Run:
    """The run of a folder. Raises ConfigError where it is not finished or its examples have changed."""
    sweep, examples = described(folder)
    asked = ask(sweep.task, sweep.models.chat)
    if fingerprint(asked.examples) != examples:
        raise ConfigError(f"{folder}: its examples are no longer those of task.path or task.name")
    found = {record["name"]: record for record in runlog.read_records(folder)}
    return Run(sweep, found, asked, runlog.read_lines(folder), check)


def decoding_of(record: Record) -> Decoding:
    """The decoding of a record, from JSON, where keys are strings and infinities are, too."""
    raw = record["decoding"]
    return build(Decoding, raw | {"logit_bias": {int(k): v for k, v in raw.get("logit_bias", {}).items()}})


def part(folder: Path, keep: Keep, check: Check | None = None) -> list[Record]:
    """The records of the examples of a finished run that `keep` names by index, rebuilt from its log.

    They are what the run itself would have written of these examples, without "seeds". Raises ConfigError
    where nothing is kept, and where `keep` divides a batch, whose time belongs to all of its answers.
    """
    run = read(folder, check)
    return part_of(run, keep, run.points)


def part_of(run: Run, keep: Keep, points: list[Point]) -> list[Record]:
    """`part` of a run that is read already, of these points only."""
    asked, lines = _cut(run, keep, {p.name for p in points})
    finished = outcomes(run, keep, points)
    made = records.records_of(asdict(run.sweep), finished, asked, lines)
    return [{key: value for key, value in record.items() if key != "seeds"} for record in made]


def outcomes(run: Run, keep: Keep, points: list[Point]) -> list[records.Outcome]:
    """The work of these points on the examples kept, scored."""
    asked, lines = _cut(run, keep, {p.name for p in points})
    kept = [i for i in range(len(run.asked.examples)) if keep(i)]
    score = lambda point, answers: _scored(run, asked, point, answers, kept)
    return [records.outcome(point, lines, score) for point in points]


def _scored(run: Run, asked: Asked, point: Point, answers: list[dict[str, Any]], kept: list[int]) -> Quality:
    stored = run.records[point.name].get("per_example")
    if asked.metric != "pass@1" or run.check or not stored:
        return quality.of(asked, answers, run.check)
    rows = {name: np.asarray(values)[kept][None] for name, values in stored.items()}
    return quality.of_scores(asked.metric, rows)


def _cut(run: Run, keep: Keep, names: set[str]) -> tuple[Asked, list[dict[str, Any]]]:
    """The examples kept, numbered anew, and the lines of a log that knew no others."""
    kept = [i for i in range(len(run.asked.examples)) if keep(i)]
    if not kept:
        raise ConfigError(f"no example of {len(run.asked.examples)} is in this part")
    places = {index: place for place, index in enumerate(kept)}
    pick = lambda rows: [rows[i] for i in kept]
    asked = run.asked._replace(prompts=pick(run.asked.prompts), examples=pick(run.asked.examples))
    mine = [line for line in run.lines if line.get("point") in names]
    batches = [_renumbered(b, places) for b in mine if b["kind"] == "batch"]
    lines = [b for b in batches if b["answers"]] + [line for line in mine if line["kind"] == "warmup"]
    _whole(lines, names, len(kept) * run.sweep.repeats)
    return asked, lines + [line for line in run.lines if line["kind"] == "session"]


def _renumbered(batch: dict[str, Any], places: dict[int, int]) -> dict[str, Any]:
    answers = [a | {"index": places[a["index"]]} for a in batch["answers"] if a["index"] in places]
    if 0 < len(answers) < len(batch["answers"]):
        raise ConfigError(
            f"{batch['point']}: a batch of {len(batch['answers'])} answers cannot be divided; "
            "keep whole batches"
        )
    return batch | {"answers": answers}


def _whole(lines: list[dict[str, Any]], names: set[str], due: int) -> None:
    """Raises ConfigError where a point lacks answers."""
    for name in names:
        answers = sum(len(x["answers"]) for x in lines if x["kind"] == "batch" and x["point"] == name)
        if answers != due:
            raise ConfigError(f"{name}: {answers} of {due} answers are in the log; run its own command again")
