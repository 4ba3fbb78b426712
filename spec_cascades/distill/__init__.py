"""`spec-cascades distill CONFIG`: a drafter for a decoder-only target; see `settings.Distill`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spec_cascades.checkpoints.drafter import Stored
    from spec_cascades.distill.settings import Distill

__all__ = ["run"]


def run(config_path: str | Path, overrides: Sequence[str] = ()) -> str:
    """Distils as the YAML at `config_path` (with key=value overrides) says; returns the exported folder.

    Three stages, each resumed where a kill left it: the target answers the prompts that have no answer, the
    target labels all texts, the student trains on the labels. Raises ValueError where the config is wrong or
    differs from that of the run in `out`.
    """
    from spec_cascades import config as configs
    from spec_cascades.distill.settings import Distill
    from spec_cascades.train import runfolder

    settings = configs.load(Distill, config_path, tuple(overrides))
    runfolder.claim(settings)
    return str(_distill(settings))


def _distill(settings: "Distill") -> Path:
    import jax
    import numpy as np

    from spec_cascades import checkpoints
    from spec_cascades.checkpoints import drafter
    from spec_cascades.distill import corpus, labels, loop, student
    from spec_cascades.engine import Engine

    # Before any work that an unsuitable one would waste.
    started = None if settings.start is None else _started(settings)
    engine = Engine(settings.target, None, settings.dtype, chat=True)
    examples = {key: corpus.examples(settings, key, engine) for key in ("sources", "dev")}
    del engine  # its weights are in the layout of decoding
    loaded = checkpoints.load(settings.target, settings.dtype)
    kind = student.kind_of(loaded.config)
    parts = {}
    for key, some in examples.items():
        mine = key == "sources"
        weight, most = (settings.prompt_weight, settings.most_rows) if mine else (0.0, None)
        rows = corpus.pack(some, settings.length, settings.seed, weight, most)
        folder = Path(settings.out) / "labels" / key
        made_with = f"{settings.target} {settings.dtype}"
        parts[key] = labels.label(
            kind.forward, loaded.params, loaded.config, rows, settings.top, folder, made_with
        )
    key = jax.random.key(settings.seed)
    if started is not None:
        begin, ids = jax.tree.map(lambda x: x.astype("float32"), started.trunk), started.ids
    else:
        begin, ids = student.trunk(loaded.params, loaded.config, settings.drafter, key), None
    if ids is None and settings.drafter.vocabulary is not None:
        count = min(settings.drafter.vocabulary, loaded.config.vocab)
        ids = labels.frequent(parts["sources"], count, loaded.config.vocab)
    small = student.config_of(loaded.config, settings.drafter, ids)
    place = student.places_of(loaded.config, ids)
    setup = loop.Setup(small, student.frozen(loaded.params, loaded.config, ids), place)
    trained = loop.fit(settings, setup, begin, parts["sources"], parts["dev"])
    export = Path(settings.out) / "export"
    drafter.save(export, settings.target, settings.drafter, trained, None if ids is None else np.asarray(ids))
    return export


def _started(settings: "Distill") -> "Stored":
    """The drafter to go on from. Raises ConfigError where it is none, or another than is to be made."""
    from spec_cascades import checkpoints
    from spec_cascades.checkpoints import drafter, references
    from spec_cascades.config import ConfigError

    path = references.local(str(settings.start))
    target = drafter.target_of(path)
    if target is None:
        raise ConfigError(f"start: {settings.start!r} is no distilled drafter")
    if target != settings.target:
        raise ConfigError(
            f"start: {settings.start!r} drafts for {target}, and the target is {settings.target}"
        )
    stored = drafter.stored(path, checkpoints.peek(target).config, "float32")
    if stored.drafter != settings.drafter:
        raise ConfigError(f"drafter: {settings.start!r} is {stored.drafter}; that cannot change on the way")
    return stored
