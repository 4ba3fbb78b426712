"""SmolLM2, Llama 3, TinyLlama and the many models of their shape, in blocks against a per-row cache.

Touvron et al., 2023; Grattafiori et al., 2024. Decoder-only, grouped queries, rotary positions, RMS norms, a
gated SiLU feed-forward, no bias. Kernels are [in, out] with the heads joined; the residual stream, norms,
rotations and softmaxes are float32 whatever the weights are.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from spec_cascades import cache as kv
from spec_cascades.cache import Cache
from spec_cascades.models import chunks
from spec_cascades.models.layers import HIDDEN, attend, linear, look_up, rms_norm, rotate, scores, summed
from spec_cascades.models.stacking import check, stack, through
from spec_cascades.typing import Array, Float, Int, Params, PRNGKeyArray


@dataclass(frozen=True)
class Linear:
    """Positions divided by `factor` (Chen et al., 2023)."""

    factor: float

    def __call__(self, frequencies: np.ndarray) -> np.ndarray:
        return frequencies / self.factor


@dataclass(frozen=True)
class Llama3:
    """Llama 3.1's stretch: waves longer than original / low are divided by `factor`, those shorter than
    original / high are kept, and those between are mixed in proportion to original / wavelength."""

    factor: float
    low: float = 1.0
    high: float = 4.0
    original: int = 8192

    def __call__(self, frequencies: np.ndarray) -> np.ndarray:
        turns = self.original * frequencies / (2 * math.pi)
        kept = np.clip((turns - self.low) / (self.high - self.low), 0.0, 1.0)
        return kept * frequencies + (1 - kept) * frequencies / self.factor


@dataclass(frozen=True)
class Config:
    """Sizes of one model; `embeddings` rows of the table may exceed `vocab`, the ids its tokenizer knows.

    theta: the longest rotary wave is about 2 pi theta tokens; scaling: None, `Linear` or `Llama3`;
    bos, eos, pad: special ids as the checkpoint states them (eos may be several), context: how many tokens it
    was made to see; no layer reads them.
    """

    vocab: int = 49_152
    embeddings: int = 49_152
    d_model: int = 576
    d_ff: int = 1536
    layers: int = 30
    heads: int = 9
    kv_heads: int = 3
    head_dim: int = 64
    theta: float = 10_000.0
    scaling: Linear | Llama3 | None = None
    tied: bool = True
    epsilon: float = 1e-5
    bos: int | None = None
    eos: tuple[int, ...] = ()
    pad: int | None = None
    context: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not 0 < self.vocab <= self.embeddings:
            raise ValueError(f"vocab {self.vocab} must lie in 1..embeddings ({self.embeddings})")
        if self.heads % self.kv_heads:
            raise ValueError(f"heads {self.heads} must be a multiple of kv_heads {self.kv_heads}")
        if self.head_dim % 2:
            raise ValueError(f"head_dim {self.head_dim} must be even: rotary positions turn pairs")


def _presets() -> dict[str, Config]:
    smol = Config(theta=100_000.0, bos=1, eos=(2,), pad=2)
    ids = dict(vocab=128_256, embeddings=128_256, bos=128_000, eos=(128_001, 128_008, 128_009))
    three = Config(**ids, heads=32, kv_heads=8, head_dim=128, theta=500_000.0, tied=False)
    small = replace(three, scaling=Llama3(32.0), tied=True)
    eight = replace(three, d_model=4096, d_ff=14_336, layers=32)
    seventy = replace(three, d_model=8192, d_ff=28_672, layers=80, heads=64)
    stretched = Llama3(8.0)
    return {
        "smollm2-135m": smol,
        "smollm2-360m": replace(smol, d_model=960, d_ff=2560, layers=32, heads=15, kv_heads=5),
        "smollm2-1.7b": replace(
            smol, d_model=2048, d_ff=8192, layers=24, heads=32, kv_heads=32, theta=130_000.0
        ),
        "llama-3.2-1b": replace(small, d_model=2048, d_ff=8192, layers=16, head_dim=64),
        "llama-3.2-3b": replace(small, d_model=3072, d_ff=8192, layers=28, heads=24),
        "llama-3-8b": eight,
        "llama-3-70b": seventy,
        "llama-3.1-8b": replace(eight, scaling=stretched),
        "llama-3.1-70b": replace(seventy, scaling=stretched),
        "llama-3.3-70b": replace(seventy, scaling=stretched),
        "tinyllama-1.1b": Config(
            **dict(vocab=32_000, embeddings=32_000, d_model=2048, d_ff=5632, layers=22, heads=32, kv_heads=4),
            **dict(tied=False, bos=1, eos=(2,)),
        ),
    }


PRESETS = _presets()
"""Published sizes; special ids are the instruction-tuned models'."""


# ------------------------------------------------------------------------------------------------------------
# Parameters


def shapes_of(config: Config) -> dict[str, Any]:
    """The parameter tree with a shape at every leaf: what a checkpoint must hold, no more and no less."""
    m, ff = config.d_model, config.d_ff
    q, k = config.heads * config.head_dim, config.kv_heads * config.head_dim
    kernels = {"query": (m, q), "key": (m, k), "value": (m, k), "out": (q, m)}
    wide = {"gate": (m, ff), "up": (m, ff), "down": (ff, m)}
    layer = {
        "pre_attention_norm": {"scale": (m,)},
        "attention": {name: {"kernel": shape} for name, shape in kernels.items()},
        "pre_mlp_norm": {"scale": (m,)},
        "mlp": {name: {"kernel": shape} for name, shape in wide.items()},
    }
    head = {} if config.tied else {"logits_dense": {"kernel": (m, config.embeddings)}}
    return {
        "embedder": {"embedding": (config.embeddings, m)},
        **{f"layers_{i}": layer for i in range(config.layers)},
        "final_norm": {"scale": (m,)},
        **head,
    }


def init(key: PRNGKeyArray, config: Config, dtype: Any = jnp.float32) -> Params:
    """Random parameters: kernels fan-in normal, embeddings normal at d_model^-0.5, norms 1."""
    is_shape = lambda x: isinstance(x, tuple)
    leaves, tree = jax.tree_util.tree_flatten_with_path(shapes_of(config), is_leaf=is_shape)

    def draw(key: PRNGKeyArray, path: Any, shape: tuple[int, ...]) -> Array:
        name = path[-1].key
        if name == "scale":
            return jnp.ones(shape, dtype)
        fan_in = shape[1] if name == "embedding" else shape[0]
        return (fan_in**-0.5 * jax.random.normal(key, shape)).astype(dtype)

    keys = jax.random.split(key, len(leaves))
    return jax.tree.unflatten(tree, [draw(k, *leaf) for k, leaf in zip(keys, leaves, strict=True)])


# ------------------------------------------------------------------------------------------------------------
# Blocks


def frequencies(config: Config) -> Float[Array, " r"]:
    """The head_dim / 2 rotary frequencies theta^(-2i / head_dim), radians a token, after scaling."""
    plain = config.theta ** (-np.arange(0, config.head_dim, 2) / config.head_dim)
    return jnp.asarray(plain if config.scaling is None else config.scaling(plain), jnp.float32)


def _split(x: Float[Array, "b t hd"], heads: int) -> Float[Array, "b h t d"]:
    return jnp.swapaxes(x.reshape(*x.shape[:2], heads, -1), 1, 2)


def _layer(w: Params, config: Config, x: Array, positions: Array, own: Any) -> tuple[Array, Any]:
    """One block: `own(k, v)` gives what is kept of its tokens, returned too, and what queries read of it."""
    a, turn = w["attention"], lambda y: rotate(y, positions, frequencies(config))
    h = rms_norm(x, w["pre_attention_norm"]["scale"], config.epsilon)
    q = turn(_split(linear(h, a["query"]["kernel"]), config.heads))
    k = turn(_split(linear(h, a["key"]["kernel"]), config.kv_heads))
    v = _split(linear(h, a["value"]["kernel"]), config.kv_heads)
    kept, read = own(k, v)
    x = x + summed(read(q * config.head_dim**-0.5), a["out"]["kernel"])
    h = rms_norm(x, w["pre_mlp_norm"]["scale"], config.epsilon)
    m = {name: kernel["kernel"] for name, kernel in w["mlp"].items()}
    return x + summed(jax.nn.silu(linear(h, m["gate"])) * linear(h, m["up"]), m["down"]), kept


def _logits(params: Params, x: Float[Array, "b t m"], config: Config) -> Float[Array, "b t v"]:
    """Scores over the table's rows, those beyond the tokenizer's ids at -inf (never emitted)."""
    head = params.get("logits_dense")
    h = rms_norm(x, params["final_norm"]["scale"], config.epsilon)
    y = scores(h, params["embedder"]["embedding"]) if head is None else linear(h, head["kernel"])
    return jnp.where(jnp.arange(config.embeddings) < config.vocab, y, -jnp.inf)


def _through(
    params: Params, config: Config, block: Any, tokens: Array, caches: Any = None
) -> tuple[Array, Any]:
    """The tokens' last hidden states, and the layers' caches."""
    names = [f"layers_{i}" for i in range(config.layers)]
    return through(params, names, block, look_up(params["embedder"]["embedding"], tokens), caches)


def forward(
    params: Params, config: Config, tokens: Int[Array, "b t"], segments: Int[Array, "b t"]
) -> Float[Array, "b t v"]:
    """Logits of the token after each (teacher forcing, no cache); a token sees those of its own segment only.

    segments: packed texts count 1, 2, ... within a row and 0 is padding. Positions run on through a row:
    rotary attention knows distances only.
    """
    t = tokens.shape[1]
    at = jnp.arange(t)[None]
    seen = (segments[:, :, None] == segments[:, None, :]) & kv.visible(jnp.zeros(1, jnp.int32), t, t)
    bias = jnp.where(seen, 0.0, HIDDEN)[:, None]
    positions = jnp.broadcast_to(at, tokens.shape)

    def block(w: Params, x: Array, cache: Any, i: Any) -> tuple[Array, Any]:
        dtype = w["mlp"]["down"]["kernel"].dtype
        own = lambda k, v: (None, lambda q: attend(q, k.astype(dtype), v.astype(dtype), bias))
        return _layer(w, config, x, positions, own)

    x, _ = _through(params, config, block, tokens)
    return _logits(params, x, config)


# ------------------------------------------------------------------------------------------------------------
# Decoding: the LM protocol


@dataclass(frozen=True)
class Llama:
    """The LM protocol over one model of the family.

    cache_dtype: of cached keys and values; scan: parameters come stacked (`serving` sees to it), so that the
    time to compile does not grow with the number of layers; attention: what reads the cache, as
    `kernels.attention.decode_attention` does, None for all slots at once; chunk: longer prompts are read in
    pieces.
    """

    config: Config
    cache_dtype: Any = jnp.float32
    scan: bool = False
    attention: Callable[..., Any] | None = None
    chunk: int = chunks.CHUNK

    @property
    def vocab(self) -> int:
        return self.config.embeddings

    def flops_per_token(self) -> int:
        """FLOPs of one decoded token: two a weight of the blocks and of the logits."""
        c = self.config
        layer = 2 * c.d_model * c.head_dim * (c.heads + c.kv_heads) + 3 * c.d_model * c.d_ff
        return 2 * (c.layers * layer + c.d_model * c.embeddings)

    def serving(self, params: Params) -> Params:
        """The parameters as decoding wants them: as they are, or stacked where layers are scanned."""
        return stack(params, [f"layers_{i}" for i in range(self.config.layers)]) if self.scan else params

    def prefill(
        self,
        params: Params,
        tokens: Int[Array, "b s"],
        lengths: Int[Array, " b"],
        capacity: int,
        width: int | None = None,
    ) -> tuple[Int[Array, " b"], Cache]:
        """Reads right-padded prompts (at least one token) up to the last one, which stays unread."""
        check(params, self.scan)
        c, b = self.config, tokens.shape[0]
        empty = kv.empty_stack if self.scan else kv.empty
        blank = lambda slots: empty(c.layers, b, slots, c.kv_heads, c.head_dim, self.cache_dtype).layers
        read = lambda layers, some, start: self._read_prompts(params, some, layers, start)
        layers = chunks.read(read, blank, tokens, capacity, self.chunk)
        last = jnp.take_along_axis(tokens, lengths[:, None] - 1, axis=1)[:, 0]
        return last, Cache(layers, (lengths - 1).astype(jnp.int32))

    def _read_prompts(self, params: Params, tokens: Int[Array, "b c"], layers: Any, start: Any) -> Any:
        """The caches with the tokens at `start` of every row."""
        c, (b, t), slots = self.config, tokens.shape, jax.tree.leaves(layers)[0].shape[-2]
        begin = jnp.zeros(1, jnp.int32) if start is None else start[None]
        at = jnp.broadcast_to(begin[:, None] + jnp.arange(t), (b, t))
        # A whole prompt sees itself alone, so that the slots for what follows cost nothing here.
        seen = kv.visible(begin, t, t if start is None else slots)
        bias = jnp.where(seen, 0.0, HIDDEN)[:, None]

        def block(w: Params, x: Array, old: Any, i: Any) -> tuple[Array, Any]:
            def own(*new: Array) -> tuple[Any, Any]:
                whole, (k, v) = kv.store_prompts(old, new, start, i if self.scan else None)
                return whole, lambda q: attend(q, k, v, bias)

            return _layer(w, c, x, at, own)

        return _through(params, c, block, tokens, layers)[1]

    def extend(
        self, params: Params, tokens: Int[Array, "b t"], cache: Cache
    ) -> tuple[Float[Array, "b t v"], Cache]:
        """Reads t tokens at each row's own position; logits [b, t, v] of the token after each."""
        check(params, self.scan)
        c, t = self.config, tokens.shape[1]
        at = cache.length[:, None] + jnp.arange(t)
        seen = kv.visible(cache.length, t, jax.tree.leaves(cache.layers)[0].shape[-2])
        bias = jnp.where(seen, 0.0, HIDDEN)[:, None]

        def block(w: Params, x: Array, old: Any, i: Any) -> tuple[Array, Any]:
            def own(*new: Array) -> tuple[Any, Any]:
                layer = i if self.scan else None
                whole, (k, v) = kv.store(old, new, at, layer)
                if self.attention is None:
                    return whole, lambda q: attend(q, k, v, bias)
                return whole, lambda q: self.attention(q, whole, cache.length, layer)

            return _layer(w, c, x, at, own)

        x, layers = _through(params, c, block, tokens, cache.layers)
        return _logits(params, x, c), kv.advance(cache, layers, t)
