"""Models by reference: the embedded pair, the Hugging Face hub, package indexes, buckets and local files."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from spec_cascades.checkpoints import drafter, gguf, orbax, references, safetensors, t5x, vocabulary
from spec_cascades.checkpoints.families.base import Family, Opened
from spec_cascades.checkpoints.leaves import Leaf
from spec_cascades.checkpoints.placing import Hold, Placement, array, build, served
from spec_cascades.checkpoints.references import EMBEDDED
from spec_cascades.checkpoints.safetensors import save
from spec_cascades.checkpoints.tree import CheckpointError
from spec_cascades.tokenizers import Tokenizer, from_gguf
from spec_cascades.typing import Params

__all__ = ["EMBEDDED", "CheckpointError", "Header", "Loaded", "Unread", "load", "peek", "save", "unread"]


class Loaded(NamedTuple):
    """A model ready to decode; `tokenizer` is None where none lies beside or in the weights."""

    lm: Any
    params: Params
    tokenizer: Tokenizer | None
    config: Any
    ref: str


class Header(NamedTuple):
    """A model without its weights. parameters: how many; stored: dtype in the file -> bytes of it.

    path: where it lies; None for what is read in place from a bucket.
    """

    lm: Any
    tokenizer: Tokenizer | None
    config: Any
    parameters: int
    stored: Mapping[str, int]
    path: Path | None


class Unread(NamedTuple):
    """A model of which headers are read; stored, path: as in `Header`; leaves: its weights by path."""

    lm: Any
    tokenizer: Tokenizer | None
    config: Any
    leaves: Mapping[str, Leaf]
    stored: Mapping[str, int]
    path: Path | None
    family: Family

    def read(
        self,
        dtype: str,
        place: Placement | None = None,
        serve: Callable[[Params], Params] | None = None,
        hold: Hold = array,
    ) -> Params:
        """The weights in `dtype`, each read to where it lies at the end and as it is held there.

        serve: the tree as decoding wants it, of the tree as the checkpoint has it (`lm.serving`); None for
        the checkpoint's; place, hold: see `placing.build`, of leaves as served. Raises ValueError as `load`.
        """
        self.family.check_dtype(dtype)
        leaves = self.leaves if serve is None else served(self.leaves, serve)
        return build(leaves, dtype, place, hold)


def load(ref: str, dtype: str = "bfloat16", place: Placement | None = None) -> Loaded:
    """The model that `ref` names, its weights in `dtype` ("float32" or "bfloat16").

    place: (path of a leaf, its shape) -> the sharding of the global array that it becomes, of which this
    process reads only what its own devices hold; None: whole, on one device.

    Raises ValueError for a reference of no known form, a dtype the family must not run in, a model that
    cannot be fetched, a sharding that does not divide its leaf, and (CheckpointError) tensors that are
    missing, unused or of the wrong shape.
    """
    found = unread(ref)
    return Loaded(found.lm, found.read(dtype, place), found.tokenizer, found.config, ref)


def peek(ref: str) -> Header:
    """What `ref` names, as far as headers tell. Raises ValueError as `load` does."""
    found = unread(ref)
    count = sum(math.prod(leaf.shape) for leaf in found.leaves.values())
    return Header(found.lm, found.tokenizer, found.config, count, found.stored, found.path)


def unread(ref: str) -> Unread:
    """What `ref` names, to be read once it is known how. Raises ValueError as `load` does."""
    path = _fetch(ref)
    if path is not None and (target := drafter.target_of(path)) is not None:
        # Its table, head and tokenizer are the target's, of which nothing else is read.
        opened, config, tokenizer = _describe(_fetch(target), target)
        lm, leaves, small, held = drafter.open_model(path, opened.leaves, config)
        return Unread(lm, tokenizer, small, leaves, held, path, opened.family)
    opened, config, tokenizer = _describe(path, ref)
    lm = opened.family.lm(config)
    return Unread(lm, tokenizer, config, opened.leaves, opened.stored, path, opened.family)


def _describe(path: Path | None, ref: str) -> tuple[Opened, Any, Tokenizer | None]:
    """A checkpoint that is whole in itself, its weights unread; its Config with the ids in use; tokenizer."""
    if path is not None and path.suffix == gguf.SUFFIX:
        opened, metadata = gguf.open_model(path)
        tokenizer = from_gguf(metadata)
        return opened, vocabulary.fit(opened.family, opened.config, tokenizer, str(path)), tokenizer
    opened = _open(path, ref)
    return opened, *vocabulary.read(opened.family, opened.config, path)


def _fetch(ref: str) -> Path | None:
    """The local path of a reference; None for a T5X folder in a bucket, which is read in place."""
    if ref.startswith("gs://"):
        return references.mirrored(ref, t5x.bucket(ref).folder)
    return references.local(ref)


def _open(path: Path | None, ref: str) -> Opened:
    if path is None:
        return _bucket(ref)
    if (path / safetensors.CONFIG).is_file():
        return safetensors.open_model(path)
    if (folder := orbax.find(path)) is not None:
        return orbax.open_model(folder)
    if path.is_file() or (path / t5x.CHECKPOINT).is_file():
        return t5x.open_model(t5x.local(path))
    steps = sorted(p.name for p in path.glob("checkpoint_*"))
    inside = f"; did you mean one of {steps}?" if steps else ""
    raise CheckpointError(
        f"{path} holds no {safetensors.CONFIG}, no Orbax tree and no T5X file {t5x.CHECKPOINT!r}{inside}"
    )


def _bucket(ref: str) -> Opened:
    try:
        return t5x.open_model(t5x.bucket(ref))
    except t5x.Unreachable as error:
        raise ValueError(references.unreachable(ref, error)) from error
