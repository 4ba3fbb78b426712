"""The schema of `spec-cascades distill`: target, texts, drafter, optimiser. No jax here."""

import math
from dataclasses import dataclass, field
from typing import Any

from spec_cascades.config import ConfigError, build, choose, require
from spec_cascades.train.settings import DIVERGENCES, at_least_one, check_schedule

TRUNKS = ("first", "own")


@dataclass(frozen=True)
class Source:
    """JSON lines of prompts; `prompt` and `answer` name keys (of a list the first entry counts).

    answer None: the target answers the prompts itself (on-policy text). every, offset: lines offset,
    offset + every, ... are taken, so that one file may serve training and evaluation; limit: at most so many;
    temperature: of the target's answers, None for that of the whole distillation.
    """

    path: str
    prompt: str = "input"
    answer: str | None = None
    limit: int | None = None
    every: int = 1
    offset: int = 0
    temperature: float | None = None

    def __post_init__(self) -> None:
        warm = self.temperature
        require("temperature", warm, warm is None or 0 <= warm < math.inf, "null, 0 or a positive number")
        require("limit", self.limit, self.limit is None or self.limit >= 1, "1 or more, or null")
        require("every", self.every, self.every >= 1, "1 or more")
        require("offset", self.offset, 0 <= self.offset < self.every, f"in [0, every), every {self.every}")


@dataclass(frozen=True)
class Drafter:
    """The drafter's trunk and vocabulary; table and tokenizer are the target's.

    trunk: first (the target's first `layers` layers, fine-tuned) or own (as many random ones); d_ff: of an
    own trunk, None for the target's; vocabulary: how many ids it can propose, the most frequent ones (q = 0
    elsewhere), or None for all.
    """

    layers: int = 2
    trunk: str = "first"
    d_ff: int | None = None
    vocabulary: int | None = 16_384

    def __post_init__(self) -> None:
        at_least_one(self, "layers")
        choose("trunk", self.trunk, TRUNKS)
        own = self.trunk == "own"
        require(
            "d_ff", self.d_ff, self.d_ff is None or (own and self.d_ff >= 1), "null, or 1 or more (own trunk)"
        )
        require(
            "vocabulary",
            self.vocabulary,
            self.vocabulary is None or self.vocabulary >= 2,
            "2 or more, or null",
        )


@dataclass(frozen=True)
class Distill:
    """One distillation; lengths in tokens, rows a batch, steps of the optimiser.

    sources, dev: lists of `Source`; start: a distilled drafter of the same target and shape to go on from,
    its ids too (embedded:NAME or a folder), None for the target's layers; temperature, max_new_tokens,
    batch_size: of the target's own answers; length: of a packed row; most_rows: how many of them, in a seeded
    order, are labelled and trained on; prompt_weight: of a prompt's tokens in the loss, where an answer's
    count 1; top: how many of the target's likeliest tokens a label keeps, the rest being one bucket; loss: kl
    (forward), reverse_kl or tv. Raises ConfigError for a value out of range.
    """

    out: str
    target: str
    sources: list[dict[str, Any]]
    dev: list[dict[str, Any]]
    drafter: Drafter = field(default_factory=Drafter)
    start: str | None = None
    temperature: float = 0.0
    max_new_tokens: int = 128
    batch_size: int = 32
    length: int = 256
    most_rows: int | None = None
    prompt_weight: float = 0.0
    top: int = 16
    loss: str = "kl"
    steps: int = 1000
    rows: int = 16
    peak_lr: float = 1e-3
    final_lr: float = 1e-5
    warmup: int = 50
    weight_decay: float = 0.0
    clip: float = 1.0
    dtype: str = "bfloat16"
    seed: int = 0
    eval_every: int = 50
    save_every: int = 50

    def __post_init__(self) -> None:
        at_least_one(self, "max_new_tokens", "batch_size", "top")
        check_schedule(self)
        require("length", self.length, self.length >= 8, "8 or more")
        require("temperature", self.temperature, 0 <= self.temperature < math.inf, "0 or a positive number")
        most, share = self.most_rows, self.prompt_weight
        require("most_rows", most, most is None or most >= 1, "1 or more, or null")
        require("prompt_weight", share, 0 <= share <= 1, "in [0, 1]")
        choose("loss", self.loss, DIVERGENCES)
        for key in ("sources", "dev"):
            if not self.texts(key):
                raise ConfigError(f"{key}: give at least one source")

    def texts(self, key: str) -> list[Source]:
        """The sources under "sources" or "dev"."""
        return [build(Source, raw, f"{key}[{i}].") for i, raw in enumerate(getattr(self, key))]
