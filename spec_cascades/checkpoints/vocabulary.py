"""The tokenizer beside a model's weights, and which rows of the model's table are its ids."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spec_cascades.checkpoints.families.base import Family
from spec_cascades.checkpoints.tree import CheckpointError
from spec_cascades.tokenizers import (
    EXTRA_IDS,
    PromptPiece,
    SentencePiece,
    Tokenizer,
    read_folder,
    read_template,
)

FILES = SPIECE, JSON, MODEL = "spiece.model", "tokenizer.json", "tokenizer.model"
"""T5's SentencePiece, any tokenizer.json, a decoder-only model's SentencePiece: looked for in this order."""

GENERATION = "generation_config.json"


def read(family: Family, config: Any, path: Path | None) -> tuple[Any, Tokenizer | None]:
    """Config with the ids in use, and the tokenizer in the folder (or the one above) of `path`, or None.

    Raises CheckpointError for a tokenizer that does not fit the table, ValueError for an unreadable one.
    """
    file = None if path is None else nearest(path)
    if file is None:
        if config.vocab == config.embeddings:
            config = family.with_vocab(config, family.usual_vocab(config.embeddings))
        return config, None
    if file.name == SPIECE:
        return _t5(family, config, file)
    stops = _stops(config.eos, file.parent)
    if file.name == JSON:
        tokenizer: Tokenizer = read_folder(file.parent, config.embeddings, stops)
    else:
        tokenizer = PromptPiece(file, stops, read_template(file.parent))
    return fit(family, config, tokenizer, str(file)), tokenizer


def nearest(path: Path) -> Path | None:
    """The tokenizer in the folder, or in the one above, which may serve several models."""
    folder = path if path.is_dir() else path.parent
    files = (p / name for p in (folder, folder.parent) for name in FILES)
    return next((file for file in files if file.is_file()), None)


def fit(family: Family, config: Any, tokenizer: Tokenizer, where: str) -> Any:
    """Config whose ids in use are the tokenizer's; rows beyond them are padding and stay masked.

    Raises CheckpointError for a tokenizer with more ids than the table has rows.
    """
    if tokenizer.size > config.embeddings:
        raise CheckpointError(f"{where} has {tokenizer.size} ids, the model's table {config.embeddings} rows")
    return family.with_vocab(config, min(config.vocab, tokenizer.size))


def _stops(eos: int | Sequence[int], folder: Path) -> tuple[int, ...]:
    """The ids that end a text: the model's own, and those its makers generate with."""
    given = [eos]
    if (folder / GENERATION).is_file():
        try:
            given.append(json.loads((folder / GENERATION).read_text("utf-8")).get("eos_token_id"))
        except (OSError, ValueError, AttributeError) as error:
            raise CheckpointError(f"{folder / GENERATION} cannot be read: {error}") from error
    listed = [i if isinstance(i, list | tuple) else [i] for i in given if i is not None]
    return tuple(dict.fromkeys(i for ids in listed for i in ids))


def _t5(family: Family, config: Any, spiece: Path) -> tuple[Any, SentencePiece]:
    """Config and tokenizer that agree on the ids in use.

    A config that says how many ids are in use is followed; a full table says nothing, and T5's rule
    holds: the pieces and 100 sentinels, as far as there are rows.
    """
    pieces = SentencePiece(spiece, extra_ids=0).size
    stated = config.vocab < config.embeddings
    ids = config.vocab if stated else min(pieces + EXTRA_IDS, config.embeddings)
    if not pieces <= ids <= config.embeddings:
        raise CheckpointError(
            f"{spiece} has {pieces} pieces, the model's table {config.embeddings} rows ({ids} in use)"
        )
    tokenizer = SentencePiece(spiece, extra_ids=ids - pieces)
    if (tokenizer.eos, tokenizer.pad) != (config.eos, config.pad):
        raise CheckpointError(
            f"{spiece} ends with id {tokenizer.eos} and pads with {tokenizer.pad}; "
            f"the model expects {config.eos} and {config.pad}"
        )
    return family.with_vocab(config, ids), tokenizer
