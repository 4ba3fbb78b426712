"""Profiles of timed runs: one more run of a batch under the profiler, and where its time went."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from spec_cascades.config import Decoding
from spec_cascades.hosts import gathering
from spec_cascades.sweep import Runner, Watch


class Profiled:
    """A runner that repeats the first batch of each decoding under the profiler, in a folder of its own.

    What it hands on is of the run before, which is not traced and has compiled: so a trace holds no
    compiling, and records hold no cost of tracing. folders: what TensorBoard and Perfetto read, by a name of
    the decoding; of several processes each has one of its own around them, since they may share a disk.
    """

    def __init__(self, engine: Runner, folder: Path) -> None:
        self._engine, self._folder = engine, folder
        self._seen: set[Any] = set()
        self.folders: dict[str, Path] = {}

    def run(
        self, texts: list[str], decoding: Decoding | Sequence[Decoding], watch: Watch | None = None
    ) -> Any:
        batch = self._engine.run(texts, decoding, watch)
        first = decoding if isinstance(decoding, Decoding) else decoding[0]
        kind = str(replace(first, seed=0))
        if kind not in self._seen:
            self._seen.add(kind)
            self._trace(texts, decoding, first)
        return batch

    def _trace(self, texts: list[str], decoding: Decoding | Sequence[Decoding], first: Decoding) -> None:
        import jax

        name = f"{len(self.folders)}-{first.method}" + f"-{first.rule}" * first.ruled
        i, n = gathering.place()
        own = self._folder / f"process-{i}-of-{n}" if n > 1 else self._folder
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0  # calls of Python functions would fill the trace, and slow the run
        with jax.profiler.trace(str(own / name), profiler_options=options):
            self._engine.run(texts, decoding)
        self.folders[name] = own / name

    def serve(
        self, texts: list[str], decoding: Decoding | Sequence[Decoding], slots: int
    ) -> Iterator[tuple[int, Any]]:
        return self._engine.serve(texts, decoding, slots)

    def first_block(self, texts: list[str], decoding: Decoding | Sequence[Decoding]) -> float:
        return self._engine.first_block(texts, decoding)

    def encode(self, text: str) -> list[int]:
        return self._engine.encode(text)

    def model(self, role: str) -> Any:
        return self._engine.model(role)

    def flops_per_token(self) -> dict[str, float]:
        return self._engine.flops_per_token()
