"""The schema of `spec-cascades train`: data, model, optimiser, teacher. No jax here."""

import math
from dataclasses import dataclass, field
from typing import Any

from spec_cascades.config import DTYPES, choose, require

DIVERGENCES = ("kl", "reverse_kl", "tv")
ACTIVATIONS = ("gelu", "relu")
"""The names of `spec_cascades.models.t5.ACTIVATIONS`, which cannot be read here without importing jax."""


@dataclass(frozen=True)
class Data:
    """train, dev: TSV files; vocabulary: a SentencePiece model, built with `pieces` pieces if absent.

    join: pairs an example at most; input_length, target_length: tokens of a packed row.
    """

    train: str
    dev: str
    vocabulary: str
    pieces: int = 4096
    join: int = 4
    input_length: int = 128
    target_length: int = 128

    def __post_init__(self) -> None:
        at_least_one(self, "pieces", "join", "input_length", "target_length")


@dataclass(frozen=True)
class Model:
    """Sizes of a T5 (`models.t5.Config`); the vocabulary's size comes from the data."""

    d_model: int = 256
    d_kv: int = 64
    d_ff: int = 512
    heads: int = 4
    encoder_layers: int = 4
    decoder_layers: int = 8
    gated: bool = True
    activation: str = "gelu"
    tied: bool = True

    def __post_init__(self) -> None:
        at_least_one(self, "d_model", "d_kv", "d_ff", "heads", "encoder_layers", "decoder_layers")
        choose("activation", self.activation, ACTIVATIONS)


@dataclass(frozen=True)
class Teacher:
    """A target to distil from: a reference to its weights, the loss, and the weight of the data's own NLL.

    loss: kl (forward), reverse_kl or tv; temperature: of both distributions, greater than 0.
    """

    ref: str
    loss: str = "kl"
    nll_weight: float = 0.0
    temperature: float = 1.0

    def __post_init__(self) -> None:
        choose("loss", self.loss, DIVERGENCES)
        require("nll_weight", self.nll_weight, 0 <= self.nll_weight <= 1, "in [0, 1]")
        require("temperature", self.temperature, 0 < self.temperature < math.inf, "a positive number")


@dataclass(frozen=True)
class Train:
    """One training run; lengths in tokens, rows a batch, steps of the optimiser.

    start: weights to go on from, of the sizes in `model` and the same vocabulary, None for random ones;
    dtype: of matmuls (weights and optimiser stay float32). Raises ConfigError for a value out of range.
    """

    out: str
    data: Data
    model: Model = field(default_factory=Model)
    start: str | None = None
    teacher: Teacher | None = None
    steps: int = 1000
    rows: int = 16
    peak_lr: float = 1e-2
    final_lr: float = 1e-4
    warmup: int = 200
    dropout: float = 0.1
    weight_decay: float = 0.01
    clip: float = 1.0
    dtype: str = "bfloat16"
    seed: int = 0
    eval_every: int = 250
    save_every: int = 250

    def __post_init__(self) -> None:
        check_schedule(self)
        require("dropout", self.dropout, 0 <= self.dropout < 1, "in [0, 1)")


def check_schedule(settings: Any) -> None:
    """Raises ConfigError for steps, batch, optimiser, dtype or seed out of range, which `Distill` has too."""
    s = settings
    at_least_one(s, "steps", "rows", "eval_every", "save_every")
    require("warmup", s.warmup, 0 <= s.warmup < s.steps, f"in [0, steps), steps {s.steps}")
    for key in ("peak_lr", "clip"):
        require(key, getattr(s, key), 0 < getattr(s, key) < math.inf, "a positive number")
    for key in ("final_lr", "weight_decay"):
        require(key, getattr(s, key), 0 <= getattr(s, key) < math.inf, "0 or a positive number")
    choose("dtype", s.dtype, DTYPES)
    require("seed", s.seed, 0 <= s.seed < 2**32, "in [0, 2^32)")


def at_least_one(settings: Any, *keys: str) -> None:
    """Raises ConfigError for the first of the keys whose value is less than 1."""
    for key in keys:
        require(key, getattr(settings, key), getattr(settings, key) >= 1, "1 or more")
