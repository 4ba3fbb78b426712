"""CNN/DailyMail: news articles and their highlights."""

from pathlib import Path

from spec_cascades.checks import ConfigError
from spec_cascades.tasks import reading
from spec_cascades.tasks.base import Data, Item, Row, View

MARK = "@highlight"


def read(path: Path) -> list[Row]:
    """Rows article, highlights of a .jsonl, of one .story file, or of a folder of them in order of name."""
    if path.is_dir():
        stories = sorted(path.glob("*.story"))
        if not stories:
            raise ConfigError(f"task.path: no .story file in {path}")
        return [_story(p) for p in stories]
    return [_story(path)] if path.suffix == ".story" else reading.by_suffix(path)


def _story(path: Path) -> Row:
    article, *highlights = (part.strip() for part in reading.text_of(path).split(MARK))
    if not article or not highlights:
        raise ConfigError(f"{path}: expected an article and {MARK} blocks")
    return {"article": article, "highlights": "\n".join(highlights)}


def item(row: Row) -> Item:
    """The article is read, the highlights, a line each, are the summary."""
    summary = reading.text(row["highlights"])
    return Item("", summary, summary, reading.text(row["article"]))


DATA = Data(
    name="cnn_dailymail",
    kind="summarisation",
    tfds="cnn_dailymail:3.4.0",
    layout="a .jsonl with article and highlights, a .story file, or a folder of them",
    licence="MIT for the lists of URLs; the articles belong to their publishers",
    split="validation",
    train="train",
    lengths=(2048, 128),
    shots=0,
    max_new_tokens=128,
    metric="rouge2",
    paper="T5: the 13,368 validation articles, lengths 2,048/128, ROUGE-2; Gemma: number of shots not seen",
    cut="solved examples, then the article from its end",
    encdec=View("summarize: "),
    few_shot=View("Article: ", "\nSummary in a few sentences:", stop=("\n\n", "\nArticle:")),
    chat=View("Summarise this article in three or four sentences.\n\n"),
    read=read,
    item=item,
    sample={
        "article": "The harbour of Elm closed after a crane fell. Nobody was hurt. It opens on Monday.",
        "highlights": "A fallen crane closed the harbour of Elm .\nIt opens again on Monday .",
    },
)
