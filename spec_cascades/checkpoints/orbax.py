"""Orbax: our own folders (model.json beside params/), and the layouts in which Gemma is published.

Gemma comes flat (`transformer/layer_0/attn/q_einsum` is one key, `w` the next), stacked (layers of equal
place in the attention pattern joined on a first axis) and nested, as its modules are; a training run's folder
keeps the nested tree under `params`.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

import jax
import jax.numpy as jnp

from spec_cascades.checkpoints import families
from spec_cascades.checkpoints.families.base import Family, Opened, stored
from spec_cascades.checkpoints.leaves import Leaf
from spec_cascades.checkpoints.stores import CHUNK, Array, Stores
from spec_cascades.checkpoints.tree import CheckpointError, check_exact, check_floating, flatten, unflatten
from spec_cascades.typing import Params

MODEL, PARAMS, MARK = "model.json", "params", "_METADATA"

RUN = {"collections", "opt_state", "params", "step"}
"""What lies beside the parameters in the folder of a training run."""

SEEING = re.compile(r"(SigLiPFromPatches_0|vision_encoder|embedder/mm_\w+)(/|$)")
"""Arrays of the part of a Gemma that sees images."""

STACKED = re.compile(r"stacked_layers/attention_type_(\d+)/(.+)")


class Found(NamedTuple):
    """An array of an Orbax tree: its keys, and what its metadata say."""

    keys: tuple[str, ...]
    array: Array


# ----------------------------------------------------------------------------------------------------
# Our own folders


def save(directory: Path | str, config: Any, params: Params, dtype: str) -> None:
    """Writes model.json (family and Config) and params/, an Orbax tree of the parameters in `dtype`.

    Raises ValueError for a dtype that is not supported and CheckpointError unless `params` is exactly the
    model's tree.
    """
    import orbax.checkpoint as ocp

    family, path = families.by_config(config), Path(directory)
    family.check_dtype(dtype)
    flat = flatten(params)
    check_exact(flatten(family.shapes_of(config)), {k: leaf.shape for k, leaf in flat.items()}, "params")
    path.mkdir(parents=True, exist_ok=True)
    tree = unflatten({name: jnp.asarray(leaf).astype(dtype) for name, leaf in flat.items()})
    chunks = jax.tree.map(lambda _: ocp.SaveArgs(chunk_byte_size=CHUNK), tree)
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as writer:
        writer.save(path.resolve() / PARAMS, args=ocp.args.PyTreeSave(tree, save_args=chunks), force=True)
    settings = {"model_type": family.model_type, "config": _to_json(config)}
    (path / MODEL).write_text(json.dumps(settings, indent=2) + "\n", "utf-8")


def _to_json(config: Any) -> dict[str, Any]:
    """A Config's fields; a dataclass among them carries its name as `type`."""
    value = lambda v: {"type": type(v).__name__} | _to_json(v) if is_dataclass(v) else v
    return {field.name: value(getattr(config, field.name)) for field in fields(config)}


def _from_json(kind: type, given: Mapping[str, Any], where: Path) -> Any:
    """The dataclass `kind` of its fields; CheckpointError for a field or a type that it does not know."""
    hints = get_type_hints(kind)
    unknown = [name for name in given if name not in hints]
    if unknown:
        raise CheckpointError(f"{where}: {unknown} are no fields of {kind.__name__}; it has {sorted(hints)}")

    def value(name: str) -> Any:
        v = given[name]
        if not isinstance(v, Mapping):
            return tuple(v) if isinstance(v, list) else v
        kinds = {t.__name__: t for t in get_args(hints[name]) if is_dataclass(t)}
        if v.get("type") not in kinds:
            raise CheckpointError(f"{where}: {name} is of type {v.get('type')!r}, not one of {sorted(kinds)}")
        return _from_json(kinds[v["type"]], {k: x for k, x in v.items() if k != "type"}, where)

    return kind(**{name: value(name) for name in given})


def _own(path: Path) -> Opened:
    try:
        settings = json.loads((path / MODEL).read_text("utf-8"))
        model_type, given = settings["model_type"], dict(settings["config"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise CheckpointError(f"{path / MODEL} cannot be read as a model's description: {error!r}") from error
    family = families.by_model_type(model_type)
    config = _from_json(family.config, given, path / MODEL)
    arrays = {"/".join(found.keys): found.array for found in _arrays(path / PARAMS)}
    check_exact(flatten(family.shapes_of(config)), {k: array.shape for k, array in arrays.items()}, str(path))
    stores = Stores()
    leaves = {name: stores.leaf(array) for name, array in arrays.items()}
    return Opened(family, config, _stored(arrays.values()), leaves)


# ----------------------------------------------------------------------------------------------------
# Reading either kind


def find(path: Path) -> Path | None:
    """The Orbax folder at `path`, or the only one among its subfolders; None if there is none."""
    if (path / MODEL).is_file() or _is_tree(path):
        return path
    if not path.is_dir():
        return None
    inside = [p for p in sorted(path.iterdir()) if p.is_dir() and (_is_tree(p) or (p / MODEL).is_file())]
    return inside[0] if len(inside) == 1 else None


def _is_tree(path: Path) -> bool:
    """Whether Orbax wrote the folder, and not for T5X, which keeps its own file beside."""
    mark = path / MARK
    return mark.is_file() and "('target'," not in mark.read_text("utf-8")


def open_model(path: Path) -> Opened:
    """What an Orbax folder of ours or of a Gemma holds, its arrays unread.

    Raises ValueError for a model type that is not supported and CheckpointError unless the folder holds
    exactly the model's tensors.
    """
    return _own(path) if (path / MODEL).is_file() else _gemma(path)


def read(path: Path, dtype: str) -> tuple[Family, Any, Params]:
    """Family, Config and parameters of an Orbax folder (see `open_model`), in `dtype`."""
    opened = open_model(path)
    opened.family.check_dtype(dtype)
    return opened.family, opened.config, opened.read(dtype)


def _stored(arrays: Any) -> dict[str, int]:
    return stored((array.dtype, array.shape) for array in arrays)


def _arrays(path: Path) -> list[Found]:
    """The arrays that an Orbax tree's metadata lists; CheckpointError for integers and unreadable files."""
    import orbax.checkpoint as ocp

    try:
        with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
            metadata = reader.metadata(path.resolve()).item_metadata
    except Exception as error:  # Orbax and tensorstore share no base class of errors
        raise CheckpointError(f"{path} cannot be read as Orbax: {error}") from error
    if metadata is None:
        raise CheckpointError(f"{path} cannot be read as Orbax: it has no metadata or no arrays")
    found = []
    for keys, leaf in _walk(metadata.tree):
        spec, name = _spec(path, leaf.name, metadata.use_zarr3), f"{path}: {'/'.join(keys)}"
        found.append(Found(keys, Array(name, tuple(leaf.shape), str(leaf.dtype), spec)))
        check_floating("/".join(keys), leaf.dtype)
    return found


def _spec(path: Path, name: str, zarr3: bool) -> dict[str, Any]:
    """An array in the one database that newer writers make of a tree, or in a folder of its own."""
    folder = {"driver": "file", "path": f"{path.resolve()}/"}
    if (path / "manifest.ocdbt").is_file():
        store = {"driver": "ocdbt", "base": folder, "path": f"{name}/"}
    else:
        store = folder | {"path": f"{path.resolve()}/{name}/"}
    return {"driver": "zarr3" if zarr3 else "zarr", "kvstore": store}


def _walk(tree: Mapping[str, Any], above: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    if above == () and set(tree) == RUN:
        tree = {"params": tree["params"]}
    found = []
    for key, value in tree.items():
        found += _walk(value, (*above, key)) if isinstance(value, Mapping) else [((*above, key), value)]
    return found


# ----------------------------------------------------------------------------------------------------
# Gemma as it is published


def _gemma(path: Path) -> Opened:
    family = families.by_model_type("gemma")
    arrays = {name: found.array for found in _arrays(path) if (name := _name(found.keys)) is not None}
    pattern = 1 + max((int(m[1]) for name in arrays if (m := STACKED.fullmatch(name))), default=-1)
    apart = {name: _apart(name, array.shape, pattern) for name, array in arrays.items()}
    shapes = {name: shape for parts in apart.values() for name, shape in parts.items()}
    config = family.infer(shapes)
    turned = {name for name, shape in shapes.items() if _is_turned(name, shape, config)}
    straight = {n: (*s[:-2], s[-1], s[-2]) if n in turned else s for n, s in shapes.items()}
    check_exact(flatten(family.shapes_of(config)), straight, str(path))
    stores = Stores()
    # Layers of one stacked array follow each other, so that each of its chunks is read once.
    leaves: dict[str, Leaf] = {
        n: stores.leaf(arrays[name], layer=i if STACKED.fullmatch(name) else None, turned=n in turned)
        for name, parts in apart.items()
        for i, n in enumerate(parts)
    }
    return Opened(family, config, _stored(arrays.values()), leaves)


def _name(keys: tuple[str, ...]) -> str | None:
    """An array's name in the tree of the model's modules; None for a part that sees images."""
    name = "/".join(keys).removeprefix("params/").removeprefix("transformer/")
    return None if SEEING.match(name) else re.sub(r"(/mlp/(linear|gating_einsum))/w$", r"\1", name)


def _apart(name: str, shape: tuple[int, ...], pattern: int) -> dict[str, tuple[int, ...]]:
    """The layers in an array: `attention_type_j` holds j, j + pattern, j + 2 pattern, ..."""
    match = STACKED.fullmatch(name)
    if match is None:
        return {name: shape}
    return {f"layer_{i * pattern + int(match[1])}/{match[2]}": shape[1:] for i in range(shape[0])}


def _is_turned(name: str, shape: tuple[int, ...], config: Any) -> bool:
    """Whether a gate is stored [2, d_model, d_ff], as the first models have it."""
    turned = (2, config.d_model, config.d_ff)
    return name.endswith("/mlp/gating_einsum") and shape == turned and config.d_model != config.d_ff
