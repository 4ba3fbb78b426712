"""A plan on the terminal, and plans of several chips as one markdown table. Imports no jax."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from spec_cascades.config import told
from spec_cascades.planning import comparing
from spec_cascades.planning.chips import Chip
from spec_cascades.planning.planner import Planned
from spec_cascades.reproduce.dry import clock

METHOD = ("method", "accepted or deferred", "gamma", "break-even acceptance", "seconds a batch", "speed-up")
AGAINST = ("point", "batch", "accepted or deferred", "tokens", "measured", "predicted", "off")
CHIPS = (
    *("chip", "chips", "GB of memory", "needs", "fits", "rows", "context", "ms of t(1)", "t(5)/t(1)"),
    *("drafter/target call", "lossless: gamma", "break-even", "speed-up", "cascade: gamma", "break-even"),
    *("speed-up", "token", "sequence", "drafter"),
)


def show(planned: Planned, batches: int | None = None) -> None:
    """Prints what a plan says; batches: of one decoding of the run it is for, to be timed as a whole."""
    console = _console()
    for line in _head(planned):
        console.print(line, highlight=False, soft_wrap=True)
    ratios = {k: seconds / planned.calls[1] for k, seconds in planned.calls.items()}
    over = ", ".join(f"t({k}) {ratio:.2f}" for k, ratio in ratios.items() if k > 1)
    console.print(
        f"A call of the target: {_ms(planned.calls[1])} for one token a row; over that: {over}; "
        f"a call of the drafter {planned.drafter_call / planned.calls[1]:.3f}",
        highlight=False,
        soft_wrap=True,
    )
    _print(console, "Predicted", METHOD, [_method(m) for m in planned.methods])
    if batches:
        took = ", ".join(f"{m.name} {clock(batches * m.seconds)}" for m in planned.methods)
        console.print(
            f"A decoding of the run is {batches:,} batches: {took}", highlight=False, soft_wrap=True
        )
    if planned.compared is not None:
        rows = [_against(c) for c in planned.compared]
        _print(
            console, f"Against {planned.asked.record} (points without a prediction left out)", AGAINST, rows
        )
        console.print(f"Speed-ups: {comparing.verdict(planned.compared)}", highlight=False, soft_wrap=True)
    for line in _notes(planned):
        console.print(line, highlight=False, soft_wrap=True)


def chips(plans: Sequence[Planned], names: Sequence[str] = ()) -> str:
    """One row a plan, in markdown; names: of the columns of an experiment that they are for."""
    rows = [CHIPS, ("---",) * len(CHIPS), *(_row(p) for p in plans)]
    if any(names):
        rows = [(first, *row) for first, row in zip(("column", "---", *names), rows, strict=True)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _head(p: Planned) -> list[str]:
    a = p.asked
    pair = f"{a.models.drafter} -> {a.models.target}, {told(asdict(a.models))}"
    load = f"batch {a.batch}, prompts of {a.prompt} tokens, answers of {a.answer}"
    if p.chip is None or p.fit is None:
        return [f"{pair}, as measured in {a.chip}; batch {a.batch}, answers of {a.answer} tokens"]
    apart = f", the drafter over {a.mesh.drafter}" if a.mesh.drafter not in (None, a.mesh.model) else ""
    mesh = f"{a.mesh.data} x {a.mesh.model} {p.chip.name} (data x model{apart})"
    parts = f"weights {_gb(p.fit.weights)}, caches {_gb(p.fit.caches)}, temporaries {_gb(p.fit.temporaries)}"
    verdict = "fits" if p.fit.fits else "does NOT fit"
    return [
        f"{pair}, on {mesh}; {load}",
        f"Memory: {verdict}: {_gb(p.fit.total)} of {_gb(p.fit.limit)} on each chip ({parts}). It would hold "
        f"{p.fit.batch} rows of such a length, or {a.batch} of {p.fit.context:,} tokens",
        f"Peaks: {', '.join(_peaks(p.chip))} ({', '.join(p.chip.sources)})",
    ]


def _peaks(chip: Chip) -> list[str]:
    given = [
        (chip.flops, 1e12, "{:.4g} TFLOP/s in bfloat16"),
        (chip.int8_ops, 1e12, "{:.4g} TOP/s in int8"),
        (chip.bandwidth, 1e9, "{:.4g} GB/s"),
        (chip.ring, 1e9, "ring {:.4g} GB/s"),
    ]
    return [pattern.format(value / unit) for value, unit, pattern in given if value is not None]


def _notes(p: Planned) -> list[str]:
    shares = "accepted: of drafts, given that those before stood; deferred: of tokens, or of whole answers"
    if p.chip is None:
        return [f"{shares}; times as measured, between measured widths and batches interpolated"]
    return [
        f"{shares}; both assumed",
        f"Roofline at stated peaks, {p.asked.overhead_us:g} us on top of every call (an assumption): "
        "a bound, not a measurement",
    ]


def _method(m: Any) -> tuple[str, ...]:
    never = "-" if m.gamma is None else "never"
    return (
        m.name,
        _or(m.share, "{:.2f}"),
        _or(m.gamma, "{}"),
        _or(m.break_even, "{:.2f}", never),
        f"{m.seconds:.4g}",
        f"{m.speed_up:.2f}",
    )


def _against(c: Any) -> tuple[str, ...]:
    figures = (f"{c.share:.3f}", f"{c.tokens:.1f}", f"{c.measured:.2f}", f"{c.predicted:.2f}")
    return (c.name, str(c.batch), *figures, f"{100 * c.off:+.0f} %")


def _row(p: Planned) -> tuple[str, ...]:
    by = {m.name: m for m in p.methods}
    mesh, fit = p.asked.mesh, p.fit
    if p.chip is None or fit is None:
        head = (p.asked.chip, "-", "-", "-", "-", "-", "-")
    else:
        sizes = (f"{p.chip.memory / 1e9:.0f}", _gb(fit.total), "yes" if fit.fits else "**no**")
        head = (p.chip.name, str(mesh.data * mesh.model), *sizes, str(fit.batch), f"{fit.context:,}")
    drafted = [
        cell
        for name in ("lossless", "cascade")
        for cell in (
            str(by[name].gamma),
            _or(by[name].break_even, "{:.2f}", "never"),
            f"{by[name].speed_up:.2f}",
        )
    ]
    rest = [_or(by.get(name) and by[name].speed_up, "{:.2f}") for name in ("token", "sequence", "drafter")]
    five = p.calls.get(5)
    calls = (f"{1e3 * p.calls[1]:.3g}", _or(five and five / p.calls[1], "{:.2f}"))
    return (*head, *calls, f"{p.drafter_call / p.calls[1]:.3f}", *drafted, *rest)


def _print(console: Any, title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for head in heads:
        table.add_column(head, justify="left" if head == heads[0] else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _console() -> Any:
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console.width = 160  # a file or a pipe has no width, and a wrapped table cannot be read
    return console


def _or(value: Any, pattern: str, absent: str = "-") -> str:
    return absent if value is None else pattern.format(value)


def _gb(n: float) -> str:
    return f"{n / 1e9:.3g} GB"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"
