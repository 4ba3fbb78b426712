"""Models by reference: the embedded pair, the Hugging Face hub, package indexes, buckets and local files."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from spec_cascades.checkpoints import drafter, gguf, orbax, references, safetensors, t5x, vocabulary
from spec_cascades.checkpoints.families.base import Opened
from spec_cascades.checkpoints.placing import Placement, build, spread
from spec_cascades.checkpoints.references import EMBEDDED
from spec_cascades.checkpoints.safetensors import save
from spec_cascades.checkpoints.tree import CheckpointError, flatten
from spec_cascades.tokenizers import Tokenizer, from_gguf
from spec_cascades.typing import Params

__all__ = ["EMBEDDED", "CheckpointError", "Header", "Loaded", "load", "peek", "save"]


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


def load(ref: str, dtype: str = "bfloat16", place: Placement | None = None) -> Loaded:
    """The model that `ref` names, its weights in `dtype` ("float32" or "bfloat16").

    place: (path of a leaf, its shape) -> the sharding of the global array that it becomes, of which this
    process reads only what its own devices hold; None: whole, on one device.

    Raises ValueError for a reference of no known form, a dtype the family must not run in, a model that
    cannot be fetched, a sharding that does not divide its leaf, and (CheckpointError) tensors that are
    missing, unused or of the wrong shape.
    """
    path = _fetch(ref)
    if path is not None and (target := drafter.target_of(path)) is not None:
        return _drafter(path, target, ref, dtype, place)
    opened, config, tokenizer = _describe(path, ref)
    opened.family.check_dtype(dtype)
    return Loaded(opened.family.lm(config), opened.read(dtype, place), tokenizer, config, ref)


def peek(ref: str) -> Header:
    """What `ref` names, as far as headers tell; of a distilled drafter the layers that are its own are read.

    Raises ValueError as `load` does.
    """
    path = _fetch(ref)
    if path is not None and (target := drafter.target_of(path)) is not None:
        whole = peek(target)
        lm, shapes, config = drafter.describe(path, whole.config)
        held = safetensors.open_folder(path).bytes_by_dtype()
        return Header(lm, whole.tokenizer, config, _count(shapes), held, path)
    opened, config, tokenizer = _describe(path, ref)
    shapes = flatten(opened.family.shapes_of(config))
    return Header(opened.family.lm(config), tokenizer, config, _count(shapes), opened.stored, path)


def _count(shapes: Mapping[str, tuple[int, ...]]) -> int:
    return sum(math.prod(shape) for shape in shapes.values())


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


def _drafter(path: Path, target: str, ref: str, dtype: str, place: Placement | None) -> Loaded:
    """A distilled drafter, whose table, head and tokenizer are its target's: nothing else of that is read.

    The two are read whole, and what was made of them is then moved to its place leaf by leaf.
    """
    opened, config, tokenizer = _describe(_fetch(target), target)
    opened.family.check_dtype(dtype)
    shared = {name: leaf for name, leaf in opened.leaves.items() if drafter.is_shared(name)}
    lm, params, small = drafter.read(path, build(shared, dtype), config, dtype)
    return Loaded(lm, params if place is None else spread(params, place), tokenizer, small, ref)
