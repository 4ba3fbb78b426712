"""From what traffic on one point's wait exceeds another's, and by how much: rows to plain sentences."""

from typing import Any

from spec_cascades.simulate.curves import Row

MARGIN = 1.1
"""A wait shows where it is more than so many times the other's."""


def lines(rows: list[Row], methods: dict[str, str]) -> list[str]:
    """For each arrival process, each sequence cascade against the point it is best compared with.

    methods: of each point. Nothing without a sequence cascade and another point.
    """
    other = reference(methods)
    cascades = [name for name, method in methods.items() if method == "sequence"]
    if other is None:
        return []
    found = []
    for process in dict.fromkeys(row["arrivals"] for row in rows):
        mine = [row for row in rows if row["arrivals"] == process]
        found += [_sentence(process, of(mine, name), of(mine, other)) for name in cascades]
    return found


def reference(methods: dict[str, str]) -> str | None:
    """What sequence cascades are held against: a speculative point, the last one named, else the target."""
    for method in ("speculative", "target"):
        named = [name for name, own in methods.items() if own == method]
        if named:
            return named[-1]
    return None


def of(rows: list[Row], name: str) -> list[Row]:
    """A point's rows."""
    return [row for row in rows if row["point"] == name]


def _sentence(process: str, cascade: list[Row], other: list[Row]) -> str:
    head = f"{process}: {cascade[0]['point']} against {other[0]['point']}: "
    if _full(cascade[0], other[0]):
        return head + f"one of them is full at {_rate(cascade[0])} already"
    lone = [f"{1e3 * row['first_token']['mean']:.1f}" for row in (cascade[0], other[0])]
    return head + "; ".join(
        (
            f"at {_rate(cascade[0])} the first token comes after {lone[0]} ms on average, against {lone[1]}",
            _shows("mean time to first token", "first_token", "mean", cascade, other),
            _shows("p99 latency", "latency", "p99", cascade, other),
            f"full at {cascade[0]['capacity']:.0f}/s, against {other[0]['capacity']:.0f}/s",
        )
    )


def _shows(text: str, key: str, which: str, cascade: list[Row], other: list[Row]) -> str:
    found = onset(cascade, other, key, which)
    last = [i for i, pair in enumerate(zip(cascade, other, strict=True)) if not _full(*pair)][-1]
    worst = f"{ratio(cascade[last], other[last], key, which):.2f} times at {_rate(cascade[last])}"
    if found is None:
        return f"{text}: no wait of {MARGIN:g} times the other's below capacity, {worst}"
    return f"{text}: {MARGIN:g} times the other's or more from {_rate(cascade[found])} on, {worst}"


def onset(cascade: list[Row], other: list[Row], key: str, which: str) -> int | None:
    """The first rate, by its index, from which on the cascade's figure is MARGIN times the other's or more.

    Rates at which either is full count for neither. None where the last that counts shows no wait.
    """
    found = None
    for i, (a, b) in enumerate(zip(cascade, other, strict=True)):
        if _full(a, b):
            break
        if ratio(a, b, key, which) < MARGIN:
            found = None
        elif found is None:
            found = i
    return found


def ratio(a: Row, b: Row, key: str, which: str) -> float:
    """One row's figure over the other's."""
    return a[key][which] / b[key][which]


def _full(a: Row, b: Row) -> bool:
    return a["saturated"] or b["saturated"]


def _rate(row: Row) -> str:
    return f"{row['rate']:g}/s ({100 * row['rate'] / row['capacity']:.0f} % of the cascade's capacity)"


def notes(record: dict[str, Any]) -> str:
    """What the call times were measured on, in a sentence."""
    at = f"{record['cores']} core{'s' * (record['cores'] != 1)}"
    device, sizes = record.get("versions", {}).get("device", "?"), record["batches"]
    return (
        f"call times: {at} ({device}), batches {sizes[0]}..{sizes[-1]}, gamma {record['gamma']}; a server "
        "is one such device"
    )
