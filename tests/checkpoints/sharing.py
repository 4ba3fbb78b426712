"""What `test_placing.py` runs as two processes at once: each loads its share of one model, and counts."""

import json
import sys
from pathlib import Path

import jax
import numpy as np
from counted import counting
from placed import LAYOUTS, devices, placement
from tiny_orbax import random_params

from spec_cascades.checkpoints import load, save
from spec_cascades.checkpoints.tree import flatten
from spec_cascades.models import llama

SIZES = dict(d_model=16, d_ff=32, layers=2, heads=8, kv_heads=8, head_dim=8)
CONFIG = llama.Config(vocab=64, embeddings=64, **SIZES, tied=True)


def main(address: str, root: Path, process: int):
    jax.distributed.initialize(address, 2, process)
    params = random_params(CONFIG)
    save(root / str(process), CONFIG, params, "float32")
    with counting() as seen:
        got = flatten(
            load(str(root / str(process)), "float32", placement(devices(), *LAYOUTS["eight"])).params
        )
    whole = flatten(params)
    parts = [(name, part) for name, x in got.items() for part in x.addressable_shards]
    print(json.dumps({
        "process": jax.process_index(),
        "devices": jax.device_count(),
        "own": jax.local_device_count(),
        "leaves": len(whole),
        "differ": [name for name, part in parts if not np.array_equal(part.data, whole[name][part.index])],
        "elsewhere": sum(len(x.global_shards) for x in got.values()) - len(parts),
        "read": seen.bytes,
        "stored": sum(x.nbytes for x in whole.values()),
        "largest": seen.largest,
        "stored_largest": max(x.nbytes for x in whole.values()),
    }))  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
