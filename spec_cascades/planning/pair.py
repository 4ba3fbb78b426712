"""What a plan must know of a model: its sizes, and how its layers are spread over chips."""

import math
from typing import Any, NamedTuple

import numpy as np

from spec_cascades.checks import ConfigError
from spec_cascades.config import CATCH_UP
from spec_cascades.planning.settings import Plan
from spec_cascades.reproduce import sizes
from spec_cascades.reproduce.sizes import Room


class Model(NamedTuple):
    """One model. held: bytes of the weights; flops: of a decoded token; read: bytes of weights that a
    decoder's call reads; prefill_flops: of a prompt's token; caches: (a prompt's tokens, bytes of a row's
    cache), between and beyond which it grows evenly; reduces, prefill_reduces: all-reduces of a call and of a
    prefill; kv_heads: over so many chips at most a cache is divided, beyond that it is held several times;
    near, window: layers that see a window only, and its tokens; chunk: prompt tokens read at once, None: all.
    """

    ref: str
    parameters: int
    held: float
    flops: float
    read: float
    prefill_flops: float
    caches: tuple[tuple[int, float], ...]
    layers: int
    width: int
    inner: int
    heads: int
    head_dim: int
    kv_heads: int
    vocab: int
    reduces: int
    prefill_reduces: int
    near: int = 0
    window: int = 0
    chunk: int | None = None

    def cache(self, prompt: int) -> float:
        """Bytes of one row's cache for a prompt of so many tokens and the plan's answers."""
        (before, low), (last, high) = self.caches[-2:]
        if prompt > last:
            return high + (prompt - last) * (high - low) / (last - before)
        return float(np.interp(prompt, *zip(*self.caches, strict=True)))

    def attention(self, context: int) -> float:
        """FLOPs of one query against so many positions, over all layers."""
        seen = (self.layers - self.near) * context + self.near * min(context, self.window)
        return 4.0 * self.heads * self.head_dim * seen

    def piece(self, prompt: int) -> int:
        """Tokens of a prompt that are read at once."""
        return prompt if self.chunk is None else min(prompt, self.chunk)


NOTHING = Model("lookup", 0, *(0.0,) * 4, ((0, 0.0), (1, 0.0)), *(0,) * 4, 1, 1, *(0,) * 3)
"""A drafter that copies from the text and runs no model."""


def pair(asked: Plan) -> dict[str, Model]:
    """The models of a plan by role. Raises ConfigError for a reference of unknown size, and for a model that
    cannot be divided over the mesh.
    """
    return {role: _model(asked, role) for role in ("target", "drafter")}


def _model(asked: Plan, role: str) -> Model:
    ref = getattr(asked.models, role)
    if (ref or "").partition(":")[0] == "lookup":
        return NOTHING
    lm, shapes = sizes.found(ref)
    if lm is None:
        raise ConfigError(
            f"models.{role}: the size of {ref!r} is not known here; give a published size's name "
            "(gemma-2-9b, t5-v1_1-xl, smollm2-135m), embedded:NAME, or a checkpoint on this machine"
        )
    _check(asked, role, lm)
    caches, size = _caches(asked, role, lm)
    c, encodes = _config(lm), bool(getattr(lm, "encodes", False))
    layers = c.decoder_layers if encodes else c.layers
    encoder = sum(math.prod(shape) for path, shape in shapes.items() if path.startswith("encoder/"))
    # A decoder's prompt is read for its keys and values: the head has no part in it.
    once = size.flops - 2 * c.d_model * c.embeddings
    memory = 4 * c.d_model * c.heads * c.d_kv * layers if encodes else 0
    return Model(
        ref=ref,
        parameters=size.parameters,
        held=size.held,
        flops=size.flops,
        read=size.read,
        prefill_flops=2.0 * encoder + memory if encodes else once,
        caches=caches,
        layers=layers,
        width=c.d_model,
        inner=c.d_ff,
        heads=c.heads,
        head_dim=c.d_kv if encodes else c.head_dim,
        kv_heads=c.heads if encodes else c.kv_heads,
        vocab=lm.vocab,
        # After attention (T5's decoder attends twice) and after the feed-forward part; one for the embedding.
        reduces=(3 if encodes else 2) * layers + 1,
        prefill_reduces=2 * (c.encoder_layers if encodes else layers) + 1,
        near=_near(c),
        window=getattr(c, "window", 0),
        chunk=None if encodes else asked.models.prefill_chunk or _inner(lm).chunk,
    )


def _caches(asked: Plan, role: str, lm: Any) -> tuple[tuple[tuple[int, float], ...], sizes.Size]:
    """`Model.caches`, as the model itself makes them, and its size at the plan's prompt.

    The longest block of any method is assumed, a speculative one or a token cascade's. A cache grows evenly
    with its prompt, less where a layer's window is full: that is where a further one is measured.
    """
    m, block = asked.models, max(asked.gamma or asked.most_gamma, CATCH_UP - 1) + 1
    room = Room(asked.answer + (asked.gamma or asked.most_gamma) + 1, block)
    sized = lambda prompt: sizes.size(getattr(m, role), m.dtype, 1, prompt, room, m.held(role))
    window = getattr(_config(lm), "window", 0) if _near(_config(lm)) else 0
    full = window + room.reach - room.slots
    measured = {1, asked.prompt, full, 2 * max(asked.prompt, full, 1)}
    found = tuple((n, float(sized(n).cache)) for n in sorted(measured) if n >= 1)
    return found, sized(asked.prompt)


def _check(asked: Plan, role: str, lm: Any) -> None:
    from spec_cascades.sharding import layout, tables

    try:
        tables.check(lm, role, layout.factors(asked.mesh))
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _near(config: Any) -> int:
    """How many layers see a window only."""
    return sum(map(config.local, range(config.layers))) if hasattr(config, "local") else 0


def _inner(lm: Any) -> Any:
    """The model inside wrappers."""
    return _inner(lm.lm) if hasattr(lm, "lm") else lm


def _config(lm: Any) -> Any:
    return _inner(lm).config
