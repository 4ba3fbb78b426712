"""A table that is the same in markdown, LaTeX and HTML."""

import re
from typing import NamedTuple


class Sheet(NamedTuple):
    """key: its anchor, unique in a report. The first cell of a row names it; cells are plain text."""

    key: str
    caption: str
    headings: tuple[str, ...]
    rows: list[list[str]]
    note: str = ""


LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    **{c: "\\" + c for c in "&%$#_{}"},
}
MINUS = re.compile(r"(?<![\w.])-(?=\d)")
"""Before a number, where LaTeX would set a hyphen."""


def plain_markdown(text: str) -> str:
    """Text that stays itself in a markdown table: no cell, tag or line of its own."""
    for mark, other in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "\\|")):
        text = text.replace(mark, other)
    return " ".join(text.split())


def markdown(sheet: Sheet) -> str:
    """The caption in bold, the table and its note."""
    rule = ["---", *["---:"] * (len(sheet.headings) - 1)]
    rows = [[plain_markdown(c) for c in row] for row in (sheet.headings, *sheet.rows)]
    body = "\n".join("| " + " | ".join(row) + " |" for row in (rows[0], rule, *rows[1:]))
    note = f"\n\n{plain_markdown(sheet.note)}" if sheet.note else ""
    return f"**{plain_markdown(sheet.caption)}**\n\n{body}{note}\n"


def latex(sheet: Sheet) -> str:
    r"""A table for \input: it needs the packages booktabs and graphicx, and shrinks to the text's width."""
    row = lambda cells: " & ".join(_latex(c) for c in cells) + r" \\"
    return "\n".join(
        [
            r"\begin{table}[tp]",
            rf"\caption{{{_latex(sheet.caption)}.{' ' + _latex(sheet.note) if sheet.note else ''}}}",
            rf"\label{{tab:{sheet.key}}}",
            r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
            rf"\begin{{tabular}}{{l{'r' * (len(sheet.headings) - 1)}}}",
            r"\toprule",
            row(sheet.headings),
            r"\midrule",
            *(row(cells) for cells in sheet.rows),
            r"\bottomrule",
            r"\end{tabular}}",
            r"\end{table}",
            "",
        ]
    )


def _latex(text: str) -> str:
    escaped = "".join(LATEX.get(c, c) for c in " ".join(text.split()))
    return MINUS.sub("$-$", escaped)
