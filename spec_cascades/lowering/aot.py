"""The decode loop compiled for TPUs that are not there: does it lower, what does it take, what is exchanged.

Needs the `libtpu` package (extra [tpu-aot]), which compiles on a CPU host for a topology given by name.
Nothing is allocated: parameters, prompts and caches are shapes with shardings.
"""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from spec_cascades import sharding
from spec_cascades.config import Mesh
from spec_cascades.decode import loop
from spec_cascades.lowering import hlo
from spec_cascades.models.layers import backend
from spec_cascades.probs import Sampling
from spec_cascades.sharding.serving import serving
from spec_cascades.sharding.tables import path_of
from spec_cascades.typing import Params


class Sizes(NamedTuple):
    """A batch: rows, tokens of the padded prompts, room for new tokens."""

    rows: int
    prompt: int
    new: int


class Program(NamedTuple):
    """What one compiled program takes, on each device.

    seconds: to lower and compile; arguments, outputs, temporaries, aliased: bytes; hlo: bytes of its text.
    """

    seconds: float
    arguments: int
    outputs: int
    temporaries: int
    aliased: int
    hlo: int

    @property
    def peak(self) -> int:
        """Bytes a device must have: donated buffers count once."""
        return self.arguments + self.outputs + self.temporaries - self.aliased


class Report(NamedTuple):
    """The two programs of a decode loop.

    collectives: within `run`'s loops; copies: of caches there; entry_copies: of caches where `run` begins,
    once a call, into a layout that the loop likes better.
    """

    start: Program
    run: Program
    collectives: list[hlo.Collective]
    copies: list[str]
    entry_copies: list[str]
    loops: int


def devices(topology: str) -> list[Any]:
    """The devices of a topology such as "v5e:2x4". Raises ModuleNotFoundError without libtpu, ValueError for
    a name that it does not know.
    """
    try:
        import libtpu  # noqa: F401
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "compiling for a TPU needs libtpu: pip install 'spec-cascades[tpu-aot]'"
        ) from None
    # Outside Google's cloud the library would look for a metadata server and wait for it; and since no chip
    # is opened, several processes may compile at once.
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    from jax.experimental import topologies

    try:
        found = topologies.get_topology_desc(platform="tpu", topology_name=topology)
    except Exception as error:
        raise ValueError(f"topology {topology!r} (known: v5e:2x4 and others): {error}") from None
    return list(found.devices)


def layout(mesh: Mesh, topology: str) -> sharding.Layout:
    """The mesh over a topology's devices. Raises as `devices`, and ValueError for another number of them."""
    return sharding.of(mesh, devices(topology))


def params(lm: Any, shapes: Any, dtype: Any, role: str, at: sharding.Layout) -> Params:
    """A model's parameters as decoding wants them, as shapes that lie where the tables say.

    shapes: the family's `shapes_of`. Raises ValueError where the model cannot be divided so.
    """
    place = at.place(lm, role)
    whole = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s, dtype), shapes, is_leaf=lambda x: type(x) is tuple)
    served = jax.eval_shape(lambda p: serving(lm, p), whole)
    put = lambda path, x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place(path_of(path), x.shape))
    return jax.tree_util.tree_map_with_path(put, served)


def request(sizes: Sizes) -> loop.Request:
    """What rows ask for, as shapes: one end symbol, no edits."""
    row = lambda dtype, *n: jax.ShapeDtypeStruct((sizes.rows, *n), dtype)
    sampling = Sampling(row(jnp.float32), row(jnp.int32), row(jnp.float32), row(jnp.float32))
    return loop.Request(sampling, row(jnp.float32), row(jnp.int32, 1), row(jnp.int32), row(jnp.uint32))


def compiled(
    method: loop.Method, params: Mapping[str, Params], sizes: Sizes, at: sharding.Layout
) -> tuple[Report, Any]:
    """What the two programs of a method's loop take, and the compiled `loop.run`.

    Raises what the compiler says of a program that does not lower or does not fit.
    """
    prompts = jax.ShapeDtypeStruct((sizes.rows, sizes.prompt), jnp.int32)
    lengths = jax.ShapeDtypeStruct((sizes.rows,), jnp.int32)
    asked = (prompts, lengths, request(sizes))
    prompts, lengths, wanted = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=at.row_sharding(x.shape)), asked
    )
    with at.within(), _for_tpu():
        began = time.perf_counter()
        start = loop.start.lower(method, params, prompts, lengths, wanted, sizes.new)
        first = start.compile()
        middle = time.perf_counter()
        state = jax.tree.map(
            lambda x, where: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where),
            start.out_info,
            first.output_shardings,
        )
        run = loop.run.lower(method, params, state, wanted).compile()
        last = time.perf_counter()
    text = run.as_text()
    lines, loops = hlo.inside_loops(text)
    shards = {x.sharding.shard_shape(x.shape) for x in jax.tree.leaves(state.caches) if len(x.shape) > 3}
    report = Report(
        _program(first, middle - began),
        _program(run, last - middle),
        hlo.collectives(lines),
        hlo.copies(lines, shards),
        hlo.copies(hlo.entry(text), shards),
        loops,
    )
    return report, run


def _program(compiled: Any, seconds: float) -> Program:
    m = compiled.memory_analysis()
    return Program(
        seconds,
        m.argument_size_in_bytes,
        m.output_size_in_bytes,
        m.temp_size_in_bytes,
        m.alias_size_in_bytes,
        len(compiled.as_text()),
    )


@contextmanager
def _for_tpu() -> Iterator[None]:
    """Models compute as they do on a TPU; what was traced so is forgotten at the end."""
    token = backend.set("tpu")
    jax.clear_caches()
    try:
        yield
    finally:
        backend.reset(token)
        jax.clear_caches()
