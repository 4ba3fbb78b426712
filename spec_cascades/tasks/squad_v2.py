"""SQuAD 2.0: questions about a passage, some of which it does not answer."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spec_cascades.tasks import reading
from spec_cascades.tasks.base import Data, Item, Row, View

NONE = "unanswerable"
"""What a model is asked to say where the passage holds no answer."""
INTRO = f"Answer each question in the words of its passage, or say {NONE}.\n\n"


def read(path: Path) -> list[Row]:
    """Rows context, question, answers of the published articles and paragraphs, or of a flat list."""
    rows = reading.jsonl(path) if path.suffix == ".jsonl" else reading.json_list(path, "data")
    return [row for entry in rows for row in (_questions(entry) if "paragraphs" in entry else [entry])]


def _questions(article: Row) -> list[Row]:
    return [{"context": p["context"], **qa} for p in article["paragraphs"] for qa in p["qas"]]


def item(row: Row) -> Item:
    """References are every annotator's answer; none for a question without one."""
    answers = _texts(row["answers"])
    shown = answers[0] if answers else NONE
    return Item(reading.text(row["question"]).strip(), shown, answers, reading.text(row["context"]))


def _texts(answers: Any) -> list[str]:
    """[{"text": ...}] as published, or {"text": [...]} as TFDS and others have it."""
    listed = answers["text"] if isinstance(answers, Mapping) else [a["text"] for a in answers]
    return reading.strings(listed)


def extract(answer: str) -> str:
    """The answer, empty where it says that there is none."""
    short = answer.strip()
    return "" if short.rstrip(".").lower() == NONE else short


DATA = Data(
    name="squad_v2",
    kind="question answering",
    tfds="squad/v2.0:3.0.0",
    layout="dev-v2.0.json, or a list with context, question and answers",
    licence="CC BY-SA 4.0",
    split="validation",
    train="train",
    lengths=(512, 32),
    shots=0,
    max_new_tokens=32,
    metric="f1",
    paper="Gemma: F1 and EM; number of shots not seen",
    cut="solved examples, then the passage from its end; never the question",
    encdec=View("question: {question} context: "),
    few_shot=View("Passage: ", "\nQuestion: {question}\nAnswer:", INTRO, stop=("\n",)),
    chat=View(
        "Answer the question in the words of the passage, as briefly as you can; "
        f"if the passage does not answer it, say {NONE}.\n\nPassage: ",
        "\n\nQuestion: {question}",
    ),
    read=read,
    item=item,
    sample={
        "context": "The harbour of Elm was built in 1821 and rebuilt in 1907.",
        "question": "When was the harbour built?",
        "answers": [{"text": "1821", "answer_start": 34}, {"text": "in 1821", "answer_start": 31}],
    },
    extract=extract,
)
