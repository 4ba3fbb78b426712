"""Plans from their own configuration, or from that of a run. Imports no jax."""

from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, NamedTuple

from spec_cascades import config, reading
from spec_cascades.checks import ConfigError, nearest
from spec_cascades.config import Decoding, Evaluate, Generate, Sweep
from spec_cascades.planning.settings import Plan
from spec_cascades.reproduce import Experiment, columns

RUNS: dict[type, tuple[str, ...]] = {
    Experiment: ("columns", "kind", "title", "slack"),
    Sweep: ("base", "points"),
    Evaluate: ("task", "output", "repeats"),
    Generate: ("decoding", "prefix", "refill"),
}
"""Configurations of runs, each with keys that the ones below it have not."""
MOVED = {
    "weights": "models.weights (dtype or int8; models.drafter_weights where the drafter's differ)",
    "cache": "models.cache (float32, bfloat16 or int8; models.drafter_cache where the drafter's differs)",
    "drafter_mesh": "mesh.drafter (1: a copy of the drafter on every chip)",
}
"""Keys that a plan had of its own, and the run's own keys that it reads instead."""
OWN = tuple(f.name for f in fields(Plan))


class Case(NamedTuple):
    """One pair to be planned. name: of an experiment's column, else empty; batches: that one decoding of the
    run has, None where nothing tells.
    """

    name: str
    plan: Plan
    batches: int | None = None


def read(path: str | None, overrides: Sequence[str] = ()) -> list[Case]:
    """The plans of a file and `key=value` overrides: one, or one for each column of an experiment.

    Of a run (`RUNS`) are taken: models and mesh; the largest batch and answer of its points; their gamma, or
    where they differ the best up to the largest; prompts as long as its task says; an experiment's chip. A
    plan's own keys go first. Raises ConfigError for unknown keys, and for those that are no longer a plan's.
    """
    raw = reading.read(path, list(overrides), _schema(path))
    for key, now in MOVED.items():
        if key in raw:
            raise ConfigError(f"{key}: a plan reads {now}, as the run does")
    rest = {key: value for key, value in raw.items() if key not in OWN}
    own = {key: raw[key] for key in raw if key in OWN}
    kind = next((cls for cls, keys in RUNS.items() if any(key in rest for key in keys)), None)
    if isinstance(own.get("chip"), dict):
        own["peaks"] = own.pop("chip")
    if kind is None:
        return [Case("", reading.build(Plan, own | rest))]
    _known(kind, rest)
    rest |= {"models": own.pop("models")} if "models" in own else {}
    return _cases(kind, rest, own)


def _schema(path: str | None) -> type:
    """The dataclass whose names a gin file binds; of no account to YAML."""
    if path is None or not path.endswith(".gin") or not Path(path).is_file():
        return Plan
    text = Path(path).read_text("utf-8")
    return next((cls for cls in RUNS if f"{cls.__name__}." in text), Plan)


def _known(kind: type, rest: dict[str, Any]) -> None:
    names = tuple(f.name for f in fields(kind))
    for key in rest:
        if key not in names:
            both = (*names, *OWN)
            raise ConfigError(
                f"unknown key {key!r}{nearest(key, both)}; the keys of a plan: {', '.join(OWN)}; and of "
                f"{kind.__name__.lower()}: {', '.join(names)}"
            )


def _cases(kind: type, rest: dict[str, Any], own: dict[str, Any]) -> list[Case]:
    if kind is Generate:
        asked = config.filled(Generate, rest)
        return [Case("", _plan(asked.models, [asked.decoding], own))]
    # A plan writes nothing, so that it needs no folder.
    asked = config.filled(kind, {"output": "runs/plan"} | rest)
    if isinstance(asked, Experiment):
        return [_case(column.name, column.sweep, own) for column in columns(asked)]
    return [_case("", config.as_sweep(asked) if isinstance(asked, Evaluate) else asked, own)]


def _case(name: str, sweep: Sweep, own: dict[str, Any]) -> Case:
    from spec_cascades.reproduce import dry

    decodings = [point.decoding for point in config.expand(sweep)]
    plan = _plan(sweep.models, decodings, {"prompt": dry.longest_prompt(sweep.task)} | own)
    examples = dry.examples(sweep.task)
    return Case(name, plan, examples and sweep.repeats * -(-examples // plan.batch))


def _plan(models: Any, decodings: Sequence[Decoding], own: dict[str, Any]) -> Plan:
    found = {
        "models": asdict(models),
        "batch": max(d.batch_size for d in decodings),
        "answer": max(d.max_new_tokens for d in decodings),
    }
    gammas = {d.gamma for d in decodings if d.method in ("speculative", "bild")}
    if len(gammas) == 1:
        found["gamma"] = gammas.pop()
    elif gammas:
        found["most_gamma"] = max(gammas)
    return reading.build(Plan, found | own)
