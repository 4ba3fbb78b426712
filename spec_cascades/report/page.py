"""The page: one file of HTML with its pictures inside, which needs no network and no script."""

from importlib.resources import files

from spec_cascades.report import over_tasks, picks
from spec_cascades.report.book import Book
from spec_cascades.report.pictures import Picture


def html(told: Book, drawn: list[Picture] | None, command: str) -> str:
    """The whole page; `drawn` None where there is nothing to draw with, `command` as it was given."""
    from jinja2 import Environment, StrictUndefined

    source = files("spec_cascades.report").joinpath("page.html.j2").read_text("utf-8")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(source).render(
        book=told,
        titles=[chapter.title for chapter in told.chapters],
        pictures=drawn or [],
        plotted=drawn is not None,
        command=command,
        margin=picks.MARGIN,
        definition=over_tasks.DEFINITION,
        several=len(told.chapters) > 1,
    )
