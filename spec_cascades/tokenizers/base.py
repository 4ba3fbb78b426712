"""What every tokenizer offers, and the check that two models speak the same one."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Protocol


class Tokenizer(Protocol):
    """Text <-> ids of one model.

    eos, pad: ids; stops: every id that ends a text, eos first; size: number of ids; pieces: the piece of
    every id; fingerprint: hash of the pieces and special ids.
    """

    eos: int
    pad: int
    stops: tuple[int, ...]
    size: int
    pieces: tuple[str, ...]
    fingerprint: str

    def encode(self, text: str) -> list[int]:
        """Ids of the text as the model wants a prompt: its BOS exactly once, its EOS where it expects one."""

    def decode(self, ids: Iterable[int]) -> str:
        """Text of the ids before the first stop, without special tokens and ids beyond the vocabulary."""

    def chat(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The conversation as text to `encode`; ValueError for a model without a chat template."""


def fingerprint(pieces: Sequence[str], *special: int | None) -> str:
    """Hash of the pieces and the special ids, hexadecimal."""
    listed = " ".join(map(str, special))
    return hashlib.sha256("\0".join([listed, *pieces]).encode()).hexdigest()


def before_stop(ids: Iterable[int], stops: tuple[int, ...]) -> list[int]:
    """The ids before the first that ends a text."""
    kept: list[int] = []
    for i in map(int, ids):
        if i in stops:
            break
        kept.append(i)
    return kept


def check_compatible(drafter_tok: Tokenizer, target_tok: Tokenizer) -> None:
    """Raises ValueError with the first difference unless every id means the same to both models."""
    pairs = zip_longest(drafter_tok.pieces, target_tok.pieces)
    for i, (ours, theirs) in enumerate(pairs):
        if ours != theirs:
            raise ValueError(
                f"the drafter's and the target's tokenizers differ: id {i} is {ours!r} to the drafter and "
                f"{theirs!r} to the target (sizes {drafter_tok.size} and {target_tok.size}); drafts would be "
                "read as other text"
            )
    if drafter_tok.fingerprint != target_tok.fingerprint:
        raise ValueError(
            "the drafter's and the target's tokenizers have the same pieces and different special ids: "
            f"eos {drafter_tok.eos} and {target_tok.eos}, pad {drafter_tok.pad} and {target_tok.pad}"
        )
