"""Loading holds the model and at most one more tensor: measured in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from spec_cascades.checkpoints import orbax, safetensors
from spec_cascades.checkpoints.tree import flatten, unflatten
from spec_cascades.models import llama

SIZES = dict(layers=2, heads=16, kv_heads=16, head_dim=64)
BIG = llama.Config(vocab=8192, embeddings=8192, d_model=1024, d_ff=2816, tied=False, **SIZES)
"""Its two largest tensors are the first and the last: one read whole would show at the end."""

SMALL = llama.Config(vocab=16, embeddings=16, d_model=8, d_ff=8, layers=1, heads=2, kv_heads=2, head_dim=4)
SLACK = 8e6
"""Bytes for the allocator, threads and buffers of the reader."""

MEASURE = """
import json, sys
from spec_cascades.checkpoints import load
def status(key):
    with open("/proc/self/status") as file:
        return 1024 * next(int(line.split()[1]) for line in file if line.startswith(key))
import jax
from jax.sharding import AxisType, NamedSharding, PartitionSpec
mesh = jax.make_mesh((jax.device_count(),), ("all",), axis_types=(AxisType.Auto,))
def last(path, shape):
    return NamedSharding(mesh, PartitionSpec(*[None] * (len(shape) - 1), "all"))
where = last if jax.device_count() > 1 else None
load(sys.argv[1], sys.argv[3], where)  # imports what the format needs
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # the peak is counted anew: getrusage's would begin with that of the process we come from
before = status("VmRSS")
loaded = load(sys.argv[2], sys.argv[3], where)
leaves = jax.tree.leaves(loaded.params)
print(json.dumps({"peak": status("VmHWM") - before, "model": sum(x.nbytes for x in leaves),
    "devices": len(leaves[0].sharding.device_set)}))
"""


def random_params(config, seed=0):
    """Normal float32 numpy."""
    rng = np.random.default_rng(seed)
    shapes = flatten(llama.shapes_of(config)).items()
    return unflatten({name: rng.standard_normal(shape, np.float32) for name, shape in shapes})


WRITE = {
    "safetensors": lambda path, *model: safetensors.save(path, *model, "float32", shard_bytes=40_000_000),
    "orbax": lambda path, *model: orbax.save(path, *model, "float32"),
}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's account of memory")
@pytest.mark.parametrize(("dtype", "devices"), [("bfloat16", 1), ("float32", 1), ("bfloat16", 8)])
@pytest.mark.parametrize("form", WRITE)
def test_peak_memory_is_the_model_and_the_largest_tensor(tmp_path, form, dtype, devices):
    for name, config in (("small", SMALL), ("big", BIG)):
        WRITE[form](tmp_path / name, config, random_params(config))
    if form == "safetensors":
        assert len(list((tmp_path / "big").glob("*.safetensors"))) > 3
    command = [sys.executable, "-c", MEASURE, str(tmp_path / "small"), str(tmp_path / "big"), dtype]
    env = os.environ | {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    used = json.loads(done.stdout)
    assert used["devices"] == devices
    shapes = flatten(llama.shapes_of(BIG)).values()
    values = [int(np.prod(shape)) for shape in shapes]
    assert used["model"] == jnp.dtype(dtype).itemsize * sum(values)
    assert used["peak"] > used["model"] - SLACK, "nothing was measured"
    assert used["peak"] <= used["model"] + 4 * max(values) + SLACK
