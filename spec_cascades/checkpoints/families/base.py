"""The record a family fills in so that every format can read and write it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from spec_cascades.checkpoints.tree import Shapes


class Weights(Protocol):
    """Named tensors of a checkpoint, of which nothing is read until asked for."""

    shapes: Shapes

    def read(self, name: str) -> np.ndarray: ...


class Place(NamedTuple):
    """Where a Hugging Face tensor goes in our tree; a Linear's weight [out, in] is our kernel's transpose."""

    path: str
    transposed: bool


@dataclass(frozen=True)
class Family:
    """One model family as checkpoints see it.

    config: its Config class; check_dtype: raises ValueError for a dtype it must not run in;
    read_config: config.json and the weights -> Config; write_config: Config -> config.json;
    places: Config -> where each Hugging Face tensor goes; duplicates: Config -> tensors that may be
    there provided they equal another; never_used: tensors that published files hold and no model reads;
    shapes_of: Config -> tree of shapes; infer: flat T5X shapes -> Config; lm: Config -> LM;
    with_vocab: the Config for a tokenizer of so many ids; usual_vocab: rows of the table -> ids in use,
    for a model that comes without tokenizer.
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
