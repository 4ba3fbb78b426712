"""SentencePiece models: T5's, with sentinels and an EOS, and those of decoder-only models, with a BOS."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from spec_cascades.tokenizers.base import before_stop, fingerprint
from spec_cascades.tokenizers.chat import Chat, Message

EXTRA_IDS = 100
"""Sentinels T5 adds beyond its pieces; `<extra_id_0>` is the last id and they count down."""


def _model(path: Path | str) -> Any:
    from sentencepiece import SentencePieceProcessor

    if not Path(path).is_file():
        raise ValueError(f"no SentencePiece model at {path}")
    model = SentencePieceProcessor()
    try:
        model.Load(str(path))
    except (RuntimeError, OSError) as error:
        raise ValueError(f"{path} is not a SentencePiece model: {error}") from error
    return model


def _pieces(model: Any) -> list[str]:
    return [model.id_to_piece(i) for i in range(model.get_piece_size())]


class SentencePiece:
    """A spiece.model plus `extra_ids` sentinels: text <-> ids, with eos appended.

    See `base.Tokenizer`. Raises ValueError for a file that is no SentencePiece model or has no eos or pad.
    """

    def __init__(self, path: Path | str, extra_ids: int = EXTRA_IDS) -> None:
        if extra_ids < 0:
            raise ValueError(f"extra_ids {extra_ids} must not be negative")
        self._model = _model(path)
        self.eos, self.pad = self._model.eos_id(), self._model.pad_id()
        if min(self.eos, self.pad) < 0:
            raise ValueError(f"{path} defines no eos or no pad (ids {self.eos} and {self.pad})")
        self.stops = (self.eos,)
        self._plain = self._model.get_piece_size()
        self.pieces = tuple(_pieces(self._model) + [f"<extra_id_{i}>" for i in reversed(range(extra_ids))])
        self.size = len(self.pieces)
        self.fingerprint = fingerprint(self.pieces, self.eos, self.pad, self._model.unk_id())

    def encode(self, text: str) -> list[int]:
        """Ids of the text, eos last."""
        return [*self._model.encode(text), self.eos]

    def decode(self, ids: Iterable[int]) -> str:
        """Text of the ids before the first eos, without padding and ids beyond the vocabulary."""
        parts: list[str] = []
        run: list[int] = []
        for i in before_stop(ids, self.stops):
            if self._plain <= i < self.size:
                parts += [self._model.decode(run), self.pieces[i]]
                run = []
            elif 0 <= i < self._plain and i != self.pad:
                run.append(i)
        return " ".join(part for part in [*parts, self._model.decode(run)] if part)

    def chat(self, messages: Sequence[Message]) -> str:
        """ValueError: no T5 has a chat template."""
        return Chat(None, "", self.pieces[self.eos])(messages)


class PromptPiece:
    """A tokenizer.model of a decoder-only model (Gemma): text <-> ids, BOS first and no EOS.

    stops: further ids that end a text, such as Gemma's `<end_of_turn>`; template: its chat template. See
    `base.Tokenizer`. Raises ValueError for a file that is no SentencePiece model or has no bos or eos.
    """

    def __init__(self, path: Path | str, stops: tuple[int, ...] = (), template: str | None = None) -> None:
        self._model = _model(path)
        self.eos, self.bos, pad = self._model.eos_id(), self._model.bos_id(), self._model.pad_id()
        if min(self.eos, self.bos) < 0:
            raise ValueError(f"{path} defines no eos or no bos (ids {self.eos} and {self.bos})")
        self.pad = pad if pad >= 0 else self.eos
        self.stops = (self.eos, *(i for i in stops if i != self.eos))
        self.pieces = tuple(_pieces(self._model))
        self.size = len(self.pieces)
        self.fingerprint = fingerprint(self.pieces, self.eos, self.bos)
        self._controls = {self.pieces[i]: [i] for i in range(self.size) if self._model.is_control(i)}
        self._chat = Chat(template, self.pieces[self.bos], self.pieces[self.eos])

    def encode(self, text: str) -> list[int]:
        """Ids of the text after one BOS, whether or not the text spells it out (chat templates do)."""
        # SentencePiece alone reads a control piece in a text as plain characters.
        parts = re.split("(" + "|".join(map(re.escape, self._controls)) + ")", text)
        ids = [i for part in parts for i in self._controls.get(part) or self._model.encode(part)]
        return ids if ids[:1] == [self.bos] else [self.bos, *ids]

    def decode(self, ids: Iterable[int]) -> str:
        """Text of the ids before the first stop, without control pieces and ids beyond the vocabulary."""
        plain = lambda i: 0 <= i < self.size and not self._model.is_control(i)
        return self._model.decode([i for i in before_stop(ids, self.stops) if plain(i)])

    def chat(self, messages: Sequence[Message]) -> str:
        """The conversation as text to `encode`, ending where the answer begins; see `Chat`."""
        return self._chat(messages)
