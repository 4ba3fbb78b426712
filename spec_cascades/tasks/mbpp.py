"""MBPP: small Python problems, each with three tests. One file holds every split."""

from spec_cascades.tasks import code, reading
from spec_cascades.tasks.base import Data, Item, Row, View

SPLITS = {"prompt": (1, 10), "test": (11, 510), "validation": (511, 600), "train": (601, 974)}
"""Ranges of task_id, both ends included."""


def item(row: Row) -> Item:
    """The problem and its tests, as the data set's authors put them; tests run after the set-up code."""
    number, tests = row["task_id"], reading.strings(row["test_list"])
    split = next((name for name, (low, high) in SPLITS.items() if low <= number <= high), "")
    listed = "\n".join(tests)
    question = f"{reading.text(row['text'])} Your code should pass these tests:\n\n{listed}\n"
    checks = "\n".join(["", reading.text(row.get("test_setup_code", "")), *tests, ""])
    solution = reading.text(row["code"]).replace("\r\n", "\n")
    return Item(question, solution, {"before": "", "after": checks}, split=split)


def standard_first(pool: list[Item]) -> list[Item]:
    """Problems 2, 3 and 4, which the authors' prompt shows, before the others that may be shown."""
    return pool[1:4] + pool[:1] + pool[4:]


DATA = Data(
    name="mbpp",
    kind="coding",
    tfds=None,
    layout="mbpp.jsonl (all splits) with task_id, text, code, test_list and test_setup_code",
    licence="CC BY 4.0",
    split="test",
    train="prompt",
    lengths=(512, 256),
    shots=3,
    max_new_tokens=256,
    metric="pass@1",
    paper="Gemma: pass@1, also of the pre-trained models; number of shots not seen (3 is the authors')",
    cut="solved examples, the first ones first; never the question",
    encdec=View("write python: {question}"),
    few_shot=View(
        "You are an expert Python programmer, and here is your task: {question}[BEGIN]\n",
        join="",
        end="\n[DONE]\n\n",
        stop=("[DONE]", "\nYou are an expert"),
    ),
    chat=View(
        "You are an expert Python programmer, and here is your task: {question}\nAnswer with one code block."
    ),
    read=reading.by_suffix,
    item=item,
    sample={
        "task_id": 11,
        "text": "Write a function to add two numbers.",
        "code": "def add(a, b):\n    return a + b",
        "test_setup_code": "",
        "test_list": ["assert add(1, 2) == 3", "assert add(0, 0) == 0", "assert add(-1, 1) == 0"],
    },
    extract=code.program,
    order=standard_first,
)
