"""Files of records to parts that are shown on their own, and to settings in which tasks may be compared."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from spec_cascades import runlog
from spec_cascades.checks import ConfigError
from spec_cascades.config import told
from spec_cascades.report import groups
from spec_cascades.report.groups import Record
from spec_cascades.tasks.settings import Task

DEFAULTS = {f.name: f.default for f in fields(Task)}
AMOUNT = ("limit", "shard")
"""Keys of a task that say how much of it is asked, not what."""


class Part(NamedTuple):
    """One file's records of one task, by one pair of models on one device.

    title: unique in a report. task: what is asked, however much of it; the same text for the same task.
    """

    title: str
    task: str
    models: str
    device: str
    file: str
    records: list[Record]


class Setting(NamedTuple):
    """Groups of several tasks with the same models, device, temperature and batch size: title -> records."""

    title: str
    tasks: dict[str, list[Record]]


def read(paths: Sequence[Path]) -> list[Record]:
    """The records of run folders or files, each with its `source`: file and line.

    Raises ConfigError for what holds none.
    """
    found = []
    for path in paths:
        file = path / runlog.RECORDS if path.is_dir() else path
        for n, record in enumerate(runlog.read_records(path), 1):
            found.append(record | {"source": {"file": str(file), "line": n}})
    return found


def source(record: Record) -> str:
    """'FILE:LINE point', as every number names its record."""
    where = record.get("source")
    return f"{where['file']}:{where['line']} {record['name']}" if where else record["name"]


def parts(records: list[Record]) -> list[Part]:
    """Records divided by file, task, models and device, in the order of first appearance."""
    divided: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        key = (_file(record), _task(record), _models(record), _device(record))
        divided.setdefault(key, []).append(record)
    found = [
        Part(_label(own[0]), task, models, device, file, own)
        for (file, task, models, device), own in divided.items()
    ]
    return [part._replace(title=title) for part, title in zip(found, _titles(found), strict=True)]


def settings(found: list[Part]) -> list[Setting]:
    """The groups that may be compared over tasks. Raises ConfigError where one task would count twice."""
    seen: dict[tuple[str, str, str, str], Part] = {}
    lanes: dict[tuple[str, str, str], dict[str, list[Record]]] = {}
    for part in found:
        for title, group in groups.split(part.records).items():
            key = (part.models, part.device, title)
            if (other := seen.setdefault((*key, part.task), part)) is not part:
                raise ConfigError(
                    f"{other.file} and {part.file} both hold {title} of {_label(group[0])} by the same "
                    "models; times of two runs are not measured in turns: report them one at a time"
                )
            lanes.setdefault(key, {})[part.title] = group
    several = len({key[:2] for key in lanes}) > 1
    return [
        Setting(f"{title}, {models} on {device}" if several else title, tasks)
        for (models, device, title), tasks in lanes.items()
    ]


def _file(record: Record) -> str:
    return record.get("source", {}).get("file", "")


def _changed(record: Record) -> dict[str, Any]:
    """The keys of a record's task that are not the defaults; older records have fewer keys."""
    return {k: v for k, v in record.get("task", {}).items() if v != DEFAULTS.get(k)}


def _task(record: Record) -> str:
    """What is asked; a data set with a name of its own is one task wherever its file lies."""
    about = {k: v for k, v in _changed(record).items() if k not in (*AMOUNT, "shots_path")}
    if about.get("name") not in (None, "local"):
        about.pop("path", None)
    return json.dumps(about, sort_keys=True)


def _models(record: Record) -> str:
    m = record.get("models")
    return f"{m['drafter']} -> {m['target']}, {told(m)}" if m else "models not recorded"


def _device(record: Record) -> str:
    v = record.get("versions")
    return "device not recorded" if not v else " ".join(dict.fromkeys((v["backend"], v["device"])))


def _label(record: Record) -> str:
    """'en-de-everyday', 'xsum, split test', 'news, join 4, limit 120'."""
    task = _changed(record)
    name, path = task.pop("name", None), task.pop("path", None)
    head = Path(path.removeprefix("embedded:")).stem if path and name in (None, "local") else name
    told = ("join", "view", "shots", "split", *AMOUNT, "max_input_tokens")
    return ", ".join([head or "task not recorded", *(f"{key} {task[key]}" for key in told if key in task)])


def _titles(found: list[Part]) -> list[str]:
    """Labels, with as much more of each part as tells all of them apart."""
    titles = [part.title for part in found]
    for more in ([p.models for p in found], [p.device for p in found], [p.file for p in found]):
        if len(set(titles)) == len(titles):
            break
        if len(set(more)) > 1:
            titles = [f"{title} ({other})" for title, other in zip(titles, more, strict=True)]
    again = Counter(titles)
    return [title if again[title] == 1 else f"{title}, {i}" for i, title in enumerate(titles, 1)]
