"""The record a family fills in so that every format can read and write it."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax.numpy as jnp
import numpy as np

from spec_cascades.checkpoints.leaves import Index, Leaf
from spec_cascades.checkpoints.placing import Placement, build
from spec_cascades.checkpoints.tree import Shapes
from spec_cascades.typing import Params


class Weights(Protocol):
    """Named tensors of a checkpoint, of which nothing is read until asked for."""

    shapes: Shapes

    def same(self, a: str, b: str) -> bool: ...


class Place(NamedTuple):
    """Where a Hugging Face tensor goes in our tree: `leaf[slot] = tensor.reshape(split).transpose(axes)`.

    split: the tensor's axes with the heads told apart, joined: as the file has them (both None where that is
    the same); axes: None for no transposition; slot: which part of a leaf that holds several tensors.
    """

    path: str
    axes: tuple[int, ...] | None = None
    split: tuple[int, ...] | None = None
    joined: tuple[int, ...] | None = None
    slot: tuple[int, ...] = ()

    def shape(self, leaf: tuple[int, ...]) -> tuple[int, ...]:
        """The tensor's shape in the file, given the leaf's."""
        if self.joined is not None:
            return self.joined
        part = leaf[len(self.slot) :]
        return part if self.axes is None else tuple(part[self.axes.index(i)] for i in range(len(part)))

    def view(self, out: np.ndarray, index: Index) -> tuple[np.ndarray, Index] | None:
        """What this tensor fills of `out`, a part of our leaf, and which part of the tensor it is.

        The view and its index have the tensor's axes, heads apart; None where the part is of other slots.
        """
        slots, rest = index[: len(self.slot)], index[len(self.slot) :]
        if not all(own.start <= i < own.stop for i, own in zip(self.slot, slots, strict=True)):
            return None
        view = out[tuple(i - own.start for i, own in zip(self.slot, slots, strict=True))]
        if self.axes is None:
            return view, rest
        order = np.argsort(self.axes)
        return view.transpose(order), tuple(rest[i] for i in order)

    def give(self, leaf: np.ndarray) -> np.ndarray:
        """(A slot of) our leaf as the file's tensor."""
        value = leaf[self.slot] if self.axes is None else leaf[self.slot].transpose(np.argsort(self.axes))
        return value if self.joined is None else value.reshape(self.joined)


def kernel(path: str) -> Place:
    """A Linear's weight [out, in], our kernel's transpose."""
    return Place(path, axes=(1, 0))


@dataclass(frozen=True)
class Family:
    """One model family as checkpoints see it.

    config: its Config class; check_dtype: raises ValueError for a dtype it must not run in;
    read_config: config.json and the weights -> Config; write_config: Config -> config.json;
    places: Config -> where each Hugging Face tensor goes; duplicates: Config -> tensors that may be
    there provided they equal another; never_used: tensors that published files hold and no model reads;
    shapes_of: Config -> tree of shapes; infer: flat T5X shapes -> Config; lm: Config -> LM;
    with_vocab: the Config for a tokenizer of so many ids; usual_vocab: rows of the table -> ids in use,
    for a model that comes without tokenizer; other_types: further `model_type`s that read_config knows;
    canonical: a tensor's name in the file -> its name in `places`, None where it is none of ours.
    """

    model_type: str
    config: type
    check_dtype: Callable[[str], None]
    read_config: Callable[[Mapping[str, Any], Weights], Any]
    write_config: Callable[[Any], dict[str, Any]]
    places: Callable[[Any], dict[str, Place]]
    duplicates: Callable[[Any], dict[str, str]]
    never_used: frozenset[str]
    shapes_of: Callable[[Any], dict[str, Any]]
    infer: Callable[[Shapes], Any]
    lm: Callable[[Any], Any]
    with_vocab: Callable[[Any, int], Any]
    usual_vocab: Callable[[int], int]
    other_types: tuple[str, ...] = ()
    canonical: Callable[[str], str | None] = lambda name: name


class Opened(NamedTuple):
    """A checkpoint of which the headers are read: what it is, what it stores, how to read the rest.

    stored: name of a dtype, as the file has it, -> bytes of it; leaves: by path in the parameters' tree.
    """

    family: Family
    config: Any
    stored: Mapping[str, int]
    leaves: Mapping[str, Leaf]

    def read(self, dtype: str, place: Placement | None = None) -> Params:
        """The parameters in `dtype`, where `place` says or whole on one device (see `placing.build`)."""
        return build(self.leaves, dtype, place)


def stored(tensors: Iterable[tuple[str, tuple[int, ...]]]) -> dict[str, int]:
    """Bytes by dtype of tensors given as (dtype, shape)."""
    found: dict[str, int] = {}
    for dtype, shape in tensors:
        found[dtype] = found.get(dtype, 0) + math.prod(shape) * jnp.dtype(dtype).itemsize
    return found
