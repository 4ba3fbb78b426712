"""The law of the first tokens on real prompts: samples of the engine against enumeration."""

from dataclasses import replace
from functools import partial
from typing import Any

from spec_cascades.audit import chi_square, laws
from spec_cascades.audit.cells import Cells, Path, counts, enumerated
from spec_cascades.audit.settings import Audit
from spec_cascades.config import Decoding
from spec_cascades.progress import progress

READINGS: dict[str, tuple[int | None, ...]] = {"float32": (None,), "bfloat16": (None, 1)}
"""Tokens a call in which the exact law is read. In bfloat16 readings differ by their rounding, and one that
the samples follow is enough."""


def check(audit: Audit, engine: Any, texts: list[str]) -> list[dict[str, Any]]:
    """A finding for each of the first `law_prompts` prompts; level is divided among them (Bonferroni)."""
    decoding = replace(audit.decoding, stop=[], max_new_tokens=audit.depth, samples=1)
    read = laws.reader(engine, audit.models.drafter, decoding)
    some, batches = texts[: audit.law_prompts], -(-audit.samples // audit.rows)
    found = []
    with progress("samples", len(some) * batches) as advance:
        for i, text in enumerate(some):
            seed = decoding.seed + i * batches * audit.rows
            paths = _paths(engine, replace(decoding, seed=seed), text, batches, audit.rows, advance)
            each = [_cells(audit, engine, read, decoding, text, r) for r in READINGS[audit.models.dtype]]
            findings = [_finding(audit, cells, paths, audit.level / len(some)) for cells in each]
            best = max(findings, key=lambda f: (f["passed"], f["p_value"]))
            found.append({"check": "law", "prompt": text, **best})
    return found


def _paths(engine: Any, decoding: Decoding, text: str, batches: int, rows: int, advance: Any) -> list[Path]:
    """The sampled tokens, each with a seed of its own; whole batches, so that one shape compiles."""
    paths: list[Path] = []
    for k in range(batches):
        seeded = replace(decoding, seed=decoding.seed + k * rows)
        paths += [tuple(a.tokens) for a in engine.run([text] * rows, seeded).answers]
        advance(1)
    return paths


def _cells(
    audit: Audit, engine: Any, read: laws.Read, decoding: Decoding, text: str, block: int | None
) -> Cells:
    ends = engine.tokenizer.stops if decoding.eos is None else decoding.eos
    return enumerated(partial(laws.behind, read, decoding, text, block), audit.depth, ends, audit.likely)


def _finding(audit: Audit, cells: Cells, paths: list[Path], level: float) -> dict[str, Any]:
    fit = chi_square.fit(counts(cells, paths), cells.law, level, audit.distance)
    never = sorted({path for path in paths if cells.impossible(path)})
    own = sum(mass for path, mass in cells.law.items() if path[-1] >= 0)
    return {
        "passed": fit.p_value >= level and not never,
        **fit._asdict(),
        "level": level,
        "distance": audit.distance,
        "samples": len(paths),
        "depth": audit.depth,
        "enumerated": own,
        "impossible": [list(path) for path in never],
    }
