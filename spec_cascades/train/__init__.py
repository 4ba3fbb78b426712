"""`spec-cascades train CONFIG`: a T5 from a TSV, alone or distilled from a target; see `settings.Train`."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spec_cascades.train.settings import Train

__all__ = ["run"]

EXTRA = ("seqio", "tensorflow_datasets")
"""What the extra [data] brings."""


def run(config_path: str | Path, overrides: Sequence[str] = ()) -> str:
    """Trains as the YAML at `config_path` (with key=value overrides) says; returns the exported folder.

    Resumes if `out` holds a checkpoint. Raises ValueError where the config is wrong or differs from the
    checkpoint's, FileNotFoundError for absent data, ModuleNotFoundError without the extra [data].
    """
    from spec_cascades import config as configs
    from spec_cascades.train import runfolder
    from spec_cascades.train.settings import Train

    settings = configs.load(Train, config_path, tuple(overrides))
    _check(settings)
    runfolder.claim(settings)
    return str(_train(settings))


def _check(settings: "Train") -> None:
    """What can be known before the slow imports."""
    missing = [name for name in EXTRA if importlib.util.find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(
            f"training needs {', '.join(missing)}: pip install 'spec-cascades[data]' brings it"
        )
    for key in ("train", "dev"):
        path = getattr(settings.data, key)
        if not Path(path).is_file():
            raise FileNotFoundError(f"data.{key}: no file {path!r}")


def _train(settings: "Train") -> Path:
    import os
    import shutil

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before the first import of TensorFlow, which chats
    import sentencepiece
    from absl import logging

    from spec_cascades import checkpoints
    from spec_cascades.models import t5
    from spec_cascades.tasks import translation
    from spec_cascades.train import loop, vocabulary

    logging.set_verbosity(logging.ERROR)
    model_file = Path(settings.data.vocabulary)
    if not model_file.exists():
        vocabulary.build(model_file, settings.data.train, settings.data.pieces)
    files = {"train": settings.data.train, "dev": settings.data.dev}
    task = translation.register("spec_cascades_train", files, str(model_file), settings.data.join)
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(model_file)).vocab_size()
    config, begin = t5.Config(vocab=pieces, embeddings=pieces, **vars(settings.model)), None
    if settings.start is not None:
        config, begin = _start(settings, model_file)
    params = loop.fit(settings, config, task, _teacher(settings, model_file, pieces), begin)
    export = Path(settings.out) / "export"
    checkpoints.save(export, config, params, "bfloat16")
    shutil.copyfile(model_file, export / "spiece.model")
    return export


def _start(settings: "Train", model_file: Path) -> tuple[Any, Any]:
    """Config and parameters to go on from. Raises ConfigError where the sizes in `model` are not theirs."""
    from spec_cascades.config import ConfigError

    loaded = _of_the_same_ids(str(settings.start), "float32", model_file)
    for key, size in vars(settings.model).items():
        if getattr(loaded.config, key, None) != size:
            theirs = getattr(loaded.config, key, "none")
            raise ConfigError(f"model.{key}: {size!r}, and that of start, {settings.start}, is {theirs!r}")
    return loaded.config, loaded.params


def _of_the_same_ids(ref: str, dtype: str, model_file: Path) -> Any:
    """The checkpoint; ValueError where it has a tokenizer and that differs from the vocabulary trained on."""
    from spec_cascades import checkpoints
    from spec_cascades.tokenizers import SentencePiece, check_compatible

    loaded = checkpoints.load(ref, dtype)
    if loaded.tokenizer is not None:
        check_compatible(SentencePiece(model_file, extra_ids=0), loaded.tokenizer)
    return loaded


def _teacher(settings: "Train", model_file: Path, pieces: int) -> Any:
    """The `loop.Teacher` that the settings name, or None; ValueError unless it reads the same ids."""
    from spec_cascades.train import loop

    given = settings.teacher
    if given is None:
        return None
    loaded = _of_the_same_ids(given.ref, "bfloat16", model_file)
    if loaded.config.embeddings != pieces:
        raise ValueError(
            f"teacher.ref {given.ref} scores {loaded.config.embeddings} ids and {model_file} has {pieces}: "
            "a student learns from a target of its own vocabulary"
        )
    return loop.Teacher(loaded.params, loaded.config, given.loss, given.nll_weight, given.temperature)
