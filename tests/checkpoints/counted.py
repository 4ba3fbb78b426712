"""A spy on safetensors: how many bytes of tensors were read, in how many pieces."""

from contextlib import contextmanager
from dataclasses import dataclass

from spec_cascades.checkpoints import safetensors


@dataclass
class Seen:
    bytes: int = 0
    largest: int = 0


class Slice:
    def __init__(self, inner, seen):
        self.inner, self.seen = inner, seen
        self.get_shape, self.get_dtype = inner.get_shape, inner.get_dtype

    def __getitem__(self, index):
        part = self.inner[index]
        self.seen.bytes += part.nbytes
        self.seen.largest = max(self.seen.largest, part.nbytes)
        return part


class File:
    """Has no `get_tensor`: a tensor is only read in parts."""

    def __init__(self, inner, seen):
        self.inner, self.seen = inner, seen
        self.keys = inner.keys

    def __enter__(self):
        self.inner.__enter__()
        return self

    def __exit__(self, *error):
        return self.inner.__exit__(*error)

    def get_slice(self, name):
        return Slice(self.inner.get_slice(name), self.seen)


@contextmanager
def counting():
    """What `checkpoints.safetensors` reads meanwhile."""
    seen, own = Seen(), safetensors.safe_open
    safetensors.safe_open = lambda *args: File(own(*args), seen)
    try:
        yield seen
    finally:
        safetensors.safe_open = own
