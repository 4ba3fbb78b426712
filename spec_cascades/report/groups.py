"""Records that may be compared: same temperature, same batch size; and what is read from them."""

from typing import Any

from spec_cascades.metrics.names import TITLES

Record = dict[str, Any]
FILTERS = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
"""The sampling filters and the value that leaves each out."""
METHODS = {
    "bild": "BiLD",
    "token": "token cascade, {rule}",
    "oracle": "oracle, {rule}",
    "sequence": "sequence cascade",
    "hybrid": "sequence cascade, verified",
    "target": "target alone",
    "drafter": "drafter alone",
}
"""What each method is called; a speculative one has its rule's name."""
TRUNCATED = "target alone, truncated"


def split(records: list[Record]) -> dict[str, list[Record]]:
    """Records by title of their group, in the order of first appearance."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(title(record), []).append(record)
    return groups


def title(record: Record) -> str:
    """'greedy, batch 1' or 'temperature 0.5, batch 8'."""
    d = record["decoding"]
    heat = "greedy" if d["temperature"] == 0 else f"temperature {d['temperature']:g}"
    return f"{heat}, batch {d['batch_size']}"


def filtered(record: Record) -> bool:
    """Whether a sampling filter is in force."""
    d = record["decoding"]
    return d["temperature"] > 0 and any(d[key] != off for key, off in FILTERS.items())


def rule(record: Record) -> str:
    """What is to be chosen, without alpha and gamma: "v3", "token cascade, chow", "lossless, filtered"."""
    d = record["decoding"]
    if d["method"] == "target" and filtered(record):
        return TRUNCATED
    text = METHODS.get(d["method"], "{rule}").format(rule=d["rule"])
    return text + (", filtered" if filtered(record) and d["method"] != "drafter" else "")


def filters(record: Record) -> str:
    """'min_p=0.5, top_p=0.9': the sampling filters in force."""
    d: dict[str, Any] = record["decoding"]
    return ", ".join(f"{key}={d[key]:g}" for key, off in FILTERS.items() if d[key] != off)


def target_alone(group: list[Record]) -> Record | None:
    """The plain target of a group, if it ran; where all have a filter in common, the target with that."""
    plain = next((r for r in group if r["decoding"]["method"] == "target" and not filtered(r)), None)
    return plain or reference(group)


def reference(group: list[Record]) -> Record | None:
    """The target alone that all are compared with."""
    names = [r["against_target"]["name"] for r in group if r["against_target"]]
    return next((r for r in group if r["name"] in names[:1]), None)


def metric(records: list[Record]) -> str:
    """What the quality of these records is called: "BLEU", "ROUGE-2", "accuracy"."""
    return TITLES[records[0]["quality"].get("metric", "bleu")]


def score(record: Record) -> float | None:
    """The corpus score by the task's metric, None where nothing was scored."""
    quality = record["quality"]
    return quality["score"] if "metric" in quality else quality["bleu"]


def interval(record: Record) -> list[float] | None:
    """The bounds of the score's 95 % interval."""
    quality = record["quality"]
    return quality["interval"] if "metric" in quality else quality["bleu_interval"]


def difference(record: Record, part: str = "") -> Any:
    """The score less that of the target alone ("_interval": its bounds), None without one to compare."""
    name = "score" if "metric" in record["quality"] else "bleu"
    return against(record, f"{name}_difference{part}")


def against(record: Record, key: str) -> Any:
    """A figure of the comparison with the target alone, None where there was no target to compare with."""
    return record["against_target"][key] if record["against_target"] else None


def speed_up(record: Record) -> float | None:
    """How many times as fast as the target alone, from paired medians."""
    relative = against(record, "relative_seconds")
    return None if relative is None else 1 / relative


def time(record: Record) -> float:
    """Seconds an answer took: relative to the target alone where it ran, else the median."""
    relative = against(record, "relative_seconds")
    return record["latency"]["p50"] if relative is None else relative


def speed_bounds(record: Record) -> tuple[float, float] | None:
    """The 95 % interval of `speed_up`, None where the record has none."""
    bounds = (record["against_target"] or {}).get("relative_interval")
    return None if bounds is None else (1 / bounds[1], 1 / bounds[0])
