"""Natural Questions, open: questions to a search engine, answered from memory."""

from spec_cascades.tasks import reading
from spec_cascades.tasks.base import Data, Item, Row, View


def item(row: Row) -> Item:
    """Any of the listed answers is right."""
    answers = reading.strings(row["answer"])
    return Item(reading.text(row["question"]), answers[0], answers)


DATA = Data(
    name="natural_questions_open",
    kind="question answering",
    tfds="natural_questions_open:1.0.0",
    layout="NQ-open.dev.jsonl with question and answer (a list)",
    licence="CC BY-SA 3.0",
    split="validation",
    train="train",
    lengths=(64, 32),
    shots=1,
    max_new_tokens=32,
    metric="open_em",
    paper="Gemma: 1 shot",
    cut="solved examples; never the question",
    encdec=View("nq question: {question}"),
    few_shot=View("Question: {question}?\nAnswer:", stop=("\n",)),
    chat=View("Answer in a few words, without a sentence around them.\n\n{question}?"),
    read=reading.by_suffix,
    item=item,
    sample={"question": "when was the harbour of elm built", "answer": ["1821", "in 1821"]},
)
