"""Any checkpoint rewritten as a Hugging Face or Orbax folder, tokenizer and all."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spec_cascades.checkpoints import drafter, load, orbax, peek, safetensors, vocabulary
from spec_cascades.checkpoints.folders import appearing
from spec_cascades.tokenizers import Fast

FORMATS: dict[str, Callable[[Path, Any, Any, str], None]] = {
    "safetensors": safetensors.save,
    "orbax": orbax.save,
}
DTYPES = ("bfloat16", "float32")

BESIDE = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.*")
BESIDE += (vocabulary.GENERATION, "LICENSE*", "NOTICE*")
"""Files that belong to a tokenizer, to generating or to the licence of the weights."""


def convert(ref: str, out: Path | str, to: str = "safetensors", dtype: str | None = None) -> Path:
    """Writes the model that `ref` names as a folder `out`, which appears complete or not at all.

    to: a name in FORMATS; dtype: of the weights, by default bfloat16 where nothing else is stored and
    float32, which loses nothing, elsewhere. Raises ValueError for another format or dtype, for an `out` that
    is there and not empty, for a distilled drafter, and as `load` does.
    """
    out = Path(out)
    if to not in FORMATS:
        raise ValueError(f"format {to!r} is not one of {sorted(FORMATS)}")
    if dtype is not None and dtype not in DTYPES:
        raise ValueError(f"dtype {dtype!r} is not one of {list(DTYPES)}")
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise ValueError(f"{out} is already there and not empty: give a new folder")
    header = peek(ref)
    if header.path is not None and (target := drafter.target_of(header.path)) is not None:
        raise ValueError(f"{ref} is a distilled drafter: the rest of it is {target}, which can be converted")
    dtype = dtype or ("bfloat16" if set(header.stored) == {"bfloat16"} else "float32")
    loaded = load(ref, dtype)
    with appearing(out) as half:
        FORMATS[to](half, loaded.config, loaded.params, dtype)
        if not _copy_tokenizer(header.path, half) and isinstance(loaded.tokenizer, Fast):
            _write_tokenizer(loaded.tokenizer, half)
    return out


def _copy_tokenizer(path: Path | None, out: Path) -> bool:
    """Copies the tokenizer's files from beside the weights or the folder above; False if there are none."""
    if path is None:
        return False
    found = vocabulary.nearest(path)
    if found is None:
        return False
    for pattern in (*vocabulary.FILES, *BESIDE):
        for file in found.parent.glob(pattern):
            shutil.copyfile(file, out / file.name)
    return True


def _write_tokenizer(tokenizer: Fast, out: Path) -> None:
    """A tokenizer that came inside the weights' own file (GGUF) as tokenizer.json and its settings."""
    tokenizer._model.save(str(out / vocabulary.JSON))
    named = {"bos": tokenizer.bos, "eos": tokenizer.eos, "pad": tokenizer.pad}
    settings = {f"{k}_token": tokenizer.pieces[i] for k, i in named.items() if i is not None}
    settings |= {"add_bos_token": tokenizer.bos is not None, "chat_template": tokenizer._chat.template}
    (out / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", "utf-8")
    stops = {"eos_token_id": list(tokenizer.stops)}
    (out / vocabulary.GENERATION).write_text(json.dumps(stops) + "\n", "utf-8")
