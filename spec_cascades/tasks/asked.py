"""What a run asks: the prompts of a configured task, cut to a shard, and how their answers are scored."""

from collections.abc import Callable
from typing import Any, NamedTuple

from spec_cascades.checks import ConfigError
from spec_cascades.metrics import scoring
from spec_cascades.tasks import registry
from spec_cascades.tasks.base import Parts
from spec_cascades.tasks.examples import Example, read
from spec_cascades.tasks.settings import Task, parts


class Asked(NamedTuple):
    """Prompts in pieces, and as examples (the text and the reference), in order.

    first, total: of a shard, the index of its first example and the number of all; limit: tokens of a prompt,
    None for the model's window; about: what a record says of the prompts, empty for a task without a name.
    """

    prompts: list[Parts]
    examples: list[Example]
    metric: str
    extract: Callable[[str], str]
    first: int
    total: int
    limit: int | None
    about: dict[str, Any]


def ask(task: Task, chat: bool = False) -> Asked:
    """The prompts and references of a task. Raises ConfigError as its reader does, and for an empty shard.

    Raises ModuleNotFoundError where the package is absent that answers are scored by.
    """
    found = _pairs(task) if task.name is None else _named(task, chat)
    i, n = parts(task.shard)
    first, last = (found.total * k // n for k in (i, i + 1))
    if first == last:
        raise ConfigError(f"task.shard: {task.shard} of {found.total} examples is empty")
    return found._replace(prompts=found.prompts[first:last], examples=found.examples[first:last], first=first)


def _pairs(task: Task) -> Asked:
    examples = read(task)
    prompts = [Parts("", (), task.prefix, e.source.removeprefix(task.prefix), "") for e in examples]
    keep = lambda answer: answer
    return Asked(prompts, examples, "bleu", keep, 0, len(examples), task.max_input_tokens, {})


def _named(task: Task, chat: bool) -> Asked:
    prompts, items = registry.prompts(task, chat)
    data, view = registry.described(task), registry.view_of(task, chat)
    scoring.require(data.metric)
    examples = [Example(p.text, item.reference) for p, item in zip(prompts, items, strict=True)]
    limit = task.max_input_tokens or (data.lengths[0] if view == "encdec" and task.name != "local" else None)
    extract = registry.extractor(task, data.view(view).stop)
    view = None if task.name == "local" else view  # its prompt is the same in every view
    about = {"view": view, "shots": len(prompts[0].shots), "metric": data.metric, "cut": data.cut}
    return Asked(prompts, examples, data.metric, extract, 0, len(examples), limit, about)
