"""A trace on the terminal: the answers side by side, then the tokens where drafter and target part."""

from typing import Any

from spec_cascades.trace import showing
from spec_cascades.trace.showing import AUTHORS, BLOCK, Contest, Settings, number, visible
from spec_cascades.trace.tokens import BONUS, DRAFT, DRAFTER, KEPT, RESIDUAL, TARGET, Trace

STYLES = {
    DRAFT: "blue",
    KEPT: "bold yellow underline",
    RESIDUAL: "bold red",
    BONUS: "green",
    TARGET: "magenta",
    DRAFTER: "cyan",
}
NARROW, PIPE = 90, 110
"""Columns below which answers stand under one another, and the width of what is no terminal."""


def show(traces: list[Trace], settings: Settings, console: Any = None) -> None:
    """Prints the picture, a table of the contested tokens, the legend and the check."""
    from rich.console import Console
    from rich.text import Text

    console = console or Console()
    if not console.is_terminal:
        console.width = PIPE
    console.print(Text(visible(settings.prompt), style="bold"))
    console.print(Text(settings.line, style="dim"))
    console.print(_side_by_side(traces, console.width))
    if contests := showing.contests(traces):
        console.print(_table(contests))
    for name, author in showing.used(traces).items():
        console.print(Text.assemble("  ", (f"{name}{author.mark}", STYLES[name]), f"  {author.about}"))
    console.print(
        Text(f"  {BLOCK}  the target is called again; a struck token is a rejected draft", style="dim")
    )
    console.print(Text(showing.check(traces), style="dim"))


def _side_by_side(traces: list[Trace], width: int) -> Any:
    from rich import box
    from rich.table import Table

    across = [traces] if width >= NARROW else [[trace] for trace in traces]
    outer = Table.grid()
    for row in across:
        table = Table(box=box.SIMPLE_HEAD, expand=True)
        for trace in row:
            table.add_column(trace.name, ratio=1)
        table.add_row(*map(coloured, row))
        table.add_row(*map(showing.calls, row), style="dim")
        outer.add_row(table)
    return outer


def coloured(trace: Trace) -> Any:
    """The answer with each token in its author's style and mark, and rejected drafts struck through."""
    from rich.text import Text

    text = Text()
    for before, token in zip([None, *trace.tokens], trace.tokens, strict=False):
        if showing.begins(trace, before, token):
            text.append(BLOCK, "dim")
        lead, body, tail = showing.parted(token)
        text.append(lead)
        if token.rejected is not None:
            text.append(f"~{visible(token.rejected.text).strip()}~", "dim strike")
        text.append(body, STYLES[token.author])
        text.append(AUTHORS[token.author].mark + tail, "dim")
    return text


def _table(contests: list[Contest]) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    left = ("answer", "draft", "outcome")
    table = Table(
        title="drafts that the target would not have written", title_justify="left", box=box.SIMPLE_HEAD
    )
    for heading in (
        "answer",
        "at",
        "draft",
        "q",
        "p",
        "TV",
        "r",
        "pi",
        "P(reject)",
        "outcome",
        "target's best",
    ):
        table.add_column(
            heading, justify="left" if heading in left else "right", no_wrap=heading != "outcome"
        )
    for one in contests:
        n, best = one.numbers, one.token.target_best[0]
        table.add_row(
            one.answer,
            str(one.token.position + 1),
            Text(one.draft),
            *map(number, (n.q_raw, n.p_raw, n.tv_raw)),
            "-" if n.r is None else str(int(n.r)),
            *map(number, (n.pi, n.rejects)),
            Text(one.outcome, STYLES[one.token.author]),
            Text(f"{visible(best.text)} {number(best.probability)}"),
        )
    return table
