"""SentencePiece vocabularies with T5's sentinels, and the check that two models speak the same one."""

import hashlib
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path

EXTRA_IDS = 100
"""Sentinels T5 adds beyond its pieces; `<extra_id_0>` is the last id and they count down."""


class SentencePiece:
    """A spiece.model plus `extra_ids` sentinels: text <-> ids, with eos appended.

    size: number of ids; eos, pad: their ids; pieces: the piece of every id; fingerprint: hash of the
    pieces and special ids. Raises ValueError for a file that is no SentencePiece model or has no eos or pad.
    """

    def __init__(self, path: Path | str, extra_ids: int = EXTRA_IDS) -> None:
        from sentencepiece import SentencePieceProcessor

        if not Path(path).is_file():
            raise ValueError(f"no SentencePiece model at {path}")
        if extra_ids < 0:
            raise ValueError(f"extra_ids {extra_ids} must not be negative")
        self._model = SentencePieceProcessor()
        try:
            self._model.Load(str(path))
        except (RuntimeError, OSError) as error:
            raise ValueError(f"{path} is not a SentencePiece model: {error}") from error
        self.eos, self.pad = self._model.eos_id(), self._model.pad_id()
        if min(self.eos, self.pad) < 0:
            raise ValueError(f"{path} defines no eos or no pad (ids {self.eos} and {self.pad})")
        self._plain = self._model.get_piece_size()
        own = [self._model.id_to_piece(i) for i in range(self._plain)]
        self.pieces = tuple(own + [f"<extra_id_{i}>" for i in reversed(range(extra_ids))])
        self.size = len(self.pieces)
        special = f"{self.eos} {self.pad} {self._model.unk_id()}"
        self.fingerprint = hashlib.sha256("\0".join([special, *self.pieces]).encode()).hexdigest()

    def encode(self, text: str) -> list[int]:
        """Ids of the text, eos last."""
        return [*self._model.encode(text), self.eos]

    def decode(self, ids: Iterable[int]) -> str:
        """Text of the ids before the first eos, without padding and ids beyond the vocabulary."""
        parts: list[str] = []
        run: list[int] = []
        for i in map(int, ids):
            if i == self.eos:
                break
            if self._plain <= i < self.size:
                parts += [self._model.decode(run), self.pieces[i]]
                run = []
            elif 0 <= i < self._plain and i != self.pad:
                run.append(i)
        return " ".join(part for part in [*parts, self._model.decode(run)] if part)


def check_compatible(drafter_tok: SentencePiece, target_tok: SentencePiece) -> None:
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
