"""`spec-cascades train CONFIG`: a T5 from a TSV, alone or distilled from a target; see `settings.Train`."""

from collections.abc import Sequence
from pathlib import Path

__all__ = ["run"]


def run(config_path: str, overrides: Sequence[str] = ()) -> str:
    """Trains as the YAML at `config_path` (with key=value overrides) says; returns the exported folder.

    Resumes if `out` holds a checkpoint. Raises ValueError where the config is wrong, ImportError without
    [data].
    """
    from spec_cascades import config as configs
    from spec_cascades.train.settings import Train

    settings = configs.load(Train, config_path, overrides)
    return str(_train(settings))


def _train(settings) -> Path:
    import shutil

    import jax
    import jax.numpy as jnp
    import sentencepiece

    from spec_cascades import checkpoints
    from spec_cascades.models import t5
    from spec_cascades.tasks import translation
    from spec_cascades.train import loop, losses, vocabulary

    model_file = Path(settings.data.vocabulary)
    if not model_file.exists():
        vocabulary.build(model_file, settings.data.train, settings.data.pieces)
    files = {"train": settings.data.train, "dev": settings.data.dev}
    task = translation.register("spec_cascades_train", files, str(model_file), settings.data.join)
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(model_file)).vocab_size()
    config = t5.Config(vocab=pieces, embeddings=pieces, **vars(settings.model))
    teacher = None
    if settings.teacher is not None:
        if settings.teacher.loss not in losses.DIVERGENCES:
            raise ValueError(
                f"teacher.loss {settings.teacher.loss!r} is not one of {', '.join(losses.DIVERGENCES)}"
            )
        loaded = checkpoints.load(settings.teacher.ref, "bfloat16")
        given = settings.teacher
        teacher = loop.Teacher(loaded.params, loaded.config, given.loss, given.nll_weight, given.temperature)
    params = loop.fit(settings, config, task, teacher)
    export = Path(settings.out) / "export"
    checkpoints.save(export, config, params, "bfloat16")
    shutil.copyfile(model_file, export / "spiece.model")
    return export
