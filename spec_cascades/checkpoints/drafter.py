"""Distilled drafters: a folder that holds what was trained, and names the target that holds the rest."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

from spec_cascades.checkpoints import families
from spec_cascades.checkpoints.tree import CheckpointError, as_weight, check_exact, flatten, unflatten
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


def read(path: Path, target: Params, config: Any, dtype: str) -> tuple[Any, Params, Any]:
    """LM, parameters and Config of the drafter in a folder, given its target's parameters and Config.

    Raises CheckpointError as `stored` does.
    """
    from spec_cascades.distill import student

    drafter, trunk, ids = stored(path, config, dtype)
    small = student.config_of(config, drafter, ids)
    lm, params = student.assemble(target, config, small, trunk, ids)
    return lm, params, small


def describe(path: Path, config: Any) -> tuple[Any, dict[str, tuple[int, ...]], Any]:
    """LM, shapes by path and Config of the drafter in a folder, given its target's Config.

    Raises CheckpointError as `stored` does.
    """
    from spec_cascades.distill import student

    drafter, trunk, ids = stored(path, config, "float32")
    small = student.config_of(config, drafter, ids)
    shapes = flatten(families.by_config(config).shapes_of(config)).items()
    shared = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes if is_shared(name)}
    whole = jax.eval_shape(
        lambda target: student.assemble(target, config, small, trunk, ids)[1], unflatten(shared)
    )
    lm = student.lm_of(config, small, ids)
    return lm, {name: leaf.shape for name, leaf in flatten(whole).items()}, small


def stored(path: Path, config: Any, dtype: str) -> Stored:
    """The parts of the drafter in a folder, given its target's Config.

    Raises CheckpointError unless the folder holds exactly the trunk's tensors and ids within the target's.
    """
    from spec_cascades.config import build
    from spec_cascades.distill import student
    from spec_cascades.distill.settings import Drafter

    settings = json.loads((path / CONFIG).read_text("utf-8"))
    drafter = build(Drafter, settings.get("drafter", {}), "drafter.")
    with safe_open(path / WEIGHTS, "numpy") as file:
        held = {name: file.get_tensor(name) for name in file.keys()}
    ids = held.pop(IDS, None)
    if (ids is None) != (drafter.vocabulary is None):
        raise CheckpointError(f"{path}: {IDS} and drafter.vocabulary ({drafter.vocabulary}) disagree")
    if ids is not None and not (ids.size and ids.min() >= 0 and ids.max() < config.vocab):
        raise CheckpointError(f"{path}: {IDS} lie outside the target's {config.vocab} ids")
    check_exact(student.shapes(config, drafter), {name: x.shape for name, x in held.items()}, str(path))
    trunk = unflatten({name: as_weight(name, value, dtype) for name, value in held.items()})
    return Stored(drafter, trunk, ids)
