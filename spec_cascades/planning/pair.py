"""What a plan must know of a model: its sizes, and how its layers are spread over chips."""

from typing import Any, NamedTuple

from spec_cascades.checks import ConfigError
from spec_cascades.planning.settings import Plan
from spec_cascades.reproduce import sizes

BYTES = {"bfloat16": 2, "float32": 4, "int8": 1}
CACHED = "float32"
"""The type in which the families keep their keys and values, and `sizes` counts them."""


class Model(NamedTuple):
    """One model. held: bytes of the weights; flops: of a decoded token; read: bytes of weights that a
    decoder's call reads; prefill_flops: of a prompt's token; row: bytes of one row's cache at the plan's
    prompt, token: of each further token of it; reduces, prefill_reduces: all-reduces of a call and of a
    prefill; kv_heads: over so many chips at most a cache is divided, beyond that it is held several times.
    """

    ref: str
    parameters: int
    held: float
    flops: float
    read: float
    prefill_flops: float
    row: float
    token: float
    layers: int
    width: int
    inner: int
    heads: int
    head_dim: int
    kv_heads: int
    vocab: int
    reduces: int
    prefill_reduces: int

    def cache(self, prompt: int, at: int) -> float:
        """Bytes of one row's cache for a prompt of other length than the plan's, `at`."""
        return self.row + (prompt - at) * self.token

    @property
    def attention(self) -> float:
        """FLOPs of one query against one position, over all layers."""
        return 4.0 * self.heads * self.head_dim * self.layers


NOTHING = Model("lookup", 0, *(0.0,) * 6, *(0,) * 5, 1, 1, 0, 0)
"""A drafter that copies from the text and runs no model."""


def pair(asked: Plan) -> dict[str, Model]:
    """The models of a plan by role. Raises ConfigError for a reference of unknown size."""
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
    room = asked.answer + asked.most_gamma + 1
    rows = [sizes.size(ref, asked.models.dtype, 1, n * asked.prompt, room) for n in (1, 2)]
    weight = BYTES["int8" if asked.weights == "int8" else asked.models.dtype]
    slot = BYTES[asked.cache] / BYTES[CACHED]
    one, two = rows
    c, encodes = lm.config, bool(getattr(lm, "encodes", False))
    layers = c.decoder_layers if encodes else c.layers
    encoder = sum(_size(shape) for path, shape in shapes.items() if path.startswith("encoder/"))
    # A decoder's prompt is read for its keys and values: the head has no part in it.
    once = one.flops - 2 * c.d_model * c.embeddings
    memory = 4 * c.d_model * c.heads * c.d_kv * layers if encodes else 0
    return Model(
        ref=ref,
        parameters=one.parameters,
        held=one.parameters * weight,
        flops=one.flops,
        read=one.flops / 2 * weight,
        prefill_flops=2.0 * encoder + memory if encodes else once,
        row=one.cache * slot,
        token=(two.cache - one.cache) * slot / asked.prompt,
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
    )


def _size(shape: Any) -> int:
    total = 1
    for n in shape:
        total *= n
    return total
