"""A user's own data: any fields, any prompt, one of the metrics."""

import re
from pathlib import Path

from spec_cascades.checks import ConfigError
from spec_cascades.metrics.gsm8k import number
from spec_cascades.tasks import reading
from spec_cascades.tasks.base import Data, Item, Row, View
from spec_cascades.tasks.settings import Task

LISTED = ("em", "f1", "open_em", "open_f1", "trivia_em", "trivia_f1")
"""Metrics that take several references."""
FIELD = re.compile(r"\{(\w+)\}")


def data(task: Task) -> Data:
    """The data set that a configured task describes: its fields, its template (or the input as it is)."""
    metric = task.metric or "bleu"

    def read(path: Path) -> list[Row]:
        return (
            reading.tsv(path, task.input, task.target) if path.suffix == ".tsv" else reading.by_suffix(path)
        )

    def item(row: Row) -> Item:
        references = row[task.target]
        references = [references] if isinstance(references, str) else reading.strings(references)
        if metric not in LISTED and len(references) != 1:
            raise ValueError(f"{metric} takes one reference, not {len(references)}")
        if metric == "accuracy" and number(references[0]) is None:
            raise ValueError(f"accuracy compares numbers, and {references[0][:40]!r} has none")
        shown = references[0] if references else ""
        reference = references if metric in LISTED else references[0]
        if task.template is None:
            return Item("", shown, reference, reading.text(row[task.input]))
        return Item(_filled(task.template, row, task.input), shown, reference)

    view = View("{question}")
    return Data(
        name="local",
        kind="your own",
        tfds=None,
        layout=f"a .jsonl, a .json list or a TSV with {task.input} and {task.target}",
        licence="yours",
        split="all",
        train="train",
        lengths=(512, 128),
        shots=0,
        max_new_tokens=64,
        metric=metric,
        paper="-",
        cut="the input, from its end; nothing where there is a template",
        encdec=view,
        few_shot=view,
        chat=view,
        read=read,
        item=item,
        sample={task.input: "one two", task.target: "eins zwei"},
    )


def _filled(template: str, row: Row, source: str) -> str:
    """The template with each {field} of the row; {input} is also the field that `task.input` names."""

    def value(found: re.Match[str]) -> str:
        key = found.group(1)
        key = source if key == "input" and key not in row else key
        if key not in row:
            raise ConfigError(f"task.template: no field {key!r} in a row with {', '.join(row)}")
        return str(row[key])

    return FIELD.sub(value, template)
