"""Models by reference: the embedded pair, the Hugging Face hub, package indexes, buckets and local files."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from spec_cascades.checkpoints import drafter, gguf, orbax, references, safetensors, t5x, vocabulary
from spec_cascades.checkpoints.families.base import Opened
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


def load(ref: str, dtype: str = "bfloat16") -> Loaded:
    """The model that `ref` names, its weights in `dtype` ("float32" or "bfloat16").

    Raises ValueError for a reference of no known form, a dtype the family must not run in, a model that
    cannot be fetched, and (CheckpointError) tensors that are missing, unused or of the wrong shape.
    """
    path = _fetch(ref)
    if path is not None and path.suffix == gguf.SUFFIX:
        return _gguf(path, ref, dtype)
    if path is not None and (target := drafter.target_of(path)) is not None:
        return _drafter(path, target, ref, dtype)
    opened = _open(path, ref)
    opened.family.check_dtype(dtype)
    config, tokenizer = vocabulary.read(opened.family, opened.config, path)
    return Loaded(opened.family.lm(config), opened.read(dtype), tokenizer, config, ref)


def peek(ref: str) -> Header:
    """What `ref` names, as far as headers tell; GGUF files and distilled drafters are read all the same.

    Raises ValueError as `load` does.
    """
    path = _fetch(ref)
    if path is not None and (path.suffix == gguf.SUFFIX or drafter.target_of(path) is not None):
        whole = load(ref)
        parameters = sum(leaf.size for leaf in flatten(whole.params).values())
        held = (
            _gguf_stored(path)
            if path.suffix == gguf.SUFFIX
            else safetensors.open_folder(path).bytes_by_dtype()
        )
        return Header(whole.lm, whole.tokenizer, whole.config, parameters, held, path)
    opened = _open(path, ref)
    config, tokenizer = vocabulary.read(opened.family, opened.config, path)
    shapes = flatten(opened.family.shapes_of(config)).values()
    parameters = sum(math.prod(shape) for shape in shapes)
    return Header(opened.family.lm(config), tokenizer, config, parameters, opened.stored, path)


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


def _drafter(path: Path, target: str, ref: str, dtype: str) -> Loaded:
    """A distilled drafter, whose table, head and tokenizer are its target's."""
    whole = load(target, dtype)
    lm, params, config = drafter.read(path, whole.params, whole.config, dtype)
    return Loaded(lm, params, whole.tokenizer, config, ref)


def _gguf(path: Path, ref: str, dtype: str) -> Loaded:
    family, config, params, metadata = gguf.read(path, dtype)
    tokenizer = from_gguf(metadata)
    config = vocabulary.fit(family, config, tokenizer, str(path))
    return Loaded(family.lm(config), params, tokenizer, config, ref)


def _gguf_stored(path: Path) -> dict[str, int]:
    from gguf import GGUFReader

    held: dict[str, int] = {}
    for tensor in GGUFReader(path).tensors:
        kind = tensor.tensor_type.name
        held[kind] = held.get(kind, 0) + int(tensor.n_bytes)
    return held
