"""Tasks for people: a table of all, and one with its prompts on an example."""

from typing import Any

from spec_cascades.checks import choose
from spec_cascades.metrics.names import TITLES
from spec_cascades.tasks import registry
from spec_cascades.tasks.base import Data, Item
from spec_cascades.tasks.settings import VIEWS, Task

ABOUT = {
    "encdec": "encoder-decoder (task.view=encdec)",
    "few_shot": "decoder-only (task.view=few_shot)",
    "chat": "chat (task.view=chat; models.chat=true puts it in the model's own template)",
}


def rows() -> list[dict[str, str]]:
    """A row of plain text a task."""
    return [
        {
            "task": data.name,
            "kind": data.kind,
            "source": data.tfds or "file",
            "split": data.split,
            "in/out": f"{data.lengths[0]}/{data.lengths[1]}",
            "shots": str(data.shots),
            "new tokens": str(data.max_new_tokens),
            "metric": TITLES[data.metric],
        }
        for data in registry.TASKS.values()
    ]


def table() -> None:
    """Prints the table."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    found = rows()
    console = Console()
    if not console.is_terminal:
        console.width = 140  # a pipe has no width
    shown = Table(*found[0], box=box.SIMPLE_HEAD)
    for row in found:
        shown.add_row(*row.values())
    console.print(shown, markup=False)
    console.print(
        "local: a file of your own (task.path, task.metric, task.input, task.target, task.template)"
    )


def markdown() -> str:
    """The table of docs/tasks.md."""
    head = ("task", "source", "licence", "prompt (few_shot)", "in/out (encdec), out", "stops at", "metric")
    lines = [[*head, "too long a prompt loses", "the paper"], ["---"] * (len(head) + 2)]
    for data in registry.TASKS.values():
        view, shots = data.few_shot, f", {data.shots} solved before it" if data.shots else ""
        lengths = f"{data.lengths[0]}/{data.lengths[1]}, {data.max_new_tokens}"
        stop = " ".join(_code(repr(end)) for end in view.stop) or "-"
        between = "{context}" if registry.made_up(data).context else ""
        prompt = _code(repr(view.intro + view.head + between + view.tail)) + shots
        source = f"`{data.tfds}`; {data.layout}" if data.tfds else data.layout
        row = (f"`{data.name}`", source, data.licence, prompt, lengths, stop, TITLES[data.metric])
        lines.append([*row, data.cut, data.paper])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _code(text: str) -> str:
    return f"```` {text} ````" if "`" in text else f"`{text}`"


def described(name: str, path: str | None = None, shots_path: str | None = None) -> str:
    """Facts and all views of a task on the first example of a file, or on a made-up one.

    Solved examples are shown where a training split is given (or the file holds it). Raises ConfigError for
    an unknown name, and for files as the task does.
    """
    choose("NAME", name, tuple(registry.TASKS))
    data = registry.get(name)
    found = registry.items(data, path, None) if path else [registry.made_up(data)]
    where = f"the first example of {path}" if path else "a made-up example (--path FILE shows one of a file)"
    lines = [f"{key + ':':<16}{value}" for key, value in _facts(data).items()]
    lines += ["", f"Shown on {where}."]
    for view in VIEWS:
        shots = _shots(data, found, path, shots_path) if view == "few_shot" else []
        lines += ["", *_view(data, view, found[0], shots)]
    return "\n".join(lines)


def _shots(data: Data, found: list[Item], path: str | None, shots_path: str | None) -> list[Item]:
    if not data.shots or not (shots_path or (path and data.order)):
        return []
    return registry.shots(data, Task(name=data.name, path=path, shots_path=shots_path), found, data.shots)


def _facts(data: Data) -> dict[str, Any]:
    return {
        "task": f"{data.name} ({data.kind})",
        "source": f"TFDS {data.tfds}; or task.path: {data.layout}"
        if data.tfds
        else f"task.path: {data.layout}",
        "licence": data.licence,
        "split": f"{data.split}; solved examples from {data.train or 'nowhere'}",
        "shots": data.shots,
        "lengths": f"encdec {data.lengths[0]} in, {data.lengths[1]} out; others {data.max_new_tokens} out",
        "metric": TITLES[data.metric],
        "too long": f"loses {data.cut}" if not data.cut.startswith("nothing") else data.cut,
        "the paper": data.paper,
    }


def _view(data: Data, name: str, item: Item, shots: list[Item]) -> list[str]:
    view = data.view(name)
    text = view.parts(item, tuple(view.shot(s) for s in shots)).text
    stop = ", ".join(map(repr, view.stop)) or "only the model's end of text"
    scored = data.extract(item.target)
    note = [f"({data.shots} solved examples come before it: --shots-path FILE shows them)"]
    return [
        f"== {ABOUT[name]}",
        *(note if name == "few_shot" and data.shots and not shots else []),
        text,
        f"-- stops at: {stop}",
        f"-- a right answer: {scored!r}" if item.reference is not None else "-- nothing to score",
    ]
