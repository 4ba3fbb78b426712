"""Prompts to answers, batch by batch, with the figures of the run."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any, NamedTuple

from spec_cascades.config import Generate
from spec_cascades.metrics import rates
from spec_cascades.sweep import Runner, Watch, with_alpha

UNFINISHED = "\ufffd"
"""What a decoder puts for bytes that are no whole character (yet)."""


class Batch(NamedTuple):
    """One row a prompt, ready for JSON; seconds without compilation."""

    rows: list[dict[str, Any]]
    seconds: float
    compile_seconds: float


def load(config: Generate) -> Runner:
    """The engine that the configuration names (imports jax)."""
    from spec_cascades.engine import Engine

    return Engine(**asdict(config.models))


def run(config: Generate, prompts: list[str], engine: Runner, watch: Watch | None = None) -> Iterator[Batch]:
    """Answers in the order of the prompts, `config.decoding.batch_size` at a time; prompt i has seed + i."""
    decoding = with_alpha(config.decoding)
    for first in range(0, len(prompts), decoding.batch_size):
        some = prompts[first : first + decoding.batch_size]
        texts = [config.prefix + prompt for prompt in some]
        batch = engine.run(texts, replace(decoding, seed=decoding.seed + first), watch)
        rows = [{"input": p, **a._asdict()} for p, a in zip(some, batch.answers, strict=True)]
        yield Batch(rows, batch.seconds, batch.compile_seconds)


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

    def add(self, batch: Batch) -> None:
        """Counts one batch in."""
        for r in batch.rows:
            calls = (r["target_calls"], r["drafter_calls"])
            self.counts.append(rates.Counts(len(r["tokens"]), *calls, r["judged"], r["accepted"]))
        self.seconds += batch.seconds
        self.compile_seconds += batch.compile_seconds

    def line(self) -> str:
        """'3 answers, 41 tokens in 0.12 s (compiling 4.1 s), 3.20 tokens per target call, ...'."""
        total = rates.total(self.counts)
        figures = rates.rates(total)
        parts = [
            f"{len(self.counts)} answers",
            f"{total.tokens} tokens in {self.seconds:.2f} s (compiling {self.compile_seconds:.1f} s)",
        ]
        if figures.tokens_per_target_call is not None:
            parts.append(f"{figures.tokens_per_target_call:.2f} tokens per target call")
        if figures.rejection_rate is not None:
            parts.append(f"{100 * figures.rejection_rate:.0f} % of judged drafts rejected")
        return ", ".join(parts)
