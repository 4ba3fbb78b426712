"""A report's chapters, one a task, and what is said over all of them; as markdown and LaTeX."""

from typing import NamedTuple

from spec_cascades.report import contents, groups, origin, over_tasks, sheets, summary, table
from spec_cascades.report.pictures import Picture
from spec_cascades.report.runs import Part, Setting
from spec_cascades.report.sheets import Sheet


class Chapter(NamedTuple):
    """One part: its lines, its tables by group, and where its numbers come from."""

    key: str
    part: Part
    lines: list[str]
    sheets: dict[str, list[Sheet]]
    facts: list[tuple[str, str]]
    sampling: Sheet

    @property
    def title(self) -> str:
        return self.part.title


class Book(NamedTuple):
    """answers: sentences over all tasks, or that there is one task only. over: the tables behind them."""

    chapters: list[Chapter]
    answers: list[str]
    over: list[Sheet]
    settings: list[Setting]

    @property
    def parts(self) -> list[Part]:
        return [chapter.part for chapter in self.chapters]


def book(found: list[Part], settings: list[Setting]) -> Book:
    """All that is told of these parts."""
    chapters = [_chapter(f"t{i}", part) for i, part in enumerate(found, 1)]
    over = [s for i, x in enumerate(settings, 1) for s in over_tasks.of_setting(f"over{i}", x)]
    return Book(chapters, over_tasks.answers(settings), over, settings)


def _chapter(key: str, part: Part) -> Chapter:
    by_group = groups.split(part.records)
    found = {
        title: contents.of_group(f"{key}-g{i}", title, group, part.records)
        for i, (title, group) in enumerate(by_group.items(), 1)
    }
    lines = summary.all_lines(part.records)
    return Chapter(key, part, lines, found, origin.provenance(part), origin.sampling(part, key))


def markdown(told: Book, drawn: list[Picture]) -> str:
    """Summary, table, pictures and further tables, task by task."""
    several = len(told.chapters) > 1
    blocks = [block for chapter in told.chapters for block in _markdown(chapter, drawn, several)]
    if several:
        blocks += ["## Over tasks\n", *(f"- {sheets.plain_markdown(line)}" for line in told.answers), ""]
        blocks += [f"{over_tasks.DEFINITION}\n"] if told.over else []
        blocks += [sheets.markdown(sheet) for sheet in told.over]
    return "\n".join(blocks)


def _markdown(chapter: Chapter, drawn: list[Picture], several: bool) -> list[str]:
    records = chapter.part.records
    head = [f"## {sheets.plain_markdown(chapter.title)}\n"] if several else []
    links = [f"![{p.caption}]({p.path.name})\n" for p in drawn if p.part == chapter.title]
    rest = [s for found in chapter.sheets.values() for s in found if not s.key.endswith("-points")]
    source = [f"Records: {sheets.plain_markdown(chapter.part.file)}\n"] if chapter.part.file else []
    lines = [f"{sheets.plain_markdown(line)}\n" for line in chapter.lines]
    return [*head, *lines, *source, table.markdown(records), *links, *(sheets.markdown(s) for s in rest)]


def latex(told: Book) -> str:
    """Every table, one after another, to be read by LaTeX's input command."""
    found = [s for chapter in told.chapters for own in chapter.sheets.values() for s in own]
    head = "% Tables of `spec-cascades report`; packages: booktabs, graphicx.\n"
    return "\n".join([head, *(sheets.latex(sheet) for sheet in (*found, *told.over))])
