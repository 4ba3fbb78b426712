"""Progress on stderr: a bar with the time left on a terminal, else a line now and then."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

EVERY = 30.0
"""Seconds between the lines of a log that is no terminal."""


@contextmanager
def progress(label: str, total: int, done: int = 0) -> Iterator[Callable[[int], None]]:
    """Yields `advance(n)`; `total` and `done` count the same units."""
    if sys.stderr.isatty():
        with _bar(label, total, done) as advance:
            yield advance
        return
    start = last = time.monotonic()
    count = done

    def advance(n: int) -> None:
        nonlocal count, last
        count, now = count + n, time.monotonic()
        if now - last >= EVERY:
            last, left = now, (now - start) / (count - done) * (total - count)
            print(f"{label}: {count}/{total}, {_clock(left)} left", file=sys.stderr, flush=True)

    yield advance


@contextmanager
def _bar(label: str, total: int, done: int) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(label, total=total, completed=done)
        yield lambda n: bar.advance(task, n)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}"
