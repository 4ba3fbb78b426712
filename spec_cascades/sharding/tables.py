"""(regex, what each axis holds) of every family's parameters, and their partition specs on a mesh.

An axis of "heads", "kv_heads" or "ff" is divided by the model's number of them, whatever the axis counts
besides (kernels join heads with their entries); "vocab" by its own length. Specs are read from the right, so
that layers stacked on a new first axis need no table of their own.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from spec_cascades import axes
from spec_cascades.models.gemma import STACKED, Gemma
from spec_cascades.models.llama import Llama
from spec_cascades.models.markov import Markov
from spec_cascades.models.t5 import T5

Place = Callable[[str, tuple[int, ...]], NamedSharding]
"""From a parameter's path, keys joined by "/", and its shape to where it lies."""
Row = tuple[str | None, ...]
Table = tuple[tuple[str, Row], ...]

# A family's name of a kernel may occur with two ranks: as its checkpoints hold it, and as decoding wants it.
GEMMA: Table = (
    (r"embedder/input_embedding", ("vocab", None)),
    (r"logits_dense/kernel", (None, "vocab")),
    (r"attn/q_einsum/w", ("heads", None, None)),
    (r"attn/q_einsum/w", (None, "heads")),
    (r"attn/qkv_einsum/w", (None, "heads", None, None)),
    (r"attn/kv_einsum/w", (None, "kv_heads", None, None)),
    (r"attn/[kv]_einsum/w", (None, "kv_heads")),
    (r"attn/attn_vec_einsum/w", ("heads", None, None)),
    (r"attn/attn_vec_einsum/w", ("heads", None)),
    (r"mlp/gating_einsum", (None, "ff", None)),
    (r"mlp/(gate|up)", (None, "ff")),
    (r"mlp/linear", ("ff", None)),
)
T5_TABLE: Table = (
    (r"token_embedder/embedding", ("vocab", None)),
    (r"logits_dense/kernel", (None, "vocab")),
    (r"relpos_bias/rel_embedding", ("heads", None)),
    (r"attention/(query|key|value)/kernel", (None, "heads")),
    (r"attention/out/kernel", ("heads", None)),
    (r"mlp/wi(_[01])?/kernel", (None, "ff")),
    (r"mlp/wo/kernel", ("ff", None)),
)
LLAMA: Table = (
    (r"embedder/embedding", ("vocab", None)),
    (r"logits_dense/kernel", (None, "vocab")),
    (r"attention/query/kernel", (None, "heads")),
    (r"attention/(key|value)/kernel", (None, "kv_heads")),
    (r"attention/out/kernel", ("heads", None)),
    (r"mlp/(gate|up)/kernel", (None, "ff")),
    (r"mlp/down/kernel", ("ff", None)),
)
# The toy's root is its tables; a model of some ids says where each id's score stands.
MARKOV: Table = ((r"^$", (None, None, "vocab")),)
PLACE: Table = ((r"^place", ("vocab",)),)
TABLES: Mapping[type, Table] = {Gemma: GEMMA, T5: T5_TABLE, Llama: LLAMA, Markov: MARKOV}
"""What no row names (norms, above all) is repeated on every device."""


def spec_of(lm: Any, role: str, path: str, shape: tuple[int, ...], sizes: Mapping[str, int]) -> P:
    """Where one parameter of a model lies; role: "target" or "drafter"; sizes: {axis: devices} of the mesh.

    path: keys joined by "/", as in the family's `shapes_of`, with those that a wrapper or a stack adds. A
    quantised kernel's leaves `q` and `scale` below its path lie as the kernel. Raises ValueError for a model
    of no family in `TABLES`.
    """
    family, config = _family(lm)
    rank = len(shape) - (STACKED in path.split("/"))
    parts = {key: getattr(config, key, None) for key in ("heads", "kv_heads")}
    parts["ff"] = getattr(config, "d_ff", None)
    row = _row(TABLES[family] + PLACE, path, rank)[-len(shape) :] if shape else ()
    spec: list[Any] = [None] * (len(shape) - len(row))
    for what, length in zip(row, shape[len(spec) :], strict=True):
        n = length if what == "vocab" else parts.get(what)
        spec.append((axes.names(n, role, sizes) or None) if what and n and length > 1 else None)
    return P(*spec)


def path_of(path: Any) -> str:
    """A key path as `spec_of` reads it."""
    return "/".join(str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key)))) for key in path)


def _row(table: Table, path: str, rank: int) -> Row:
    """The longest row of at most this rank; of a vector below a kernel's path the kernel's last axes."""
    found = [row for pattern, row in table if re.search(rf"{pattern}(/(q|scale))?$", path)]
    fitting = [row for row in found if len(row) <= rank]
    return max(fitting, key=len) if fitting else min(found, key=len, default=())


def check(lm: Any, role: str, sizes: Mapping[str, int]) -> None:
    """Raises ValueError where a model's heads or feed-forward width cannot be divided over the mesh's axes.

    Key heads may be fewer than devices: each is repeated in a group, beside the query heads that read it.
    """
    _, config = _family(lm)
    parts = math.prod(n for name, n in sizes.items() if name in axes.names(0, role, sizes))
    if parts == 1 or config is None:
        return
    hint = "; mesh.drafter may be smaller" if role == "drafter" else ""
    for key in ("heads", "d_ff"):
        n = getattr(config, key)
        if n % parts:
            raise ValueError(f"mesh: the {role}'s {key}, {n}, cannot be divided in {parts} parts{hint}")
    kv = getattr(config, "kv_heads", parts)
    divided = math.prod(sizes[name] for name in axes.names(kv, role, sizes))
    if divided not in (kv, parts):
        raise ValueError(
            f"mesh: the {role}'s kv_heads, {kv}, neither fill groups of the {parts} parts nor are divided "
            f"in them{hint}"
        )


def _family(lm: Any) -> tuple[type, Any]:
    """The table's family and the sizes of a model, whatever wraps it."""
    while hasattr(lm, "lm"):
        lm = lm.lm
    for family in TABLES:
        if isinstance(lm, family):
            return family, getattr(lm, "config", None)
    names = ", ".join(sorted(family.__name__ for family in TABLES))
    raise ValueError(f"mesh: {type(lm).__name__} has no table of shardings; the families: {names}")
