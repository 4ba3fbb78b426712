"""This machine's peaks, measured in a few seconds."""

import os
import time
from collections.abc import Callable
from typing import Any

from spec_cascades.planning.chips import Chip

WIDTH = 1024
"""Of the square matrices that are multiplied."""
READ = 2**26
"""Numbers of the array that is read: 256 MiB in float32, more than a processor's caches hold."""
ROUNDS = 5


def measure() -> Chip:
    """The default device of jax: FLOP/s of a matrix product, bytes a second of a sum, best of a few rounds.

    memory: of the host. ring: that of the memory, since devices of one host share it.
    """
    import jax
    import jax.numpy as jnp

    def product(dtype: Any, result: Any) -> float:
        a = jnp.ones((WIDTH, WIDTH), dtype)
        multiply = jax.jit(lambda a: jnp.matmul(a, a, preferred_element_type=result))
        return 2 * WIDTH**3 / _best(lambda: multiply(a))

    numbers = jnp.ones(READ, jnp.float32)
    total = jax.jit(jnp.sum)
    bandwidth = 4 * READ / _best(lambda: total(numbers))
    return Chip(
        name="cpu",
        flops=product(jnp.bfloat16, jnp.float32),
        int8_ops=product(jnp.int8, jnp.int32),
        memory=float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
        bandwidth=bandwidth,
        ring=bandwidth,
        sources=("measured just now",),
        note=f"{jax.devices()[0].device_kind}, {len(os.sched_getaffinity(0))} cores",
    )


def _best(run: Callable[[], Any]) -> float:
    import jax

    jax.block_until_ready(run())
    took = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        jax.block_until_ready(run())
        took.append(time.perf_counter() - began)
    return min(took)
