"""What a tuning says: a table of its points, one sentence, and the configuration it chose."""

from dataclasses import asdict

from spec_cascades.tuning import Row, Tuned
from spec_cascades.tuning.settings import Demand

FIGURES = {
    "floor": ("score", "at least", "{:.2f}"),
    "loss": ("score - target's", "at least", "{:+.2f}"),
    "ceiling": ("time / target's", "at most", "{:.3f}"),
    "ceiling_ms": ("ms / answer", "at most", "{:.2f}"),
}
"""What is bounded by each demand, which way, and how it is written."""
OWN = ("loss", "ceiling_ms")
"""Demands whose figure has a column of its own: it is neither the score nor the relative time."""


def table(tuned: Tuned) -> str:
    """Markdown: every point on the validation examples, and the chosen one on the held-out ones."""
    figure, side, _ = FIGURES[tuned.demand.kind]
    own = [figure] if tuned.demand.kind in OWN else []
    heads = ["point", "score", "time / target's", *own, f"{figure} {side}", "meets the demand", ""]
    rows = [_cells(tuned.demand, row, "chosen" if row is tuned.chosen else "") for row in tuned.rows]
    if tuned.confirmed is not None:
        said = "confirmed" if tuned.confirmed.meets else "not confirmed"
        rows.append(_cells(tuned.demand, tuned.confirmed, f"held out: {said}"))
    lines = [heads, ["---", *["---:"] * (len(heads) - 3), "---", "---"], *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _cells(demand: Demand, row: Row, remark: str) -> list[str]:
    form = FIGURES[demand.kind][2]
    own = [form.format(row.value)] if demand.kind in OWN else []
    score = "-" if row.score is None else f"{row.score:.2f}"
    bound, meets = form.format(row.bound), "yes" if row.meets else "no"
    return [row.point.name, score, f"{row.relative:.3f}", *own, bound, meets, remark]


def verdict(tuned: Tuned) -> str:
    """One sentence: what was chosen and confirmed, or that nothing was, and how near it came."""
    form = FIGURES[tuned.demand.kind][2]
    if tuned.chosen is None:
        pick = min if tuned.demand.of_time else max
        nearest = pick(tuned.rows, key=lambda row: row.bound)
        return (
            f"No setting meets the demand ({tuned.demand}): of {len(tuned.rows)} points the nearest is "
            f"{nearest.point.name}, bound {form.format(nearest.bound)}."
        )
    name, held = tuned.chosen.point.name, tuned.confirmed
    found = f"{form.format(held.value)}, bound {form.format(held.bound)}"
    if not held.meets:
        return (
            f"{name} meets the demand ({tuned.demand}) on the validation examples, but that is not confirmed "
            f"on the held-out ones ({found})."
        )
    return (
        f"{name} meets the demand ({tuned.demand}), confirmed on the held-out examples ({found}); it takes "
        f"{held.relative:.3f} of the target alone's time there."
    )


def configuration(tuned: Tuned) -> str:
    """The chosen point as YAML that `generate --config` and `evaluate` (with task and output) take."""
    import yaml

    form = FIGURES[tuned.demand.kind][2].format
    row, held = tuned.chosen, tuned.confirmed
    notes = [
        f"{row.point.name}: {tuned.demand}",
        f"chosen among {len(tuned.rows)} points ({form(row.value)}, bound over all {form(row.bound)}),",
        f"confirmed on held-out examples ({form(held.value)}, bound {form(held.bound)})",
        *([f"prompts began with {tuned.prefix!r}: generate --set prefix=..."] if tuned.prefix else []),
    ]
    body = {"models": asdict(tuned.models), "decoding": asdict(row.point.decoding)}
    return "".join(f"# {note}\n" for note in notes) + yaml.safe_dump(
        body, sort_keys=False, allow_unicode=True
    )
