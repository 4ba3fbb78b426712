"""How large a model is and what a call of it costs, before anything is downloaded."""

import math
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from spec_cascades.config import CATCH_UP, Decoding, Models


class Size(NamedTuple):
    """parameters; held: bytes of the weights; cache: bytes of the keys and values of all rows.

    flops: of one decoded token; read: bytes of weights that a decoder's call reads.
    """

    parameters: int
    held: int
    cache: int
    flops: float
    read: int

    def seconds(self, tokens: int, rows: int, flops: float, bandwidth: float) -> float:
        """A call that decodes so many tokens a row: the roofline max(FLOPs / peak, bytes / bandwidth)."""
        return limit(self.flops * tokens * rows, self.read + self.cache, flops, bandwidth)

    def prefill(self, tokens: int, rows: int, flops: float, bandwidth: float) -> float:
        """Reading the prompts: two FLOPs a parameter and token (an encoder's share of it as if all did)."""
        return limit(2.0 * self.parameters * tokens * rows, self.held, flops, bandwidth)


def limit(flops: float, read: float, peak: float, bandwidth: float) -> float:
    """The roofline: the seconds of so many operations or of so many bytes, whichever are more.

    The one place where peaks become seconds: an experiment's estimate and a plan both end here.
    """
    return max(flops / peak, read / bandwidth)


class Room(NamedTuple):
    """What a decoding needs of a cache behind a prompt: slots, and tokens that a call reads at most
    (`loop.reach`), for which the layers that see a window keep rings.
    """

    slots: int
    reach: int


def room(decoding: Decoding) -> Room:
    """The room that the method of a decoding makes for the longest answer, as `decode.loop.start` does."""
    longest, block = decoding.max_new_tokens, decoding.gamma + 1
    width, reach = {
        "speculative": (block, block),
        "bild": (block, block),
        "token": (1, CATCH_UP),
        "hybrid": (longest + 1, longest + 1),
    }.get(decoding.method, (1, 1))
    return Room(longest + width, reach)


def of(models: Models, role: str, prompt: int, decoding: Decoding) -> Size | None:
    """The model in a role, with room for prompts of so many tokens and the longest answers; None if unknown.

    Known are the published sizes (`PRESETS` of the families) by the name of a repository, and whatever lies
    on this machine; nothing is fetched.
    """
    held, rows = models.held(role), decoding.batch_size
    return size(getattr(models, role), models.dtype, rows, prompt, room(decoding), held)


@cache
def size(
    ref: str | None,
    dtype: str,
    rows: int,
    prompt: int,
    room: Room,
    held: tuple[str, str] = ("dtype", "float32"),
) -> Size | None:
    """The model of a reference, with caches for so many rows, prompts and what follows; None if unknown.

    held: what weights and cache are held in, as `Models.held` says.
    """
    if (ref or "").partition(":")[0] == "lookup":
        return Size(0, 0, 0, 0.0, 0)
    lm, shapes = found(ref)
    if lm is None:
        return None
    weights, cached = held
    # Scales, one a channel, are less than a hundredth of int8's bytes and left out.
    width = 1 if weights == "int8" else {"bfloat16": 2, "float32": 4}[dtype]
    parameters = sum(math.prod(shape) for shape in shapes.values())
    flops = float(lm.flops_per_token())
    slots = _cache(lm, shapes, dtype, cached, (rows, prompt), room)
    return Size(parameters, parameters * width, slots, flops, int(flops / 2) * width)


def preset(ref: str) -> str:
    """'gemma-2-9b' of 'hf://google/gemma-2-9b-it@main': the name that `PRESETS` would have it under."""
    name = ref.removeprefix("hf://").partition("@")[0].rpartition("/")[2]
    return name.lower().removesuffix("-it").removesuffix("-pt").removesuffix("-instruct")


def found(ref: str | None) -> tuple[Any, dict[str, Any]]:
    """The model of a reference or of a published size's name, and its leaves' shapes by path; (None, {}) if
    unknown."""
    from spec_cascades.checkpoints import families, peek
    from spec_cascades.checkpoints.tree import flatten
    from spec_cascades.models import gemma, llama, t5

    known = t5.PRESETS | gemma.PRESETS | llama.PRESETS
    if ref is None:
        return None, {}
    ref = ref.removeprefix("copy:")
    here = ref.startswith("embedded:") or Path(ref).expanduser().exists()
    if not here and preset(ref) in known:
        config = known[preset(ref)]
    elif here:
        config = peek(ref).config
    else:
        return None, {}
    family = families.by_config(config)
    return family.lm(config), flatten(family.shapes_of(config))


def _cache(
    lm: Any, shapes: dict[str, Any], dtype: str, cached: str, prompts: tuple[int, int], room: Room
) -> int:
    """Bytes of the cache that `prefill` makes of prompts [rows, tokens], traced with shapes alone."""
    import jax
    import jax.numpy as jnp

    from spec_cascades.checkpoints.tree import unflatten
    from spec_cascades.models import stacking
    from spec_cascades.storing import cached_as

    rows, prompt = prompts
    # Stacked layers are traced once, and their caches have the bytes that they have one by one.
    lm = stacking.arranged(cached_as(lm, cached), "scanned")
    params = unflatten({path: jax.ShapeDtypeStruct(shape, dtype) for path, shape in shapes.items()})
    # A decoder's cache is as long as it is asked to be, however much of that a prompt fills.
    read, given = (0, prompt) if getattr(lm, "encodes", False) else (prompt, 1)
    tokens = jax.ShapeDtypeStruct((rows, given), jnp.int32)
    lengths = jax.ShapeDtypeStruct((rows,), jnp.int32)
    fill = lambda p, t, n: lm.prefill(lm.serving(p), t, n, read + room.slots, room.reach)[1]
    made = jax.eval_shape(fill, params, tokens, lengths)
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(made))
