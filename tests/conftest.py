"""Shapes and dtypes of every signature of the numeric modules are checked at run time, in tests only."""

import os
import sys

import pytest
from jaxtyping import install_import_hook

WORKER = os.environ.get("PYTEST_XDIST_WORKER")
if WORKER and hasattr(os, "sched_setaffinity"):
    # A core for each process: two whose XLA runs on the same cores wait for each other's threads, and are
    # many times slower than one after the other.
    CORES = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {CORES[int(WORKER.removeprefix("gw")) % len(CORES)]})

CHECKED = ["probs", "rules", "verify", "cache", "decode", "models"]

# Before any test module imports them: a hook cannot reach what is already loaded.
install_import_hook([f"spec_cascades.{name}" for name in CHECKED], "beartype.beartype")

# A CUDA build of torch brings triton, whose import crashes a process that has loaded jax 0.12 (Python 3.13).
# torch does without it where it is absent.
sys.modules.setdefault("triton", None)


@pytest.fixture(autouse=True, scope="module")
def compiled_programs_go():
    """What one file has compiled no other needs: kept, they would hold gigabytes, and more memory maps than
    a process may have (an abort inside the compiler).
    """
    yield
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
