"""T5X checkpoints: flax msgpack with arrays inline or as zarr folders beside it, layers apart or stacked.

Three generations: {'version', 'optimizer': {'target'}} with arrays or tensorstore specs as leaves, the same
under '_optimizer', and 'target' at the top with `PLACEHOLDER://name` strings as leaves.
"""

import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spec_cascades.checkpoints import families
from spec_cascades.checkpoints.families.base import Family, Opened, stored
from spec_cascades.checkpoints.leaves import Index, Leaf, apart_cover
from spec_cascades.checkpoints.stores import copy
from spec_cascades.checkpoints.tree import CheckpointError, check_exact, check_floating, flatten
from spec_cascades.typing import Params

PLACEHOLDER = "PLACEHOLDER://"
CHECKPOINT = "checkpoint"
STACKED = re.compile(r"(encoder|decoder)/(?:layers|\1)/(.+)")
"""Scanned layers live in one subtree named `layers` or after its stack."""


class Unreachable(CheckpointError):
    """A checkpoint whose storage did not answer."""


class Found(NamedTuple):
    """An array in memory or a tensorstore not read yet, and the shape it takes in our tree."""

    source: Any
    shape: tuple[int, ...]

    @property
    def dtype(self) -> str:
        """As numpy names it."""
        return str(getattr(self.source.dtype, "numpy_dtype", self.source.dtype))

    def fill(self, out: np.ndarray, index: Index) -> None:
        """Writes a part of the array into `out`."""
        source, shape = self.source, tuple(self.source.shape)
        if not isinstance(source, np.ndarray) and shape == self.shape:
            return copy(out, source, index)
        cover, block, inside = apart_cover(index, shape, self.shape)
        out[...] = _array(source[cover]).reshape(block)[inside]


class Location(NamedTuple):
    """A tensorstore kvstore spec of a folder (its path ends in /), and the msgpack file's name in it."""

    folder: dict[str, Any]
    file: str
    name: str


def local(path: Path) -> Location:
    """A `checkpoint_<step>` folder or the msgpack file itself."""
    folder, file = (path, CHECKPOINT) if path.is_dir() else (path.parent, path.name)
    return Location({"driver": "file", "path": f"{folder.resolve()}/"}, file, str(path))


def bucket(url: str) -> Location:
    """A `checkpoint_<step>` folder on Google Cloud Storage, `gs://bucket/path`."""
    name, _, path = url.removeprefix("gs://").partition("/")
    return Location({"driver": "gcs", "bucket": name, "path": f"{path.strip('/')}/"}, CHECKPOINT, url)


def read(where: Location, dtype: str) -> tuple[Family, Any, Params]:
    """Family, Config (inferred from the shapes) and parameters of a T5X checkpoint, leaf by leaf in `dtype`.

    Raises ValueError for a dtype that is not supported and CheckpointError unless the checkpoint holds
    exactly the model's tensors.
    """
    families.FAMILIES["t5"].check_dtype(dtype)
    opened = open_model(where)
    return opened.family, opened.config, opened.read(dtype)


def open_model(where: Location, family: Family = families.FAMILIES["t5"]) -> Opened:
    """What a T5X checkpoint holds, its arrays unread; raises CheckpointError as `read` does."""
    sources = _open_all(where, flatten(_target(_restore(where), where)))
    arrays = {name: _joined(name, source) for name, source in _unstacked(sources, where).items()}
    shapes = {name: array.shape for name, array in arrays.items()}
    config = family.infer(shapes)
    check_exact(flatten(family.shapes_of(config)), shapes, where.name)
    for name, array in arrays.items():
        check_floating(name, array.dtype)
    leaves = {name: Leaf(array.shape, array.fill) for name, array in arrays.items()}
    return Opened(family, config, stored((array.dtype, array.shape) for array in arrays.values()), leaves)


def context() -> Any:
    """How tensorstore talks to buckets: it gives up after seconds."""
    import tensorstore as ts

    # The default of 32 retries keeps a machine without network waiting for many minutes.
    return ts.Context({"gcs_request_retries": {"max_retries": 3, "initial_delay": "0.5s", "max_delay": "2s"}})


def _bytes(where: Location) -> bytes:
    import tensorstore as ts

    try:
        found = ts.KvStore.open(where.folder, context=context()).result().read(where.file).result()
    except ValueError as error:
        raise Unreachable(f"{where.name} cannot be read: {error}") from error
    if found.state != "value":
        raise CheckpointError(f"{where.name} holds no T5X file {where.file!r}")
    return found.value


def _restore(where: Location) -> dict[str, Any]:
    from flax.serialization import msgpack_restore

    data = _bytes(where)
    try:
        tree = msgpack_restore(data)
    except Exception as error:  # msgpack raises half a dozen unrelated types on foreign bytes
        raise CheckpointError(f"{where.name} is not flax msgpack: {error}") from error
    if not isinstance(tree, dict):
        raise CheckpointError(f"{where.name} is not a T5X checkpoint: its top is a {type(tree).__name__}")
    return tree


def _target(tree: dict[str, Any], where: Location) -> dict[str, Any]:
    state = tree.get("optimizer", tree.get("_optimizer", tree))
    target = state.get("target") if isinstance(state, dict) else None
    if not isinstance(target, dict) or not target:
        raise CheckpointError(
            f"{where.name} has no parameters at 'target' or 'optimizer/target'; it holds {sorted(tree)}"
        )
    return _keep_specs(target)


class _Spec(NamedTuple):
    path: str


def _keep_specs(tree: dict[str, Any]) -> dict[str, Any]:
    """The tree with tensorstore specs, which are mappings too, turned into leaves."""
    kept = {}
    for key, value in tree.items():
        if isinstance(value, dict) and isinstance(value.get("driver"), str):
            kept[key] = _Spec(_path_of(value))
        elif isinstance(value, dict):
            kept[key] = _keep_specs(value)
        elif isinstance(value, str):
            kept[key] = _Spec(value.removeprefix(PLACEHOLDER))
        else:
            kept[key] = value
    return kept


def _path_of(spec: dict[str, Any]) -> str:
    if spec["driver"] == "cast":
        return _path_of(spec["base"])
    if spec["driver"] != "zarr" or "path" not in spec.get("kvstore", {}):
        raise CheckpointError(f"tensorstore spec {spec} is not a zarr array in a folder")
    return spec["kvstore"]["path"]


def _open_all(where: Location, flat: dict[str, Any]) -> dict[str, Any]:
    buckets = context() if any(isinstance(value, _Spec) for value in flat.values()) else None
    pending = {
        name: _open(where, value.path, buckets) for name, value in flat.items() if isinstance(value, _Spec)
    }
    sources = {name: np.asarray(value) for name, value in flat.items() if name not in pending}
    absent = []
    for name, future in pending.items():
        try:
            sources[name] = future.result()
        except ValueError as error:
            absent.append(f"{name} ({error})")
    if absent:
        raise CheckpointError(
            f"{where.name}: arrays beside the file are missing or broken: {'; '.join(absent)}"
        )
    return sources


def _open(where: Location, path: str, context: Any) -> Any:
    import tensorstore as ts

    path = path.strip("/")
    # Names come from the file: one that climbs out of its folder is no T5X name.
    if ".." in Path(path).parts or not path:
        raise CheckpointError(f"{where.name}: array path {path!r} leaves the checkpoint's folder")
    store = where.folder | {"path": f"{where.folder['path']}{path}/"}
    return ts.open({"driver": "zarr", "kvstore": store}, read=True, open=True, context=context)


def _unstacked(sources: dict[str, Any], where: Location) -> dict[str, Any]:
    """Scanned layers (`decoder/layers/mlp/wo/kernel`, stacked on axis 1) as one entry a layer."""
    flat: dict[str, Any] = {}
    for name, source in sources.items():
        match = STACKED.fullmatch(name)
        if match is None:
            flat[name] = source
        elif len(source.shape) < 2:
            raise CheckpointError(f"{where.name}: {name} is {tuple(source.shape)}, expected layers on axis 1")
        elif name.endswith("/rel_embedding"):
            flat[f"{match[1]}/relpos_bias/rel_embedding"] = _one_bias(name, source)
        else:
            flat |= {f"{match[1]}/layers_{i}/{match[2]}": source[:, i] for i in range(source.shape[1])}
    return flat


def _one_bias(name: str, source: Any) -> np.ndarray:
    value = _array(source)
    if not (value == value[:, :1]).all():
        raise CheckpointError(
            f"{name} differs from layer to layer; a T5 has one relative bias for all its layers"
        )
    return value[:, 0]


def _joined(name: str, source: Any) -> Found:
    """Attention kernels with heads apart, [in, h, d] or [h, d, out], take the shape [in, out]."""
    shape = tuple(source.shape)
    if len(shape) == 3 and name.endswith("/out/kernel"):
        shape = (shape[0] * shape[1], shape[2])
    elif len(shape) == 3 and re.search(r"/(query|key|value)/kernel$", name):
        shape = (shape[0], shape[1] * shape[2])
    return Found(source, shape)


def _array(source: Any) -> np.ndarray:
    return source if isinstance(source, np.ndarray) else source.read().result()
