"""Hugging Face folders: config.json beside model.safetensors, or beside shards and their index."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from spec_cascades.checkpoints import families
from spec_cascades.checkpoints.families.base import Family, Opened, Place, stored
from spec_cascades.checkpoints.leaves import Index, Leaf, joined_cover, whole
from spec_cascades.checkpoints.tree import CheckpointError, Shapes, check_exact, check_floating, flatten
from spec_cascades.typing import Params

SINGLE, INDEX, CONFIG = "model.safetensors", "model.safetensors.index.json", "config.json"
DTYPES = {"BF16": "bfloat16"}
DTYPES |= {
    f"{letter}{n}": f"{kind}{n}" for letter, kind in (("F", "float"), ("I", "int")) for n in (16, 32, 64)
}
DTYPES |= {"I8": "int8", "U8": "uint8"}
"""The file's names of dtypes -> numpy's; others keep the file's name."""
SHARD_BYTES = 5_000_000_000
PART = 2**22
"""Bytes read at a time, of float32."""


@dataclass(frozen=True)
class Folder:
    """The tensors of a folder: name -> file, shape and dtype; nothing is read before `part`.

    stored: name -> the name in the file, where they differ.
    """

    path: Path
    file_of: Mapping[str, Path]
    shapes: Shapes
    dtypes: Mapping[str, str]
    stored: Mapping[str, str] = field(default_factory=dict)

    def part(self, name: str, index: Index) -> np.ndarray:
        """A part of one tensor, in the file's own dtype; nothing else of it is read.

        The file is mapped anew, so that parts read before do not stay in memory.
        """
        with safe_open(self.file_of[name], "numpy") as file:
            return file.get_slice(self.stored.get(name, name))[index]

    def same(self, a: str, b: str) -> bool:
        """Whether two tensors are there and equal, of which a part of each is held at a time."""
        if b not in self.shapes or self.shapes[a] != self.shapes[b]:
            return False
        rows, *rest = whole(self.shapes[a])
        parts = ((step, *rest) for step in _steps(rows, 4 * math.prod(self.shapes[a][1:])))
        return all(np.array_equal(self.part(a, i), self.part(b, i)) for i in parts)

    def bytes_by_dtype(self) -> dict[str, int]:
        """What the folder stores."""
        return stored((self.dtypes[name], shape) for name, shape in self.shapes.items())

    def renamed(self, canonical: Callable[[str], str | None]) -> "Folder":
        """The same tensors under other names, without those that `canonical` maps to None.

        Raises CheckpointError where two tensors would have one name.
        """
        own: dict[str, str] = {}
        for name in self.shapes:
            new = canonical(name)
            if new in own:
                raise CheckpointError(f"{self.path} holds {new} twice, as {own[new]} and as {name}")
            if new is not None:
                own[new] = name
        pick = lambda table: {new: table[old] for new, old in own.items()}
        return Folder(self.path, pick(self.file_of), pick(self.shapes), pick(self.dtypes), own)


def open_folder(path: Path) -> Folder:
    """The tensors of a Hugging Face folder, whose index must agree with its shards.

    Raises CheckpointError where there are no safetensors or the index names what is not there.
    """
    if (path / SINGLE).is_file():
        claimed = {name: path / SINGLE for name in _header(path / SINGLE)}
    elif (path / INDEX).is_file():
        listed = _json(path / INDEX).get("weight_map", {})
        claimed = {name: path / Path(file).name for name, file in listed.items()}
    else:
        raise CheckpointError(
            f"{path} holds neither {SINGLE} nor {INDEX} (other formats, pickles above all, are not read)"
        )
    held = {file: _header(file) for file in sorted(set(claimed.values()))}
    _check_index(path, claimed, held)
    shapes, dtypes = ({name: held[file][name][i] for name, file in claimed.items()} for i in (0, 1))
    return Folder(path, claimed, shapes, dtypes)


Header = Mapping[str, tuple[tuple[int, ...], str]]
"""Tensor -> shape and dtype."""


def _check_index(path: Path, claimed: Mapping[str, Path], held: Mapping[Path, Header]) -> None:
    stray = [name for file, header in held.items() for name in header if claimed.get(name) != file]
    absent = [name for name, file in claimed.items() if name not in held[file]]
    if stray or absent:
        raise CheckpointError(
            f"{path / INDEX} disagrees with its shards; not listed: {stray}; not in its shard: {absent}"
        )


def _header(file: Path) -> Header:
    of = lambda part: (tuple(part.get_shape()), DTYPES.get(part.get_dtype(), part.get_dtype()))
    try:
        with safe_open(file, "numpy") as opened:
            return {name: of(opened.get_slice(name)) for name in opened.keys()}
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
    family = families.by_model_type(_json(path / CONFIG).get("model_type"))
    family.check_dtype(dtype)
    opened = open_model(path)
    return family, opened.config, opened.read(dtype)


def open_model(path: Path) -> Opened:
    """What a Hugging Face folder holds, unread but for copies; raises CheckpointError as `read` does."""
    settings = _json(path / CONFIG)
    family = families.by_model_type(settings.get("model_type"))
    folder = open_folder(path).renamed(family.canonical)
    config = family.read_config(settings, folder)
    places = family.places(config)
    check_exact(_expected(family, config, places), _without_copies(family, config, folder), str(path))
    shapes = flatten(family.shapes_of(config))
    for name in places:
        check_floating(name, folder.dtypes[name])
    held = stored((folder.dtypes[name], folder.shapes[name]) for name in places)
    return Opened(family, config, held, _leaves(folder, places, shapes))


def _expected(family: Family, config: Any, places: Mapping[str, Place]) -> Shapes:
    """Shapes by Hugging Face name."""
    shapes = flatten(family.shapes_of(config))
    return {name: place.shape(shapes[place.path]) for name, place in places.items()}


def _without_copies(family: Family, config: Any, folder: Folder) -> Shapes:
    """The folder's shapes without tensors that only repeat another; a copy that differs is an error."""
    copies = {a: b for a, b in family.duplicates(config).items() if a in folder.shapes and b in folder.shapes}
    for name, original in copies.items():
        if not folder.same(name, original):
            raise CheckpointError(f"{folder.path}: {name} should repeat {original} and differs from it")
    left_out = copies.keys() | family.never_used
    return {name: shape for name, shape in folder.shapes.items() if name not in left_out}


def _leaves(folder: Folder, places: Mapping[str, Place], shapes: Shapes) -> dict[str, Leaf]:
    """The parameters by path; of the tensors in a leaf, each is read where a wanted part meets it."""
    parts: dict[str, dict[str, Place]] = {}
    for name, place in places.items():
        parts.setdefault(place.path, {})[name] = place
    return {path: Leaf(shapes[path], partial(_fill, folder, own)) for path, own in parts.items()}


def leaf(folder: Folder, name: str) -> Leaf:
    """One tensor as the file has it."""
    return Leaf(folder.shapes[name], partial(_copy, folder, name, folder.shapes[name]))


def _fill(folder: Folder, parts: Mapping[str, Place], out: np.ndarray, index: Index) -> None:
    for name, place in parts.items():
        if (seen := place.view(out, index)) is not None:
            _copy(folder, name, place.split or folder.shapes[name], *seen)


def _copy(folder: Folder, name: str, apart: tuple[int, ...], view: np.ndarray, index: Index) -> None:
    """Reads a part of a tensor, by its axes with heads apart, into `view`, some PART bytes at a time."""
    shape, (first, *rest) = folder.shapes[name], index
    _, block, _ = joined_cover(index, apart, shape)
    for rows in _steps(first, 4 * math.prod(block[1:])):
        cover, block, inside = joined_cover((rows, *rest), apart, shape)
        part = folder.part(name, cover).reshape(block)[inside]
        view[rows.start - first.start : rows.stop - first.start] = part


def _steps(rows: slice, row_bytes: int) -> Iterator[slice]:
    """`rows` in steps of at most PART bytes, or of one row."""
    step = max(1, PART // max(1, row_bytes))
    for start in range(rows.start, rows.stop, step):
        yield slice(start, min(start + step, rows.stop))


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
    places = family.places(config)
    give = lambda name: _given(flat[places[name].path], places[name], dtype)
    sizes = {name: _bytes(place.shape(flat[place.path].shape), dtype) for name, place in places.items()}
    path.mkdir(parents=True, exist_ok=True)
    settings = family.write_config(config) | {"dtype": dtype}
    (path / CONFIG).write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n", "utf-8")
    _write(path, give, sizes, shard_bytes)


def _given(leaf: Any, place: Place, dtype: str) -> np.ndarray:
    return place.give(np.asarray(leaf)).astype(jnp.dtype(dtype), order="C")


def _bytes(shape: tuple[int, ...], dtype: str) -> int:
    return math.prod(shape) * jnp.dtype(dtype).itemsize


def _write(path: Path, give: Callable[[str], np.ndarray], sizes: Mapping[str, int], shard_bytes: int) -> None:
    for old in [*path.glob("model*.safetensors"), path / INDEX]:
        old.unlink(missing_ok=True)
    shards = _shards(sizes, shard_bytes)
    names = [SINGLE] if len(shards) == 1 else [_shard_name(i, len(shards)) for i in range(len(shards))]
    for file, shard in zip(names, shards, strict=True):
        # transformers refuses a file that does not say which framework's layout it has.
        save_file({name: give(name) for name in shard}, path / file, {"format": "pt"})
        (path / file).chmod(0o644)  # newer writers of the format leave it to its owner alone
    if len(shards) > 1:
        weight_map = {name: file for file, shard in zip(names, shards, strict=True) for name in shard}
        index = {"metadata": {"total_size": sum(sizes.values())}, "weight_map": weight_map}
        (path / INDEX).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n", "utf-8")


def _shards(sizes: Mapping[str, int], shard_bytes: int) -> list[list[str]]:
    shards: list[list[str]] = [[]]
    full = 0
    for name, size in sizes.items():
        if shards[-1] and full + size > shard_bytes:
            shards.append([])
            full = 0
        shards[-1].append(name)
        full += size
    return shards


def _shard_name(index: int, count: int) -> str:
    return f"model-{index + 1:05d}-of-{count:05d}.safetensors"
