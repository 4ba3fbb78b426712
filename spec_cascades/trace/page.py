"""A trace as one HTML page without script or network; hover or keyboard focus shows the figures."""

from pathlib import Path
from typing import Any

from spec_cascades.runlog import write_atomically
from spec_cascades.trace import showing
from spec_cascades.trace.showing import AUTHORS, Settings, visible
from spec_cascades.trace.tokens import Token, Trace

TEMPLATE = "page.html.j2"


def write(path: Path, traces: list[Trace], settings: Settings) -> None:
    """Writes the page, whole or not at all; missing folders are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, page(traces, settings))


def page(traces: list[Trace], settings: Settings) -> str:
    """The page's text; whatever a prompt or a model wrote is escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(Path(__file__).parent)
    own = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return own.get_template(TEMPLATE).render(
        prompt=visible(settings.prompt),
        settings=settings.line,
        answers=[_answer(trace, settings) for trace in traces],
        legend=showing.used(traces),
        contests=showing.contests(traces),
        number=showing.number,
        visible=visible,
        check=showing.check(traces),
    )


def _answer(trace: Trace, settings: Settings) -> dict[str, Any]:
    before = [None, *trace.tokens]
    tokens = [_token(trace, a, b, settings.unlike) for a, b in zip(before, trace.tokens, strict=False)]
    return {"name": trace.name, "calls": showing.calls(trace), "tokens": tokens}


def _token(trace: Trace, before: Token | None, token: Token, unlike: bool) -> dict[str, Any]:
    """What the template wants of a token."""
    lead, text, tail = showing.parted(token)
    return {
        "lead": lead,
        "text": text,
        "tail": tail,
        "author": token.author,
        "mark": AUTHORS[token.author].mark,
        "begins": showing.begins(trace, before, token),
        "rejected": None if token.rejected is None else visible(token.rejected.text).strip(),
        "facts": showing.facts(token, unlike),
    }
