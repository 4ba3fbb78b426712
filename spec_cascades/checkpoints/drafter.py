"""Distilled drafters: a folder that holds what was trained, and names the target that holds the rest."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save_file

from spec_cascades.checkpoints import leaves, safetensors
from spec_cascades.checkpoints.leaves import Leaf
from spec_cascades.checkpoints.placing import build
from spec_cascades.checkpoints.tree import CheckpointError, check_exact, check_floating, flatten, unflatten
from spec_cascades.typing import Params

MODEL_TYPE = "distilled_drafter"
CONFIG, WEIGHTS, IDS = "config.json", "model.safetensors", "ids"


def save(directory: Path | str, target: str, drafter: Any, trunk: Params, ids: np.ndarray | None) -> None:
    """Writes the trunk (bf16 safetensors), the ids it proposes (int32) and config.json naming the target."""
    path = Path(directory)
    path.mkdir(parents=True, exist_ok=True)
    tensors = {name: np.asarray(leaf).astype(jnp.bfloat16) for name, leaf in flatten(trunk).items()}
    if ids is not None:
        tensors[IDS] = np.asarray(ids, np.int32)
    save_file(tensors, path / WEIGHTS)
    settings = {"model_type": MODEL_TYPE, "target": target, "drafter": asdict(drafter)}
    (path / CONFIG).write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n", "utf-8")


def target_of(path: Path) -> str | None:
    """The target that a folder's drafter was made for; None where the folder holds no such drafter."""
    try:
        settings = json.loads((path / CONFIG).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(settings, dict) or settings.get("model_type") != MODEL_TYPE:
        return None
    return str(settings.get("target"))


def is_shared(leaf: str) -> bool:
    """Whether a leaf of the target, by its path, is part of its drafters too."""
    from spec_cascades.distill import student

    return leaf.split("/")[0] in (student.TABLE, student.HEAD)


class Stored(NamedTuple):
    """What a folder holds: the drafter's settings, its trunk, and the ids it proposes (None: all)."""

    drafter: Any
    trunk: Params
    ids: np.ndarray | None


def open_model(
    path: Path, target: Mapping[str, Leaf], config: Any
) -> tuple[Any, dict[str, Leaf], Any, dict[str, int]]:
    """LM, leaves by path, Config and bytes by dtype of the drafter in a folder, given its target's leaves and
    Config.

    Raises CheckpointError as `stored` does.
    """
    from spec_cascades.distill import student

    found = _open(path, config)
    small = student.config_of(config, found.drafter, found.ids)
    shared = unflatten({name: leaf for name, leaf in target.items() if is_shared(name)})
    lm, tree = student.assemble(shared, config, small, unflatten(found.trunk), found.ids)
    # Where an id has its logit is computed, not stored.
    own = {name: x if isinstance(x, Leaf) else leaves.of(x) for name, x in flatten(tree).items()}
    return lm, own, small, safetensors.open_folder(path).bytes_by_dtype()


def stored(path: Path, config: Any, dtype: str) -> Stored:
    """The parts of the drafter in a folder, given its target's Config.

    Raises CheckpointError unless the folder holds exactly the trunk's tensors and ids within the target's.
    """
    found = _open(path, config)
    return found._replace(trunk=build(found.trunk, dtype))


def _open(path: Path, config: Any) -> Stored:
    """As `stored`, the trunk as leaves by path."""
    from spec_cascades.config import build as filled
    from spec_cascades.distill import student
    from spec_cascades.distill.settings import Drafter

    settings = json.loads((path / CONFIG).read_text("utf-8"))
    drafter = filled(Drafter, settings.get("drafter", {}), "drafter.")
    folder = safetensors.open_folder(path)
    shapes = dict(folder.shapes)
    ids = None if (shape := shapes.pop(IDS, None)) is None else folder.part(IDS, leaves.whole(shape))
    if (ids is None) != (drafter.vocabulary is None):
        raise CheckpointError(f"{path}: {IDS} and drafter.vocabulary ({drafter.vocabulary}) disagree")
    if ids is not None and not (ids.size and ids.min() >= 0 and ids.max() < config.vocab):
        raise CheckpointError(f"{path}: {IDS} lie outside the target's {config.vocab} ids")
    check_exact(student.shapes(config, drafter), shapes, str(path))
    for name in shapes:
        check_floating(name, folder.dtypes[name])
    return Stored(drafter, {name: safetensors.leaf(folder, name) for name in shapes}, ids)
