"""What processes tell each other: bytes, and what went wrong in one of them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from spec_cascades.checks import ConfigError

CHUNK = 1 << 20
"""Bytes of each process that travel at a time, so that memory does not grow with what is sent."""


class Lost(RuntimeError):
    """Another process is gone: what is done is on disk, and all must be started again."""


def place() -> tuple[int, int]:
    """(this process, how many there are)."""
    import jax

    return jax.process_index(), jax.process_count()


def lead() -> bool:
    """Whether this is process 0, which alone writes, prints, and decides by what files say."""
    return place()[0] == 0


def gather(data: bytes) -> list[bytes]:
    """The bytes of every process, in order; all wait here for the last one. Raises Lost."""
    import numpy as np

    _, n = place()
    sizes = [int(q) * CHUNK + int(r) for q, r in _all(np.array(divmod(len(data), CHUNK), np.int32))]
    found = [bytearray() for _ in range(n)]
    for start in range(0, max(sizes), CHUNK):
        piece = np.zeros(CHUNK, np.uint8)
        own = np.frombuffer(data[start : start + CHUNK], np.uint8)
        piece[: len(own)] = own
        for whole, size, row in zip(found, sizes, _all(piece), strict=True):
            whole += row[: max(0, min(CHUNK, size - start))].tobytes()
    return [bytes(whole) for whole in found]


def share(data: bytes) -> bytes:
    """Process 0's bytes, in all of them."""
    return gather(data if lead() else b"")[0]


@contextmanager
def together() -> Iterator[None]:
    """What fails in one process fails in all, once they have come this far: none waits for one that is gone.

    The failing one raises its own error, the others a ConfigError that names it.
    """
    failed: Exception | None = None
    try:
        yield
    except Lost:
        raise
    except Exception as error:
        failed, (i, n) = error, place()
        print(f"spec-cascades: process {i} of {n}: {_line(error)}; waiting for the others", file=sys.stderr)
    notes = gather(_line(failed).encode() if failed else b"")
    if failed:
        raise failed
    for i, note in enumerate(notes):
        if note:
            raise ConfigError(f"process {i} of {len(notes)}: {note.decode()}")


def _all(array):
    from jax.experimental import multihost_utils

    try:
        return multihost_utils.process_allgather(array)
    except Exception as error:  # what a broken connection raises differs from backend to backend
        i, n = place()
        raise Lost(
            f"process {i} of {n}: another one is gone ({_line(error)}); what is done is kept: start all again"
        ) from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
