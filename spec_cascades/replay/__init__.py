"""Rules priced along stored texts: q and p are stored once, every rule and alpha is read off the store.

OUT holds config.yaml and examples.jsonl as a sweep's folder does (`runlog`), the store's .npz files beside
them, and replay.jsonl, the points that were priced last. Other points of the same texts load no model.
"""

import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from spec_cascades import runlog
from spec_cascades.config import Decoding, Point
from spec_cascades.progress import progress
from spec_cascades.replay import measured, store
from spec_cascades.replay.settings import Replay, priced
from spec_cascades.sweep import fitted, versions, with_alpha
from spec_cascades.tasks.asked import Asked, ask
from spec_cascades.tasks.examples import fingerprint

PRICES = "replay.jsonl"
ESTIMATE = "past the first divergence: the recorded text goes on there, not what the rule would have written"


def run(asked_for: Replay, engine: Any = None) -> list[dict[str, Any]]:
    """Fills what the store lacks and returns (and writes to OUT/replay.jsonl) one record a point.

    The engine is made from the models unless one is given, and only when the store is not whole. Raises
    ConfigError when OUT belongs to another configuration, points apart, or its store is damaged.
    """
    folder, asked = Path(asked_for.output), ask(asked_for.task, asked_for.models.chat)
    found = measured.read(asked_for)
    with runlog.opened(folder, _identity(asked_for, asked)) as log:
        done = {(line["repeat"], line["first"]) for line in log.lines if line["kind"] == "pairs"}
        due = [unit for unit in _units(asked_for, asked) if unit not in done]
        if due:
            _fill(engine or _engine(asked_for), log, folder, asked_for, asked, due)
        else:
            print(f"{folder}: the store is whole, no model is loaded", file=sys.stderr)
        records = _priced(asked_for, folder, log.lines, found)
        runlog.write_records(folder / PRICES, records)
    return records


def _identity(asked_for: Replay, asked: Asked) -> dict[str, Any]:
    """What the store depends on: not the points, and nothing of a rule."""
    kept = {key: asdict(asked_for)[key] for key in ("models", "task", "text", "repeats", "remainder")}
    return kept | {"drawn": asdict(asked_for.drawn), "examples_sha256": fingerprint(asked.examples)}


def _units(asked_for: Replay, asked: Asked) -> list[tuple[int, int]]:
    """(repeat, first example) of every batch."""
    firsts = range(0, len(asked.examples), asked_for.drawn.batch_size)
    return [(repeat, first) for repeat in range(asked_for.repeats) for first in firsts]


def _fill(
    engine: Any, log: runlog.Log, folder: Path, asked_for: Replay, asked: Asked, due: list[tuple[int, int]]
) -> None:
    drawn = asked_for.drawn
    texts, cut = fitted(engine, asked, drawn.max_new_tokens, asked_for.text)
    log.append({"kind": "session", "versions": versions(), "cut": cut and cut._asdict()})
    total = len(_units(asked_for, asked))
    with progress("q and p along the texts", total, total - len(due)) as advance:
        for repeat, first in due:
            rows = texts[first : first + drawn.batch_size]
            # As a sweep seeds its answers: one seed for every (repeat, example).
            seed = drawn.seed + repeat * asked.total + asked.first + first
            log.append(_stored(engine, folder, asked_for, rows, replace(drawn, seed=seed), (repeat, first)))
            advance(1)


def _stored(
    engine: Any, folder: Path, asked_for: Replay, texts: Sequence[str], drawn: Decoding, unit: tuple[int, int]
) -> dict[str, Any]:
    """One batch drawn, read and written; its line of the log."""
    from spec_cascades.along import along  # jax

    answers = engine.run(list(texts), drawn).answers
    pairs = along(engine, list(texts), [a.tokens for a in answers], drawn)
    rows = store.joined([store.sparse(pair, asked_for.remainder) for pair in pairs])
    file = f"pairs-{unit[0]}-{unit[1]:06d}.npz"
    store.write(folder / file, rows)
    told = [
        {"index": unit[1] + i, "tokens": a.tokens, "finish_reason": a.finish_reason}
        for i, a in enumerate(answers)
    ]
    kept = int(rows.counts.sum())
    return {
        "kind": "pairs",
        "repeat": unit[0],
        "first": unit[1],
        "seed": drawn.seed,
        "file": file,
        "kept": kept,
        "answers": told,
    }


def _priced(
    asked_for: Replay, folder: Path, lines: list[dict[str, Any]], found: dict[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    points = [Point(p.name, with_alpha(p.decoding)) for p in priced(asked_for)]
    stored = store.read(folder, lines)
    shared = {
        "n_answers": len(stored.lengths),
        "n_positions": len(stored.rows.counts),
        "text": asked_for.text,
        "remainder": asked_for.remainder,
        "models": asdict(asked_for.models),
        "task": asdict(asked_for.task),
        "versions": [line for line in lines if line["kind"] == "session"][-1]["versions"],
    }
    prices = _prices(stored, points)
    records = []
    for p in points:
        beside = measured.beside(prices[p.name], found.get(measured.key(p.decoding)))
        own = {"name": p.name, **prices[p.name], "estimate": ESTIMATE, "measured": beside}
        records.append(own | {"decoding": asdict(p.decoding)} | shared)
    return records


def _prices(stored: store.Store, points: list[Point]) -> dict[str, dict[str, Any]]:
    """By the points' names: each rule is compiled once for all of its alphas."""
    from spec_cascades import rules
    from spec_cascades.replay import pricing  # jax

    prices: dict[str, dict[str, Any]] = {}
    names = list(dict.fromkeys(p.decoding.rule for p in points))
    with progress("rules", len(names)) as advance:
        for name in names:
            mine = [p for p in points if p.decoding.rule == name]
            alphas = sorted({p.decoding.alpha for p in mine})
            rejected = dict(
                zip(alphas, pricing.rejections(stored.rows, rules.get(name), alphas), strict=True)
            )
            for p in mine:
                price = pricing.price(rejected[p.decoding.alpha], stored.lengths, p.decoding.gamma)
                prices[p.name] = price._asdict()
            advance(1)
    return prices


def _engine(asked_for: Replay) -> Any:
    from spec_cascades.engine import engine_of  # jax

    return engine_of(asked_for.models)
