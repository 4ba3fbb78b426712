"""GSM8K: word problems of primary school, solved step by step."""

import re

from spec_cascades.metrics.gsm8k import number
from spec_cascades.tasks import reading
from spec_cascades.tasks.base import Data, Item, Row, View

CALCULATOR = re.compile(r"<<[^>]*>>")
"""Notes for a calculator inside the published solutions; a solved example does not show them."""


def item(row: Row) -> Item:
    """The whole problem is the question; the reference is the whole solution, ending in "#### number"."""
    solution = reading.text(row["answer"])
    if number(solution) is None:
        raise ValueError("a solution without a number")
    return Item(reading.text(row["question"]), CALCULATOR.sub("", solution), solution)


DATA = Data(
    name="gsm8k",
    kind="reasoning",
    tfds="gsm8k:1.0.0",
    layout="a .jsonl with question and answer",
    licence="MIT",
    split="test",
    train="train",
    lengths=(512, 256),
    shots=8,
    max_new_tokens=256,
    metric="accuracy",
    paper="Gemma: 8 shots, accuracy",
    cut="solved examples, the first ones first; never the question",
    encdec=View("solve: {question}"),
    few_shot=View("Question: {question}\nAnswer:", stop=("\nQuestion:",)),
    chat=View(
        "{question}\n\nSolve this step by step, and end with a line that holds #### and the final number."
    ),
    read=reading.jsonl,
    item=item,
    sample={
        "question": "Ada has 3 boxes of 12 pens and gives 5 pens away. How many pens are left?",
        "answer": "She has 3 * 12 = <<3*12=36>>36 pens.\nThen 36 - 5 = <<36-5=31>>31 are left.\n#### 31",
    },
)
