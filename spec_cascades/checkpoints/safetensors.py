"""Hugging Face folders: config.json beside model.safetensors, or beside shards and their index."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from spec_cascades.checkpoints import families
from spec_cascades.checkpoints.families.base import Family, Place
from spec_cascades.checkpoints.tree import CheckpointError, Shapes, as_weight, check_exact, flatten, unflatten
from spec_cascades.typing import Params

SINGLE, INDEX, CONFIG = "model.safetensors", "model.safetensors.index.json", "config.json"
SHARD_BYTES = 5_000_000_000


@dataclass(frozen=True)
class Folder:
    """The tensors of a folder: name -> file and shape; nothing is read before `read`."""

    path: Path
    file_of: Mapping[str, Path]
    shapes: Shapes

    def read(self, name: str) -> np.ndarray:
        """One tensor, in the file's own dtype."""
        with safe_open(self.file_of[name], "numpy") as file:
            return file.get_tensor(name)


def open_folder(path: Path) -> Folder:
    """The tensors of a Hugging Face folder, whose index must agree with its shards.

    Raises CheckpointError where there are no safetensors or the index names what is not there.
    """
    if (path / SINGLE).is_file():
        claimed = {name: path / SINGLE for name in _shapes(path / SINGLE)}
    elif (path / INDEX).is_file():
        listed = _json(path / INDEX).get("weight_map", {})
        claimed = {name: path / Path(file).name for name, file in listed.items()}
    else:
        raise CheckpointError(
            f"{path} holds neither {SINGLE} nor {INDEX} (other formats, pickles above all, are not read)"
        )
    held = {file: _shapes(file) for file in sorted(set(claimed.values()))}
    _check_index(path, claimed, held)
    return Folder(path, claimed, {name: held[file][name] for name, file in claimed.items()})


def _check_index(path: Path, claimed: Mapping[str, Path], held: Mapping[Path, Shapes]) -> None:
    stray = [name for file, shapes in held.items() for name in shapes if claimed.get(name) != file]
    absent = [name for name, file in claimed.items() if name not in held[file]]
    if stray or absent:
        raise CheckpointError(
            f"{path / INDEX} disagrees with its shards; not listed: {stray}; not in its shard: {absent}"
        )


def _shapes(file: Path) -> dict[str, tuple[int, ...]]:
    try:
        with safe_open(file, "numpy") as opened:
            return {name: tuple(opened.get_slice(name).get_shape()) for name in opened.keys()}
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{file} cannot be read: {error}") from error


def _json(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{file} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{file} is a {type(value).__name__}, expected an object")
    return value


def read(path: Path, dtype: str) -> tuple[Family, Any, Params]:
    """Family, Config and parameters of a Hugging Face folder, tensor by tensor in `dtype`.

    Raises ValueError for a dtype or model type that is not supported, and CheckpointError unless the
    folder holds exactly the model's tensors.
    """
    settings = _json(path / CONFIG)
    family = families.by_model_type(settings.get("model_type"))
    family.check_dtype(dtype)
    folder = open_folder(path)
    config = family.read_config(settings, folder)
    places = family.places(config)
    check_exact(_expected(family, config, places), _without_copies(family, config, folder), str(path))
    return family, config, unflatten(_leaves(folder, places, flatten(family.shapes_of(config)), dtype))


def _expected(family: Family, config: Any, places: Mapping[str, Place]) -> Shapes:
    """Shapes by Hugging Face name."""
    shapes = flatten(family.shapes_of(config))
    return {name: place.shape(shapes[place.path]) for name, place in places.items()}


def _without_copies(family: Family, config: Any, folder: Folder) -> Shapes:
    """The folder's shapes without tensors that only repeat another; a copy that differs is an error."""
    copies = {a: b for a, b in family.duplicates(config).items() if a in folder.shapes and b in folder.shapes}
    for name, original in copies.items():
        if not np.array_equal(folder.read(name), folder.read(original)):
            raise CheckpointError(f"{folder.path}: {name} should repeat {original} and differs from it")
    left_out = copies.keys() | family.never_used
    return {name: shape for name, shape in folder.shapes.items() if name not in left_out}


def _leaves(folder: Folder, places: Mapping[str, Place], shapes: Shapes, dtype: str) -> dict[str, Any]:
    """The parameters by path; a leaf that several tensors fill is put together in `dtype`."""
    flat: dict[str, Any] = {}
    for name, place in places.items():
        value = place.take(folder.read(name))
        if not place.slot:
            flat[place.path] = as_weight(name, value, dtype)
            continue
        if place.path not in flat:
            flat[place.path] = np.empty(shapes[place.path], jnp.dtype(dtype))
        flat[place.path][place.slot] = as_weight(name, value, dtype)
    return {path: jnp.asarray(leaf) for path, leaf in flat.items()}


def save(
    directory: Path | str, config: Any, params: Params, dtype: str, shard_bytes: int = SHARD_BYTES
) -> None:
    """Writes config.json and model.safetensors (or shards of at most `shard_bytes` and their index).

    transformers reads the folder. Raises ValueError for a dtype that is not supported and CheckpointError
    unless `params` is exactly the model's tree.
    """
    family, path = families.by_config(config), Path(directory)
    family.check_dtype(dtype)
    flat = flatten(params)
    check_exact(
        flatten(family.shapes_of(config)), {name: leaf.shape for name, leaf in flat.items()}, "params"
    )
    give = lambda p: p.give(np.asarray(flat[p.path])).astype(jnp.dtype(dtype), order="C")
    tensors = {name: give(place) for name, place in family.places(config).items()}
    path.mkdir(parents=True, exist_ok=True)
    settings = family.write_config(config) | {"dtype": dtype}
    (path / CONFIG).write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n", "utf-8")
    _write(path, tensors, shard_bytes)


def _write(path: Path, tensors: dict[str, np.ndarray], shard_bytes: int) -> None:
    for old in [*path.glob("model*.safetensors"), path / INDEX]:
        old.unlink(missing_ok=True)
    shards = _shards(tensors, shard_bytes)
    names = [SINGLE] if len(shards) == 1 else [_shard_name(i, len(shards)) for i in range(len(shards))]
    for file, shard in zip(names, shards, strict=True):
        # transformers refuses a file that does not say which framework's layout it has.
        save_file({name: tensors[name] for name in shard}, path / file, {"format": "pt"})
    if len(shards) > 1:
        weight_map = {name: file for file, shard in zip(names, shards, strict=True) for name in shard}
        total = sum(value.nbytes for value in tensors.values())
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        (path / INDEX).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n", "utf-8")


def _shards(tensors: Mapping[str, np.ndarray], shard_bytes: int) -> list[list[str]]:
    shards: list[list[str]] = [[]]
    size = 0
    for name, value in tensors.items():
        if shards[-1] and size + value.nbytes > shard_bytes:
            shards.append([])
            size = 0
        shards[-1].append(name)
        size += value.nbytes
    return shards


def _shard_name(index: int, count: int) -> str:
    return f"model-{index + 1:05d}-of-{count:05d}.safetensors"
