"""Spec-Bench: 480 prompts of six kinds for the speed of speculative decoding. Nothing to score."""

from spec_cascades.tasks import reading
from spec_cascades.tasks.base import Data, Item, Row, View

KINDS = ("translation", "summarization", "qa", "math_reasoning", "rag")


def item(row: Row) -> Item:
    """The first turn; its kind is the split, "chat" for the eight kinds of conversation."""
    kind = reading.text(row["category"])
    prompt = reading.strings(row["turns"])[0]
    return Item("", "", None, prompt, kind if kind in KINDS else "chat")


DATA = Data(
    name="spec_bench",
    kind="latency",
    tfds=None,
    layout="question.jsonl with question_id, category and turns",
    licence="Apache-2.0",
    split="all",
    train=None,
    lengths=(1024, 256),
    shots=0,
    max_new_tokens=256,
    metric="none",
    paper="not used",
    cut="the prompt, from its end",
    encdec=View(""),
    few_shot=View("", "\n"),
    chat=View(""),
    read=reading.by_suffix,
    item=item,
    sample={"question_id": 1, "category": "qa", "turns": ["Who built the harbour of Elm?"]},
)
