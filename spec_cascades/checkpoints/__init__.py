"""Models by reference: the embedded pair, the Hugging Face hub, T5X checkpoints and local folders."""

from pathlib import Path
from typing import Any, NamedTuple

from spec_cascades.checkpoints import safetensors, t5x
from spec_cascades.checkpoints.families.base import Family
from spec_cascades.checkpoints.safetensors import save
from spec_cascades.checkpoints.tree import CheckpointError
from spec_cascades.tokenizers import EXTRA_IDS, SentencePiece
from spec_cascades.typing import Params

__all__ = ["CheckpointError", "Loaded", "load", "save"]

EMBEDDED = Path(__file__).parents[1] / "embedded"
SPIECE = "spiece.model"
FETCHED = ["*.safetensors", "*.json", SPIECE, "tokenizer*"]
FORMS = (
    "embedded:NAME, hf://ORG/NAME[@REVISION] (Hugging Face hub), gs://BUCKET/PATH (T5X), "
    "or a local path (Hugging Face folder, T5X folder or T5X file)"
)


class Loaded(NamedTuple):
    """A model ready to decode; `tokenizer` is None where no spiece.model lies beside the weights."""

    lm: Any
    params: Params
    tokenizer: SentencePiece | None
    config: Any
    ref: str


def load(ref: str, dtype: str = "bfloat16") -> Loaded:
    """The model that `ref` names, its weights in `dtype` ("float32" or "bfloat16").

    Raises ValueError for a reference of no known form, a dtype the family must not run in, a model that
    cannot be fetched, and (CheckpointError) tensors that are missing, unused or of the wrong shape.
    """
    scheme, colon, rest = ref.partition(":")
    if scheme == "embedded" and colon:
        return _local(_embedded(rest), ref, dtype)
    if ref.startswith("hf://"):
        return _local(_hub(ref), ref, dtype)
    if ref.startswith("gs://"):
        return _finish(*_bucket(ref, dtype), None, ref)
    if "://" in ref:
        raise ValueError(f"model reference {ref!r} has the unknown scheme {scheme!r}; the forms are {FORMS}")
    path = Path(ref).expanduser()
    if not path.exists():
        raise ValueError(f"model reference {ref!r}: no such file or folder; the forms are {FORMS}")
    return _local(path, ref, dtype)


def _local(path: Path, ref: str, dtype: str) -> Loaded:
    if (path / safetensors.CONFIG).is_file():
        return _finish(*safetensors.read(path, dtype), _spiece(path), ref)
    if path.is_file() or (path / t5x.CHECKPOINT).is_file():
        return _finish(*t5x.read(t5x.local(path), dtype), _spiece(path), ref)
    steps = sorted(p.name for p in path.glob("checkpoint_*"))
    inside = f"; did you mean one of {steps}?" if steps else ""
    raise CheckpointError(
        f"{path} holds neither {safetensors.CONFIG} nor a T5X file {t5x.CHECKPOINT!r}{inside}"
    )


def _spiece(path: Path) -> Path | None:
    """The tokenizer in the folder, or in the one above, which may serve several models."""
    folder = path if path.is_dir() else path.parent
    return next((p / SPIECE for p in (folder, folder.parent) if (p / SPIECE).is_file()), None)


def _finish(family: Family, config: Any, params: Params, spiece: Path | None, ref: str) -> Loaded:
    if spiece is None:
        if config.vocab == config.embeddings:
            config = family.with_vocab(config, family.usual_vocab(config.embeddings))
        return Loaded(family.lm(config), params, None, config, ref)
    config, tokenizer = _fit(family, config, spiece)
    if (tokenizer.eos, tokenizer.pad) != (config.eos, config.pad):
        raise CheckpointError(
            f"{spiece} ends with id {tokenizer.eos} and pads with {tokenizer.pad}; "
            f"the model expects {config.eos} and {config.pad}"
        )
    return Loaded(family.lm(config), params, tokenizer, config, ref)


def _fit(family: Family, config: Any, spiece: Path) -> tuple[Any, SentencePiece]:
    """Config and tokenizer that agree on the ids in use; rows beyond them are padding and stay masked.

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
    return family.with_vocab(config, ids), SentencePiece(spiece, extra_ids=ids - pieces)


def _embedded(name: str) -> Path:
    names = sorted(p.parent.name for p in EMBEDDED.glob(f"*/{safetensors.CONFIG}"))
    if name not in names:
        raise ValueError(f"embedded model {name!r} is not one of {names}")
    return EMBEDDED / name


def _hub(ref: str) -> Path:
    name, _, revision = ref.removeprefix("hf://").partition("@")
    if name.count("/") != 1 or not all(name.split("/")):
        raise ValueError(f"model reference {ref!r} is not of the form hf://ORG/NAME[@REVISION]")
    by_hand = (
        f"Without it, fetch {', '.join(FETCHED)} of https://huggingface.co/{name} on a machine with network, "
        "put them in one folder and pass its path"
    )
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise ValueError(
            f"{ref} needs huggingface_hub: pip install 'spec-cascades[hub]'. {by_hand}"
        ) from error
    try:
        return Path(snapshot_download(name, revision=revision or None, allow_patterns=FETCHED))
    except Exception as error:  # network, authorisation and cache failures share no base class
        raise ValueError(f"{ref} cannot be fetched from the hub ({_first_line(error)}). {by_hand}") from error


def _bucket(ref: str, dtype: str) -> tuple[Family, Any, Params]:
    try:
        return t5x.read(t5x.bucket(ref), dtype)
    except t5x.Unreachable as error:
        raise ValueError(
            f"{ref} cannot be fetched ({_first_line(error)}). Without it, copy that folder, the file "
            f"{t5x.CHECKPOINT!r} and the array folders beside it, to this machine and pass its path"
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
