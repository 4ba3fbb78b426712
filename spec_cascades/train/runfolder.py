"""A run's folder: the settings it was started with, and its log. Both survive a kill and a resume."""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self

from spec_cascades.config import ConfigError, load

CONFIG = "config.yaml"
FREE = ("out", "eval_every", "save_every")
"""What a resumed run may change: the folder's name and the pace of reports and checkpoints."""


def claim(settings: Any) -> None:
    """Writes the settings (`Train`, `Distill`) to out/config.yaml, which must be those of its checkpoints.

    Raises ConfigError that names every differing key. Checkpoints without a config.yaml are accepted.
    """
    import yaml

    out = Path(settings.out)
    if has_checkpoint(out) and (out / CONFIG).is_file():
        changed = _differences(load(type(settings), out / CONFIG), settings)
        if changed:
            raise ConfigError(
                f"the checkpoints in {out} were made with other settings: {'; '.join(changed)}. "
                "Give those settings again to go on with that run, or another `out` to start a new one"
            )
    out.mkdir(parents=True, exist_ok=True)
    scratch = out / f"{CONFIG}.partial"
    scratch.write_text(yaml.safe_dump(asdict(settings), sort_keys=False), encoding="utf-8")
    scratch.replace(out / CONFIG)


def has_checkpoint(out: Path) -> bool:
    """Whether a checkpoint was finished in the folder of a run."""
    return any(p.name.isdecimal() for p in (out / "checkpoints").glob("*"))


def _differences(old: Any, new: Any) -> list[str]:
    """'dropout was 0.1 and is 0.2' for each key that a resume must not change."""
    free = {key: getattr(new, key) for key in FREE}
    before, after = dict(_flat(asdict(replace(old, **free)))), dict(_flat(asdict(new)))
    keys = [*after, *(key for key in before if key not in after)]
    return [
        f"{key} was {before.get(key)!r} and is {after.get(key)!r}"
        for key in keys
        if before.get(key) != after.get(key)
    ]


def _flat(tree: dict[str, Any], where: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{where}{key}.")
        else:
            yield where + key, value


class Log:
    """Appends one JSON line per report to a file and shows progress with loss and time left.

    Rows of steps after `start`, which a killed run reported and a resumed one will report again, are dropped.
    """

    def __init__(self, path: Path, steps: int, start: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self.path, self.began, self.start, self.steps = path, time.monotonic(), start, steps
        self.before = _drop_after(path, start)
        columns = (
            TextColumn("step {task.completed}/{task.total}"),
            BarColumn(),
            TextColumn("{task.description}"),
        )
        console = Console(stderr=True)
        self.bar = Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal)
        self.task = self.bar.add_task("", total=steps, completed=start)
        self.plain = None if console.is_terminal else console

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def advance(self, step: int, loss: float) -> None:
        """Moves the bar."""
        self.bar.update(self.task, completed=step, description=f"loss {loss:.3f}")

    def report(self, step: int, values: dict[str, float]) -> None:
        """Writes a row; its seconds count what runs before this one took as well."""
        seconds = time.monotonic() - self.began
        row = {"step": step, "seconds": round(self.before + seconds, 1)}
        row |= {key: round(value, 5) for key, value in values.items()}
        with self.path.open("a", encoding="utf-8") as f:
            f.write(json.dumps(row) + "\n")
        if self.plain is not None:
            left = seconds / max(step - self.start, 1) * (self.steps - step)
            self.plain.print(
                json.dumps(row), f"about {left / 60:.0f} min left", soft_wrap=True, highlight=False
            )


def _drop_after(path: Path, start: int) -> float:
    """Leaves the rows up to step `start` in a log and returns the seconds of the last of them."""
    rows = list(_rows(path)) if path.exists() else []
    kept = [row for row in rows if row["step"] <= start]
    if path.exists():
        scratch = path.with_suffix(".partial")
        scratch.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
        scratch.replace(path)
    return kept[-1]["seconds"] if kept else 0.0


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """The whole rows of a log: a kill may have cut the last one."""
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            continue
