"""The records of a run that was divided among hosts: its shards' logs, scored as one."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from spec_cascades import runlog
from spec_cascades.config import ConfigError, Point, Sweep, build, expand
from spec_cascades.metrics.scoring import Check
from spec_cascades.records import build_records
from spec_cascades.sweep import identity, settled
from spec_cascades.tasks.asked import Asked, ask
from spec_cascades.tasks.examples import fingerprint
from spec_cascades.tasks.settings import parts


class Shard(NamedTuple):
    """A run folder with `task.shard` i/n: its configuration, the hash of its examples, and its log."""

    folder: Path
    sweep: Sweep
    examples: str
    lines: list[dict[str, Any]]

    @property
    def place(self) -> tuple[int, int]:
        return parts(self.sweep.task.shard)


def merge(folders: Sequence[Path], out: Path, check: Check | None = None) -> list[dict[str, Any]]:
    """Makes of OUT the run folder of the whole run, and returns its records, one a point.

    Scores are of all answers together, as a corpus BLEU must be; seconds are summed over the hosts, and the
    versions are the last shard's. Raises ConfigError unless the folders are every shard of one finished run.
    """
    shards = sorted((_read(folder) for folder in folders), key=lambda s: s.place)
    whole = _whole(shards)
    asked = ask(whole.task, whole.models.chat)
    points = [Point(p.name, settled(p.decoding, asked)) for p in expand(whole)]
    lines = [line for shard in shards for line in _shifted(shard, whole, points)]
    sessions = [_session(shard) for shard in shards]
    lines.append(sessions[-1] | {"cut": _all_cut([s.get("cut") for s in sessions])})
    records = build_records(asdict(whole), points, asked, lines, check)
    runlog.store(out, identity(whole, asked), lines)
    runlog.write_records(out / runlog.RECORDS, records)
    return records


def configuration(folder: Path) -> Sweep:
    """What the run in a folder was asked. Raises ConfigError where the folder holds no run."""
    return described(folder)[0]


def described(folder: Path) -> tuple[Sweep, str]:
    """What the run in a folder was asked, and the hash of its examples. Raises as `configuration`."""
    path = folder / runlog.CONFIG
    if not path.is_file():
        raise ConfigError(f"no run in {str(folder)!r}: it has no {runlog.CONFIG}")
    raw = yaml.safe_load(path.read_text("utf-8"))
    if not isinstance(raw, dict) or "examples_sha256" not in raw:
        raise ConfigError(f"{path}: not of an evaluation or a sweep")
    examples = raw.pop("examples_sha256")
    return build(Sweep, raw | {"output": str(folder)}), examples


def _read(folder: Path) -> Shard:
    sweep, examples = described(folder)
    return Shard(folder, sweep, examples, runlog.read_lines(folder))


def _whole(shards: list[Shard]) -> Sweep:
    """The undivided run's configuration, once the folders are known to be its shards, each given once."""
    if not shards:
        raise ConfigError("no shard to merge: give the run folders of all of them")
    places = [shard.place for shard in shards]
    n = places[0][1]
    if places != [(i, n) for i in range(n)]:
        found = ", ".join(f"{i}/{m} ({s.folder})" for (i, m), s in zip(places, shards, strict=True))
        raise ConfigError(f"task.shard: {found} are not all the parts of one run, each given once")
    undivided = [_undivided(shard.sweep) for shard in shards]
    for shard, own in zip(shards, undivided, strict=True):
        if own != undivided[0]:
            raise ConfigError(f"{shard.folder}: another configuration than {shards[0].folder}'s")
    return undivided[0]


def _undivided(sweep: Sweep) -> Sweep:
    return replace(sweep, task=replace(sweep.task, shard=None), output="")


def _shifted(shard: Shard, whole: Sweep, points: list[Point]) -> list[dict[str, Any]]:
    """The shard's lines, its examples numbered as in the whole run; ConfigError where some are not done."""
    mine = ask(shard.sweep.task, whole.models.chat)
    if fingerprint(mine.examples) != shard.examples:
        raise ConfigError(f"{shard.folder}: its examples are no longer those of task.path or task.name")
    batches = [line for line in shard.lines if line["kind"] == "batch"]
    done = {(b["point"], b["repeat"], a["index"]) for b in batches for a in b["answers"]}
    due = {(p.name, r, i) for p in points for r in range(whole.repeats) for i in range(len(mine.examples))}
    if missing := len(due - done):
        raise ConfigError(
            f"{shard.folder}: {missing} of {len(due)} answers are missing; run its own command again"
        )
    return [_moved(b, mine) for b in batches] + [x for x in shard.lines if x["kind"] == "warmup"]


def _moved(batch: dict[str, Any], mine: Asked) -> dict[str, Any]:
    answers = [answer | {"index": answer["index"] + mine.first} for answer in batch["answers"]]
    return batch | {"first": batch["first"] + mine.first, "answers": answers}


def _session(shard: Shard) -> dict[str, Any]:
    return [line for line in shard.lines if line["kind"] == "session"][-1]


def _all_cut(cuts: list[dict[str, Any] | None]) -> dict[str, Any] | None:
    """What was taken out of the prompts of all shards; they share the limit."""
    given = [cut for cut in cuts if cut]
    if not given:
        return None
    counted = {key: sum(cut[key] for cut in given) for key in ("examples", "tokens", "shots")}
    return given[0] | counted | {"longest": max(cut["longest"] for cut in given)}
