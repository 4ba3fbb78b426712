"""XSum: BBC articles and the one sentence that introduces each."""

from spec_cascades.tasks import reading
from spec_cascades.tasks.base import Data, Item, Row, View


def item(row: Row) -> Item:
    """The document is read, the summary is one sentence."""
    summary = reading.text(row["summary"])
    return Item("", summary, summary, reading.text(row["document"]))


DATA = Data(
    name="xsum",
    kind="summarisation",
    tfds="xsum:1.1.0",
    layout="a .jsonl with document and summary",
    licence="MIT for the scripts; the articles belong to the BBC",
    split="validation",
    train="train",
    lengths=(1024, 64),
    shots=0,
    max_new_tokens=64,
    metric="rouge2",
    paper="T5: 11,305 articles, inputs of 1,024, ROUGE-2",
    cut="solved examples, then the document from its end",
    encdec=View("summarize: "),
    few_shot=View("Article: ", "\nSummary in one sentence:", stop=("\n",)),
    chat=View("Summarise this article in one sentence.\n\n"),
    read=reading.by_suffix,
    item=item,
    sample={
        "document": "The harbour of Elm closed after a crane fell. Nobody was hurt. It opens on Monday.",
        "summary": "A fallen crane has closed the harbour of Elm until Monday.",
    },
)
