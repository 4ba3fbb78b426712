"""Tokenizers over the `tokenizers` library: tokenizer.json, and the byte-level BPE of GGUF metadata."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from spec_cascades.tokenizers.base import before_stop, fingerprint
from spec_cascades.tokenizers.chat import Chat, Message

JSON, SETTINGS, TEMPLATE = "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"


class Fast:
    """One model's `tokenizers.Tokenizer`: text <-> ids.

    bos: prepended to every text that does not begin with it, or None; after: ids appended (T5's eos); stops:
    ids that end a text, the first of which is `eos`; template: the chat template; rows: ids the model knows,
    where added tokens go beyond them (Gemma 3's image token). See `base.Tokenizer`. Raises ValueError where
    stops is empty, a special id lies beyond the vocabulary or the vocabulary beyond the rows.
    """

    def __init__(
        self,
        model: Any,
        stops: Sequence[int],
        bos: int | None = None,
        after: Sequence[int] = (),
        pad: int | None = None,
        template: str | None = None,
        rows: int | None = None,
    ) -> None:
        if rows is not None and model.get_vocab_size(with_added_tokens=False) > rows:
            raise ValueError(
                f"{model.get_vocab_size(with_added_tokens=False)} pieces and the model's table {rows} rows"
            )
        self._model, self.bos, self._after = model, bos, list(after)
        self.stops = tuple(dict.fromkeys(stops))
        size = model.get_vocab_size(with_added_tokens=True)
        self.size = size if rows is None else min(size, rows)
        if not self.stops:
            raise ValueError("the tokenizer does not say which token ends a text")
        outside = [i for i in (*self.stops, bos, pad) if i is not None and not 0 <= i < self.size]
        if outside:
            raise ValueError(f"special ids {outside} lie beyond the tokenizer's {self.size} ids")
        self.eos = self.stops[0]
        self.pad = self.eos if pad is None else pad
        self.pieces = tuple(model.id_to_token(i) or "" for i in range(self.size))
        self.fingerprint = fingerprint(self.pieces, self.eos, bos)
        spelled = "" if bos is None else self.pieces[bos]
        self._chat = Chat(template, spelled, self.pieces[self.eos])

    def encode(self, text: str) -> list[int]:
        """Ids of the text; BOS, where the model wants one, stands once, spelled out in the text or not.

        Raises ValueError for a token that the model has no row for.
        """
        ids = self._model.encode(text, add_special_tokens=False).ids
        beyond = next((i for i in ids if i >= self.size), None)
        if beyond is not None:
            raise ValueError(f"the model does not know the token {self._model.id_to_token(beyond)!r}")
        before = [] if self.bos is None or ids[:1] == [self.bos] else [self.bos]
        return [*before, *ids, *self._after]

    def decode(self, ids: Iterable[int]) -> str:
        """Text of the ids before the first stop, without special tokens and ids beyond the vocabulary."""
        known = [i for i in before_stop(ids, self.stops) if 0 <= i < self.size]
        return self._model.decode(known, skip_special_tokens=True)

    def chat(self, messages: Sequence[Message]) -> str:
        """The conversation as text to `encode`, ending where the answer begins; see `Chat`."""
        return self._chat(messages)


# ----------------------------------------------------------------------------------------------------
# tokenizer.json


def read_folder(folder: Path, rows: int | None = None, stops: Sequence[int] = ()) -> Fast:
    """The tokenizer of a Hugging Face folder; stops: the ids that the model's own config ends a text with.

    The end symbol is tokenizer_config.json's, or the first of `stops`. BOS and EOS are added as the file's
    post-processor does, unless tokenizer_config.json's add_bos_token says otherwise. Raises ValueError for
    files that cannot be read and for a tokenizer without end symbol.
    """
    from tokenizers import Tokenizer

    try:
        model = Tokenizer.from_file(str(folder / JSON))
    except Exception as error:  # the library raises bare Exceptions
        raise ValueError(f"{folder / JSON} cannot be read: {error}") from error
    settings = _settings(folder)
    named = {key: _id(model, settings.get(f"{key}_token")) for key in ("bos", "eos", "pad")}
    before, after = _added(model)
    wanted = settings.get("add_bos_token", bool(before))
    own = [] if named["eos"] is None else [named["eos"]]
    try:
        return Fast(
            model,
            [*own, *stops],
            bos=(before[0] if before else named["bos"]) if wanted else None,
            after=after,
            pad=named["pad"],
            template=read_template(folder),
            rows=rows,
        )
    except ValueError as error:
        raise ValueError(f"{folder / JSON}: {error}") from error


def _settings(folder: Path) -> dict[str, Any]:
    file = folder / SETTINGS
    if not file.is_file():
        return {}
    try:
        return dict(json.loads(file.read_text("utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(f"{file} cannot be read: {error}") from error


def _id(model: Any, token: str | Mapping[str, Any] | None) -> int | None:
    """The id of a special token, which older files write as an object with its `content`."""
    name = token["content"] if isinstance(token, Mapping) else token
    return None if name is None else model.token_to_id(name)


def _added(model: Any) -> tuple[list[int], list[int]]:
    """The special ids that the post-processor puts before and after a text."""
    plain = model.encode("a", add_special_tokens=False).ids
    whole = model.encode("a", add_special_tokens=True).ids
    at = next((i for i in range(len(whole)) if whole[i : i + len(plain)] == plain), len(whole))
    return whole[:at], whole[at + len(plain) :]


def read_template(folder: Path) -> str | None:
    """The chat template of a Hugging Face folder: a file of its own, or a key of tokenizer_config.json."""
    if (folder / TEMPLATE).is_file():
        return (folder / TEMPLATE).read_text("utf-8")
    given = _settings(folder).get("chat_template")
    if isinstance(given, list):  # several, by name
        given = {entry["name"]: entry["template"] for entry in given}.get("default")
    return given


# ----------------------------------------------------------------------------------------------------
# GGUF


class Split(NamedTuple):
    """How a text is cut before merging: digits in groups, a pattern (None: GPT-2's own), whether BOS leads.

    whole: a chunk that is a piece is taken as it is, without merging.
    """

    digits: bool = False
    pattern: str | None = None
    bos: bool = False
    whole: bool = False


LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPLITS = {
    "gpt-2": Split(),
    "smollm": Split(digits=True),
    "llama-bpe": Split(pattern=LLAMA3, bos=True, whole=True),
}
"""By GGUF's `tokenizer.ggml.pre`."""

CONTROL, USER = 3, 4
"""GGUF's token types of special tokens and of added words."""


def from_gguf(metadata: Mapping[str, Any]) -> Fast:
    """The byte-level BPE that a GGUF file's `tokenizer.*` keys describe.

    Raises ValueError for another tokenizer model or pre-tokenizer, naming the choices, and for a missing key.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models

    get = lambda key: _needed(metadata, f"tokenizer.ggml.{key}")
    if get("model") != "gpt2":
        raise ValueError(f"tokenizer.ggml.model {get('model')!r} is not one of ['gpt2'] (byte-level BPE)")
    pre = metadata.get("tokenizer.ggml.pre", "gpt-2")
    if pre not in SPLITS:
        raise ValueError(f"tokenizer.ggml.pre {pre!r} is not one of {sorted(SPLITS)}")
    tokens, types = get("tokens"), get("token_type")
    merges = [tuple(pair.split(" ", 1)) for pair in get("merges")]
    vocab = {piece: i for i, piece in enumerate(tokens)}
    model = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=SPLITS[pre].whole))
    model.pre_tokenizer, model.decoder = _pre_tokenizer(SPLITS[pre]), decoders.ByteLevel()
    special = [piece for piece, kind in zip(tokens, types, strict=True) if kind == CONTROL]
    model.add_special_tokens([AddedToken(piece, special=True, normalized=False) for piece in special])
    words = [piece for piece, kind in zip(tokens, types, strict=True) if kind == USER]
    model.add_tokens([AddedToken(piece, normalized=False) for piece in words])
    bos = metadata.get("tokenizer.ggml.add_bos_token", SPLITS[pre].bos)
    ends = [get("eos_token_id"), *(metadata.get(f"tokenizer.ggml.{k}_token_id") for k in ("eot", "eom"))]
    return Fast(
        model,
        [i for i in ends if i is not None],
        bos=get("bos_token_id") if bos else None,
        pad=metadata.get("tokenizer.ggml.padding_token_id"),
        template=metadata.get("tokenizer.chat_template"),
    )


def _needed(metadata: Mapping[str, Any], key: str) -> Any:
    if key not in metadata:
        raise ValueError(f"the GGUF file lacks {key}")
    return metadata[key]


def _pre_tokenizer(split: Split) -> Any:
    from tokenizers import Regex, pre_tokenizers

    steps = [pre_tokenizers.Digits(individual_digits=True)] if split.digits else []
    if split.pattern is not None:
        steps.append(pre_tokenizers.Split(Regex(split.pattern), "isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split.pattern is None))
    return pre_tokenizers.Sequence(steps)
