"""WebQuestions: questions that people typed, answered from memory."""

import re

from spec_cascades.tasks import reading
from spec_cascades.tasks.base import Data, Item, Row, View

DESCRIPTION = re.compile(r'\(description (?:"([^"]+)"|([^)]+))\)')
"""One answer in the original file's (list (description ...) ...)."""


def item(row: Row) -> Item:
    """Any of the listed answers is right."""
    question = row.get("qText") or row.get("utterance") or row.get("question")
    answers = row.get("answers")
    if answers is None:
        answers = ["".join(found) for found in DESCRIPTION.findall(row["targetValue"])]
    answers = reading.strings(answers)
    return Item(reading.text(question), answers[0], answers)


DATA = Data(
    name="web_questions",
    kind="question answering",
    tfds="web_questions:1.0.0",
    layout="a JSON list with qText and answers, or the original utterance and targetValue",
    licence="CC BY 4.0",
    split="test",
    train="train",
    lengths=(64, 32),
    shots=1,
    max_new_tokens=32,
    metric="open_em",
    paper="Gemma: 1 shot",
    cut="solved examples; never the question",
    encdec=View("wq question: {question}"),
    few_shot=View("Question: {question}\nAnswer:", stop=("\n",)),
    chat=View("Answer in a few words, without a sentence around them.\n\n{question}"),
    read=reading.by_suffix,
    item=item,
    sample={"qId": "s0", "qText": "where is the harbour of elm?", "answers": ["Elm County", "Northland"]},
)
