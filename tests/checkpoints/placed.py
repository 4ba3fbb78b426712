"""What `test_placing.py` runs in a process of its own with eight devices: one JSON object of what it saw.

For each stored form of a tiny model and each layout: the leaves that differ from the model loaded whole, the
leaves that are laid out otherwise than asked, and the bytes that were read, where the form has a spy.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import tiny_llama
import tiny_orbax
import tiny_t5
from counted import counting
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from spec_cascades.checkpoints import drafter, load, orbax, safetensors
from spec_cascades.checkpoints.tree import flatten
from spec_cascades.distill import student
from spec_cascades.distill.settings import Drafter
from spec_cascades.models import gemma, t5

LAYOUTS = {
    "first": ("four", None),
    "last": (None, "four"),
    "both": ("two", "four"),
    "eight": (("two", "four"), None),
}
"""What the longest axes are divided by: of a leaf's axes the earliest that can be, then the latest."""


def devices():
    """All eight as a mesh."""
    return jax.make_mesh((2, 4), ("two", "four"), axis_types=(AxisType.Auto,) * 2)


def placement(mesh: Mesh, first, last):
    """Lays the first axis that `first` divides along it, and of the others the last that `last` divides."""

    def place(path, shape):
        spec = [None] * len(shape)
        for name, order in ((first, range(len(shape))), (last, reversed(range(len(shape))))):
            parts = 1 if name is None else np.prod([mesh.shape[n] for n in np.atleast_1d(name)])
            free = [i for i in order if spec[i] is None and shape[i] % parts == 0]
            if parts > 1 and free:
                spec[free[0]] = name
        return NamedSharding(mesh, P(*spec))

    return place


def folders(root: Path):
    """Name -> where a model is stored: every family and layout, GGUF, a drafter."""
    found = {}
    for name, config in {**tiny_orbax.GEMMAS, **tiny_orbax.OTHERS}.items():
        params = tiny_orbax.random_params(config)
        safetensors.save(root / f"hf-{name}", config, params, "float32", shard_bytes=4000)
        orbax.save(root / f"own-{name}", config, params, "float32")
        found |= {f"safetensors {name}": root / f"hf-{name}", f"own orbax {name}": root / f"own-{name}"}
    config = replace(tiny_orbax.GEMMAS["gemma-2"], vocab=32)
    gemma.PRESETS["tiny"] = config
    for name, layout in tiny_orbax.LAYOUTS.items():
        path = root / f"orbax-{name}"
        found[f"orbax {name}"] = tiny_orbax.put(path, layout(tiny_orbax.random_params(config), config))
    config = t5.Config(**tiny_t5.SIZES)
    for name, layout in tiny_t5.LAYOUTS.items():
        found[f"t5x {name}"] = layout(root / f"t5x-{name}", tiny_t5.random_params(config))
    config = tiny_llama.config()
    tensors = tiny_llama.tensors(config, tiny_llama.params(config))
    tiny_llama.write(root / "m.gguf", tiny_llama.keys(config), tensors, "Q8_0")
    return found | {"gguf": root / "m.gguf", "drafter": distilled(root / "drafter", root / "m.gguf")}


def distilled(path: Path, target: Path):
    loaded = load(str(target), "float32")
    own = Drafter(layers=1, vocabulary=16)
    trunk = student.trunk(loaded.params, loaded.config, own, jax.random.key(0))
    drafter.save(path, str(target), own, trunk, np.arange(0, 32, 2, dtype=np.int32))
    return path


def compared(path: Path, whole, place):
    """Paths that differ, paths that lie elsewhere, and the bytes of safetensors that were read."""
    with counting() as seen:
        got = flatten(load(str(path), "float32", place).params)
    laid = {name: x.sharding.is_equivalent_to(place(name, x.shape), x.ndim) for name, x in got.items()}
    same = {name: np.array_equal(np.asarray(got.get(name)), x) for name, x in whole.items()}
    return {
        "leaves": len(got),
        "differ": [name for name, ok in same.items() if not ok],
        "elsewhere": [name for name, ok in laid.items() if not ok],
        "divided": sum(not x.sharding.is_fully_replicated for x in got.values()),
        "read": seen.bytes,
        "stored": sum(x.nbytes for x in whole.values()),
    }


def refused(path: Path, mesh: Mesh):
    """What is said of a sharding that does not divide its leaf, and how much was read by then."""
    place = lambda path, shape: NamedSharding(mesh, P(("two", "four")) if "final_norm" in path else P())
    with counting() as seen:
        try:
            load(str(path), "float32", place)
        except ValueError as error:
            return {"said": str(error), "read": seen.bytes}


def main(root: Path):
    mesh, seen = devices(), {}
    for name, path in folders(root).items():
        whole = {n: np.asarray(x) for n, x in flatten(load(str(path), "float32").params).items()}
        seen[name] = {k: compared(path, whole, placement(mesh, *axes)) for k, axes in LAYOUTS.items()}
    whole = flatten(load(str(root / "hf-gemma-2"), "bfloat16").params)
    narrow = flatten(load(str(root / "hf-gemma-2"), "bfloat16", placement(mesh, *LAYOUTS["both"])).params)
    same = all(np.array_equal(np.asarray(narrow[n]), np.asarray(x)) for n, x in whole.items())
    dtypes = sorted({str(x.dtype) for x in narrow.values()})
    print(json.dumps({
        "devices": jax.device_count(),
        "seen": seen,
        "bfloat16": {"same": same, "dtypes": dtypes},
        "refused": refused(root / "hf-gemma-2", mesh),
    }))  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]))
