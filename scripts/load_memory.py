"""What loading needs: python scripts/load_memory.py [--gigabytes 3] [--preset gemma-2-2b] [--stored float32]

Writes a checkpoint of random weights in Hugging Face's layout (a published model's sizes, as many layers as
make it that large, in files of at most 1 GB with their index) into a temporary folder, and loads it in fresh
processes:

whole    without a placement, on one device
placed   onto 8 virtual CPU devices of one process, each leaf divided by 8 along an axis that allows it
one of N as process 0 of N connected by jax.distributed, each with one of the N devices; every process is
         measured, and the largest is reported

or, with --arranged, as an engine wants it (`arranging.py`): plain, scanned, int8 and int8 scanned, on one
device and on a mesh of 8 virtual devices of one process ("mesh").

`params` are the bytes of the parameters that the process holds (parts that several devices share count once),
`read` the bytes that it took out of the files, `tensor` the bytes of the largest leaf in the wanted dtype or
of the largest tensor in the file, whichever is more. Memory is counted from where the process stood before
`load`, with everything imported that it needs:

anon     the largest RssAnon of /proc/PID/status, which this script reads every 2 ms: memory that is the
         process's own. Pages of the mapped files are not in it, and are not copies: the kernel may drop them
rss      the kernel's own high-water mark (VmHWM, set back before `load`), which misses no moment and counts
         the mapped pages too

`beyond` is (anon - params) / tensor, which must not pass 1: no more than the process's share and one tensor.
Needs Linux. Ends in one JSON line.
"""

import argparse
import gc
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

FILE_BYTES = 1_000_000_000
EVERY = 0.002
SMALL = dict(embeddings=256, vocab=256, d_model=128, d_ff=256)
ARRANGED = ("plain", "scanned", "int8", "int8 scanned")
MESH = 8
"""Devices of a mesh."""

# ----------------------------------------------------------------------------------------------------
# The checkpoint


@dataclass(frozen=True)
class Drawn:
    """A leaf of random values in +-[0.5, 1) that exists while it is written."""

    shape: tuple[int, ...]
    seed: int

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        import jax.numpy as jnp

        bits = np.random.default_rng(self.seed).integers(0, 2**16, self.shape, np.uint16)
        return ((bits & 0x807F) | 0x3F00).view(jnp.bfloat16)


def sized(preset: str, gigabytes: float, dtype: str, rows: int | None) -> Any:
    """The Config of a published model, its table cut to `rows`, deep enough for so large a file."""
    from spec_cascades.models import gemma, llama, t5

    config = (gemma.PRESETS | llama.PRESETS | t5.PRESETS)[preset]
    if rows is not None:
        config = replace(config, vocab=rows, embeddings=rows)
    deep = (replace(config, **depth(config, n)) for n in range(1, 200))
    return next(c for c in deep if n_bytes(c, dtype) >= gigabytes * 1e9)


def depth(config: Any, n: int) -> dict[str, int]:
    """What makes a Config n layers deep."""
    stacks = ("encoder_layers", "decoder_layers") if hasattr(config, "encoder_layers") else ("layers",)
    return dict.fromkeys(stacks, n)


def small(config: Any) -> Any:
    """A Config of the family that is loaded before anything is measured."""
    head = "d_kv" if hasattr(config, "d_kv") else "head_dim"
    return replace(config, **SMALL, **depth(config, 2), **{head: 16})


def n_bytes(config: Any, dtype: str) -> int:
    import jax.numpy as jnp

    return sum(int(np.prod(s)) for s in shapes(config).values()) * jnp.dtype(dtype).itemsize


def shapes(config: Any) -> dict[str, tuple[int, ...]]:
    from spec_cascades.checkpoints.families import by_config
    from spec_cascades.checkpoints.tree import flatten

    return flatten(by_config(config).shapes_of(config))


def write(folder: Path, config: Any, dtype: str) -> dict[str, Any]:
    from spec_cascades import checkpoints
    from spec_cascades.checkpoints.tree import unflatten

    leaves = {name: Drawn(shape, i) for i, (name, shape) in enumerate(shapes(config).items())}
    checkpoints.save(folder, config, unflatten(leaves), dtype, FILE_BYTES)
    files = list(folder.glob("*.safetensors"))
    size = sum(file.stat().st_size for file in files)
    return {
        "dtype": dtype,
        "layers": getattr(config, next(iter(depth(config, 0)))),
        "leaves": len(leaves),
        "files": len(files),
        "bytes": size,
    }


# ----------------------------------------------------------------------------------------------------
# The process that loads


def place(path: str, shape: tuple[int, ...]) -> Any:
    """Divides the longest axis that all devices together divide; a leaf without one lies on each of them."""
    import jax
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as P

    n = jax.device_count()
    axes = [i for i in range(len(shape)) if shape[i] % n == 0 and shape[i] > 8 * n]
    mesh = jax.make_mesh((n,), ("all",), axis_types=(jax.sharding.AxisType.Auto,))
    if not axes:
        return NamedSharding(mesh, P())
    longest = max(axes, key=lambda i: shape[i])
    return NamedSharding(mesh, P(*(None if i != longest else "all" for i in range(len(shape)))))


def loading(kind: str, dtype: str) -> Callable[[str], Any]:
    """reference -> the model, by a run's name."""
    from spec_cascades import arranging, checkpoints, config, sharding, storing

    if kind in ("whole", "placed"):
        return lambda ref: checkpoints.load(ref, dtype, None if kind == "whole" else place)
    words = kind.split()
    mesh = sharding.of(config.Mesh(model=MESH) if "mesh" in words else None)
    layers = "scanned" if "scanned" in words else "unrolled"
    held = {"target": storing.Storage("int8" if "int8" in words else "dtype")}
    arranged = arranging.Arrangement(dtype, mesh, layers, None, held, None, None)
    return lambda ref: arranged.load(ref, "target", cut=False)


def status(pid: int | str, key: str) -> int:
    """A line of /proc/PID/status in bytes; 0 once the process is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return 1024 * next((int(line.split()[1]) for line in lines if line.startswith(f"{key}:")), 0)


def child(a: argparse.Namespace) -> None:
    """Loads the folder between two lines of its parent's, and prints what it holds."""
    import jax

    if a.processes > 1:
        jax.distributed.initialize(a.coordinator, a.processes, a.process)
    from spec_cascades.checkpoints import safetensors

    load = loading(a.child, a.dtype)
    load(str(Path(a.folder) / "small"))  # imports and starts what loading needs
    read, part = [0], safetensors.Folder.part

    def counted(self: Any, name: str, index: Any) -> np.ndarray:
        found = part(self, name, index)
        read[0] += found.nbytes
        return found

    safetensors.Folder.part = counted
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew
    print(json.dumps({"anon": status("self", "RssAnon"), "rss": status("self", "VmRSS")}), flush=True)
    sys.stdin.readline()
    began = time.perf_counter()
    loaded = load(str(Path(a.folder) / "big"))
    seconds = time.perf_counter() - began
    leaves = jax.tree.leaves(loaded.params)
    parts = ({str(s.index): s.data.nbytes for s in x.addressable_shards} for x in leaves)
    held = sum(sum(own.values()) for own in parts)
    seen = {"params": held, "read": read[0], "rss": status("self", "VmHWM"), "seconds": round(seconds, 1)}
    print(json.dumps(seen), flush=True)
    sys.stdin.readline()  # the others may still need this process


# ----------------------------------------------------------------------------------------------------
# The process that measures


@dataclass
class Watch:
    """The largest RssAnon of some processes, by process id, read every EVERY seconds while open."""

    pids: list[int]
    peaks: dict[int, int] = field(default_factory=dict)
    done: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.done.wait(EVERY):
            for pid in self.pids:
                self.peaks[pid] = max(self.peaks.get(pid, 0), status(pid, "RssAnon"))


def measured(kind: str, folder: Path, dtype: str, devices: int, processes: int = 1) -> dict[str, Any]:
    """One load by `processes` processes at once, as the one that took most."""
    flags = f"--xla_force_host_platform_device_count={devices}"
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    started = []
    for i in range(processes):
        command = [sys.executable, __file__, "--child", kind, "--folder", str(folder), "--dtype", dtype]
        command += ["--processes", str(processes), "--process", str(i), "--coordinator", address]
        env = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(subprocess.Popen(command, env=env, **pipes))
    before = [json.loads(p.stdout.readline()) for p in started]
    watch = Watch([p.pid for p in started])
    thread = threading.Thread(target=watch.run)
    thread.start()
    go(started)
    after = [json.loads(p.stdout.readline()) for p in started]
    watch.done.set()
    thread.join()
    go(started)
    for p in started:
        p.wait()
    rows = [
        {**end, "anon": watch.peaks[p.pid] - begin["anon"], "rss": end["rss"] - begin["rss"]}
        for p, begin, end in zip(started, before, after, strict=True)
    ]
    return max(rows, key=lambda row: row["anon"]) | {"processes": processes, "devices": devices * processes}


def go(started: list[subprocess.Popen]) -> None:
    for p in started:
        p.stdin.write("\n")
        p.stdin.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=3.0)
    parser.add_argument("--preset", default="gemma-2-2b")
    parser.add_argument("--stored", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--processes", type=int, default=8, help="of the last run, one device each")
    parser.add_argument("--rows", type=int, help="of the table; by default the published model's")
    parser.add_argument("--arranged", action="store_true", help="as an engine wants it")
    parser.add_argument("--only", help="one of the arranged runs")
    parser.add_argument("--temporary", help="where the checkpoint is written, and removed")
    for hidden in ("child", "folder", "coordinator"):
        parser.add_argument(f"--{hidden}", help=argparse.SUPPRESS)
    parser.add_argument("--process", type=int, default=0, help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.child:
        return child(a)
    import jax.numpy as jnp

    from spec_cascades.sweep import versions

    config = sized(a.preset, a.gigabytes, a.stored, a.rows)
    values = max(int(np.prod(shape)) for shape in shapes(config).values())
    tensor = values * max(jnp.dtype(a.dtype).itemsize, jnp.dtype(a.stored).itemsize)
    with tempfile.TemporaryDirectory(dir=a.temporary) as folder:
        write(Path(folder) / "small", small(config), a.stored)
        checkpoint = write(Path(folder) / "big", config, a.stored)
        if a.arranged:
            kinds = [(kind, 1) for kind in ARRANGED] + [(f"{kind} mesh", MESH) for kind in ARRANGED]
            kinds = [(kind, n) for kind, n in kinds if a.only in (None, kind)]
            runs = {kind: measured(kind, Path(folder), a.dtype, n) for kind, n in kinds}
        else:
            runs = {"whole": measured("whole", Path(folder), a.dtype, 1)}
            runs["placed"] = measured("placed", Path(folder), a.dtype, 8)
            runs[f"one of {a.processes}"] = measured("placed", Path(folder), a.dtype, 1, a.processes)
    for run in runs.values():
        run["beyond"] = round((run["anon"] - run["params"]) / tensor, 3)
    given = {"preset": a.preset, "dtype": a.dtype, "checkpoint": checkpoint, "tensor": tensor}
    print(json.dumps({"bench": "load_memory", "machine": versions(), **given, "unit": "bytes", "runs": runs}))


if __name__ == "__main__":
    main()
