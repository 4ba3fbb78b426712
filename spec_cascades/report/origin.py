"""Where a part's numbers come from: file, models, versions, sampling and seeds."""

import json
from typing import Any

from spec_cascades.report import cells
from spec_cascades.report.groups import Record
from spec_cascades.report.runs import Part
from spec_cascades.report.sheets import Sheet


def sampling(part: Part, key: str) -> Sheet:
    """How each point drew, and with which seeds."""
    rows = [
        [r["name"], cells.line(r), _plain(r.get("sampling")), _plain(r.get("seeds")), _plain(_decoding(r))]
        for r in part.records
    ]
    headings = ("point", "record", "sampling", "seeds", "decoding")
    return Sheet(f"{key}-sampling", f"Sampling: {part.title}", headings, rows)


def provenance(part: Part) -> list[tuple[str, str]]:
    """What a part's numbers depend on, each thing with its name."""
    first = part.records[0]
    sizes = sorted({r["n_examples"] for r in part.records})
    known = [
        ("records", part.file or "not read from a file"),
        ("models", part.models),
        ("task", _plain(first.get("task"))),
        ("examples", ", ".join(map(str, sizes))),
        ("repeats", _plain(first.get("repeats"))),
        ("versions", "; ".join(dict.fromkeys(_plain(r.get("versions")) for r in part.records))),
    ]
    return [(name, text) for name, text in known if text]


def _decoding(record: Record) -> dict[str, Any]:
    keys = ("method", "rule", "alpha", "gamma", "max_new_tokens", "batch_size")
    return {key: record["decoding"][key] for key in keys}


def _plain(value: Any) -> str:
    """'a 1, b x': a mapping on one line, what is not set left out."""
    if not isinstance(value, dict):
        return "" if value is None else str(value)
    return ", ".join(
        f"{k} {v if isinstance(v, str) else json.dumps(v)}" for k, v in value.items() if v not in (None, "")
    )
