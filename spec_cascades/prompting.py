"""Prompts to answers, batch by batch, with the figures of the run."""

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

from spec_cascades.config import Decoding, Generate, build
from spec_cascades.metrics import rates
from spec_cascades.sweep import Runner, Watch, with_alpha
from spec_cascades.tasks.examples import Prompt

UNFINISHED = "\ufffd"
"""What a decoder puts for bytes that are no whole character (yet)."""


class Batch(NamedTuple):
    """One row an answer, ready for JSON; seconds without compilation, which is None where it is in them."""

    rows: list[dict[str, Any]]
    seconds: float
    compile_seconds: float | None


class Asked(NamedTuple):
    """One answer that is wanted: row i of the output."""

    prompt: str
    decoding: Decoding


def load(config: Generate) -> Runner:
    """The engine that the configuration names (imports jax)."""
    from spec_cascades.engine import engine_of

    return engine_of(config.models)


def ask(config: Generate, prompts: Sequence[str | Prompt]) -> list[Asked]:
    """Every prompt as often as its `samples` says, with its own changes to the decoding.

    Row i has the configuration's seed + i, unless the prompt names a seed: then its sample j has that + j.
    Raises ConfigError for an unknown key or a value out of range.
    """
    base, asked = asdict(config.decoding), []
    for number, prompt in enumerate(prompts):
        text, changes = (prompt, {}) if isinstance(prompt, str) else prompt
        decoding = (
            build(Decoding, base | changes, f"prompt {number}: decoding.") if changes else config.decoding
        )
        decoding = with_alpha(decoding)
        for sample in range(decoding.samples):
            seed = decoding.seed + (sample if "seed" in changes else len(asked))
            asked.append(Asked(text, replace(decoding, seed=seed)))
    return asked


def run(
    config: Generate, prompts: Sequence[str | Prompt], engine: Runner, watch: Watch | None = None
) -> Iterator[Batch]:
    """Answers in the order of the prompts, `config.decoding.batch_size` at a time.

    With config.refill a row that is done makes room for the next prompt, and answers come in small groups,
    still in order.
    """
    asked, size = ask(config, prompts), config.decoding.batch_size
    whole = config.decoding.method in ("sequence", "hybrid")
    if config.refill and 1 < size < len(asked) and not whole and watch is None:
        yield from _refilled(config, asked, engine)
        return
    for first in range(0, len(asked), size):
        some = asked[first : first + size]
        texts = [config.prefix + a.prompt for a in some]
        batch = engine.run(texts, [a.decoding for a in some], watch)
        rows = [_row(a, answer) for a, answer in zip(some, batch.answers, strict=True)]
        yield Batch(rows, batch.seconds, batch.compile_seconds)


def _refilled(config: Generate, asked: list[Asked], engine: Runner) -> Iterator[Batch]:
    """Answers as soon as all before them are there."""
    texts, slots = [config.prefix + a.prompt for a in asked], config.decoding.batch_size
    held: dict[int, dict[str, Any]] = {}
    shown, began = 0, time.perf_counter()
    for i, answer in engine.serve(texts, [a.decoding for a in asked], slots):
        held[i] = _row(asked[i], answer)
        ready = list(itertools.takewhile(held.__contains__, itertools.count(shown)))
        if ready:
            now = time.perf_counter()
            yield Batch([held.pop(j) for j in ready], now - began, None)
            shown, began = shown + len(ready), time.perf_counter()


def _row(asked: Asked, answer: Any) -> dict[str, Any]:
    return {"input": asked.prompt, "seed": asked.decoding.seed, **answer._asdict()}


class Stream:
    """One growing text, written as far as it is settled: a character that is not whole yet waits."""

    def __init__(self, write: Callable[[str], Any]) -> None:
        self._write, self._shown = write, ""

    def grow(self, text: str) -> None:
        """Shows what is new in the text so far."""
        whole = text.rstrip(UNFINISHED)
        if whole.startswith(self._shown):
            self._write(whole[len(self._shown) :])
            self._shown = whole

    def end(self, text: str) -> None:
        """Shows the rest and a line's end; all of it again if decoding changed what was shown."""
        kept = text.startswith(self._shown)
        self._write((text[len(self._shown) :] if kept else "\n" + text) + "\n")
        self._shown = ""


class Totals:
    """Sums over batches, for the line of figures at the end."""

    def __init__(self) -> None:
        self.counts: list[rates.Counts] = []
        self.seconds = self.compile_seconds = 0.0
        self.apart = True

    def add(self, batch: Batch) -> None:
        """Counts one batch in."""
        for r in batch.rows:
            calls = (r["target_calls"], r["drafter_calls"])
            self.counts.append(rates.Counts(len(r["tokens"]), *calls, r["judged"], r["accepted"]))
        self.seconds += batch.seconds
        self.compile_seconds += batch.compile_seconds or 0.0
        self.apart = self.apart and batch.compile_seconds is not None

    def line(self) -> str:
        """'3 answers, 41 tokens in 0.12 s (compiling 4.1 s), 3.20 tokens per target call, ...'."""
        total = rates.total(self.counts)
        figures = rates.rates(total)
        compiling = f"compiling {self.compile_seconds:.1f} s" if self.apart else "compilation included"
        parts = [
            f"{len(self.counts)} answers",
            f"{total.tokens} tokens in {self.seconds:.2f} s ({compiling})",
        ]
        if figures.tokens_per_target_call is not None:
            parts.append(f"{figures.tokens_per_target_call:.2f} tokens per target call")
        if figures.rejection_rate is not None:
            parts.append(f"{100 * figures.rejection_rate:.0f} % of judged drafts rejected")
        return ", ".join(parts)
