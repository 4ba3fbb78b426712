"""The schema of `spec-cascades train`: data, model, optimiser, teacher. No jax here."""

from dataclasses import dataclass, field
from typing import Any

MISSING: Any = "???"


@dataclass
class Data:
    """train, dev: TSV files; vocabulary: a SentencePiece model, built with `pieces` pieces if it is absent."""

    train: str = MISSING
    dev: str = MISSING
    vocabulary: str = MISSING
    pieces: int = 4096
    join: int = 4
    input_length: int = 128
    target_length: int = 128


@dataclass
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


@dataclass
class Teacher:
    """A target to distil from: a reference to its weights, the loss, and the weight of the data's own NLL.

    loss: kl (forward), reverse_kl or tv; temperature: of both distributions, greater than 0.
    """

    ref: str = MISSING
    loss: str = "kl"
    nll_weight: float = 0.0
    temperature: float = 1.0


@dataclass
class Train:
    """One training run. dtype: of matmuls (weights and optimiser stay float32); lengths in tokens, rows a batch."""

    out: str = MISSING
    data: Data = field(default_factory=Data)
    model: Model = field(default_factory=Model)
    teacher: Teacher | None = None
    steps: int = 1000
    rows: int = 16
    peak_lr: float = 1e-3
    final_lr: float = 1e-5
    warmup: int = 200
    dropout: float = 0.1
    weight_decay: float = 0.01
    clip: float = 1.0
    dtype: str = "bfloat16"
    seed: int = 0
    eval_every: int = 250
    save_every: int = 250
