"""Orbax: our own folders (model.json beside params/), and the layouts in which Gemma is published.

Gemma comes flat (`transformer/layer_0/attn/q_einsum` is one key, `w` the next), stacked (layers of equal
place in the attention pattern joined on a first axis) and nested, as its modules are; a training run's folder
keeps the nested tree under `params`.
"""

import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

import jax
import jax.numpy as jnp

from spec_cascades.checkpoints import families
from spec_cascades.checkpoints.families.base import Family, Opened, stored
from spec_cascades.checkpoints.tree import (
    CheckpointError,
    blank,
    check_exact,
    check_floating,
    flatten,
    unflatten,
)
from spec_cascades.typing import Params

MODEL, PARAMS, MARK = "model.json", "params", "_METADATA"
CHUNK = 2**22
"""Bytes that are packed together: what reading needs beside an array's own place."""

RUN = {"collections", "opt_state", "params", "step"}
"""What lies beside the parameters in the folder of a training run."""

SEEING = re.compile(r"(SigLiPFromPatches_0|vision_encoder|embedder/mm_\w+)(/|$)")
"""Arrays of the part of a Gemma that sees images."""

STACKED = re.compile(r"stacked_layers/attention_type_(\d+)/(.+)")


class Leaf(NamedTuple):
    """An array of an Orbax tree: its keys, shape and dtype in the file, and how tensorstore opens it."""

    keys: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    spec: dict[str, Any]


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
    leaves = {"/".join(leaf.keys): leaf for leaf in _leaves(path / PARAMS)}
    check_exact(flatten(family.shapes_of(config)), {k: leaf.shape for k, leaf in leaves.items()}, str(path))
    held = _stored(leaves.values())
    return Opened(family, config, held, lambda dtype: unflatten(_restore(path / PARAMS, leaves, dtype)))


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


def _stored(leaves: Any) -> dict[str, int]:
    return stored((leaf.dtype, leaf.shape) for leaf in leaves)


def _leaves(path: Path) -> list[Leaf]:
    """The arrays that an Orbax tree's metadata lists; CheckpointError for integers and unreadable files."""
    import orbax.checkpoint as ocp

    try:
        with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
            metadata = reader.metadata(path.resolve()).item_metadata
    except Exception as error:  # Orbax and tensorstore share no base class of errors
        raise CheckpointError(f"{path} cannot be read as Orbax: {error}") from error
    if metadata is None:
        raise CheckpointError(f"{path} cannot be read as Orbax: it has no metadata or no arrays")
    found = [
        Leaf(keys, tuple(leaf.shape), str(leaf.dtype), _spec(path, leaf.name, metadata.use_zarr3))
        for keys, leaf in _walk(metadata.tree)
    ]
    for leaf in found:
        check_floating("/".join(leaf.keys), leaf.dtype)
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


def _restore(path: Path, leaves: Mapping[str, Leaf], dtype: str) -> dict[str, jax.Array]:
    """The arrays by name, one after another, each straight into its dtype.

    With tensorstore rather than Orbax, which reads all at once and keeps another 100 MB of what it has read.
    """
    import tensorstore as ts

    context = ts.Context({"cache_pool": {"total_bytes_limit": 0}})
    # A quarter of the largest keeps many readers busy, and what they hold well below that array's size.
    budget = max([CHUNK, *(_stored([leaf])[leaf.dtype] // 4 for leaf in leaves.values())])
    arrays = {}
    for name, leaf in leaves.items():
        try:
            source = ts.open(leaf.spec, read=True, open=True, context=context).result()
            value = blank(leaf.shape, dtype)
            place, cast = ts.array(value), ts.cast(source, value.dtype)
            for part in _parts(source, budget):
                place[part].write(cast[part]).result()
        except ValueError as error:
            raise CheckpointError(f"{path}: {name} cannot be read: {error}") from error
        arrays[name] = jax.device_put(value)
    return arrays


def _parts(source: Any, budget: int) -> Iterator[tuple[slice, ...]]:
    """The array's domain in parts of whole chunks, of at most `budget` bytes unless one chunk is more."""
    steps, chunk = [], source.chunk_layout.read_chunk.shape
    size = math.prod(chunk) * source.dtype.numpy_dtype.itemsize
    for length, own in zip(source.shape, chunk, strict=True):
        count = max(1, min(budget // size, -(-length // own)))
        steps.append(count * own)
        size *= count
    cut = lambda length, step: [slice(i, min(i + step, length)) for i in range(0, length, step)]
    return itertools.product(*map(cut, source.shape, steps))


# ----------------------------------------------------------------------------------------------------
# Gemma as it is published


def _gemma(path: Path) -> Opened:
    family = families.by_model_type("gemma")
    leaves = {name: leaf for leaf in _leaves(path) if (name := _name(leaf)) is not None}
    pattern = 1 + max((int(m[1]) for name in leaves if (m := STACKED.fullmatch(name))), default=-1)
    shapes = {n: s for name, leaf in leaves.items() for n, s in _apart(name, leaf.shape, pattern).items()}
    config = family.infer(shapes)
    turned = {name for name, shape in shapes.items() if _is_turned(name, shape, config)}
    straight = {n: (*s[:-2], s[-1], s[-2]) if n in turned else s for n, s in shapes.items()}
    check_exact(flatten(family.shapes_of(config)), straight, str(path))

    def load(dtype: str) -> Params:
        arrays = _restore(path, leaves, dtype)
        flat = {}
        for name in leaves:
            whole = arrays.pop(name)
            for i, (n, _) in enumerate(_apart(name, whole.shape, pattern).items()):
                part = whole[i] if STACKED.fullmatch(name) else whole
                flat[n] = jnp.swapaxes(part, -1, -2) if n in turned else part
        return unflatten(flat)

    return Opened(family, config, _stored(leaves.values()), load)


def _name(leaf: Leaf) -> str | None:
    """An array's name in the tree of the model's modules; None for a part that sees images."""
    name = "/".join(leaf.keys).removeprefix("params/").removeprefix("transformer/")
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
