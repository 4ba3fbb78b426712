"""Gemma 1, 2 and 3 (text): a decoder in blocks of any length against a per-row cache.

Gemma Team, arXiv 2403.08295, 2408.00118, 2503.19786. The parameter tree is the official one
(`layer_0/attn/q_einsum/w`), which `serving` flattens to 2-D kernels: a float32 step on a CPU is 2.4 times as
fast with them. The residual stream, norms, softmaxes and rotations are float32 whatever the weights are.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from spec_cascades import cache as kv
from spec_cascades.cache import Cache
from spec_cascades.models.layers import HIDDEN, attend, linear, look_up, rms_norm, rotate, scores
from spec_cascades.typing import Array, Float, Int, Params, PRNGKeyArray


@dataclass(frozen=True)
class Config:
    """Sizes of one Gemma; `embeddings` rows of the table may exceed `vocab`, the ids its tokenizer knows.

    generation: 1, 2 (norms after attention and feed-forward too) or 3 (also norms of queries and keys).
    pattern: every pattern-th layer is global, the others see `window` tokens, themselves included.
    query_scalar: scores are divided by its square root. rope_base, rope_scale (divides positions): of global
    layers; local_rope_base: of the others. eos: ids that end an answer, `<end_of_turn>` among them if tuned.
    context: how many tokens the model was made to see; no layer reads it.
    """

    generation: int = 1
    vocab: int = 256_000
    embeddings: int = 256_000
    d_model: int = 3072
    head_dim: int = 256
    d_ff: int = 24_576
    heads: int = 16
    kv_heads: int = 16
    layers: int = 28
    pattern: int = 1
    window: int = 4096
    query_scalar: int = 256
    attention_softcap: float | None = None
    final_softcap: float | None = None
    rope_base: float = 10_000.0
    rope_scale: float = 1.0
    local_rope_base: float = 10_000.0
    epsilon: float = 1e-6
    pad: int = 0
    eos: tuple[int, ...] = (1,)
    bos: int = 2
    context: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.generation not in (1, 2, 3):
            raise ValueError(f"generation {self.generation!r} is not one of [1, 2, 3]")
        if not 0 < self.vocab <= self.embeddings:
            raise ValueError(f"vocab {self.vocab} must lie in 1..embeddings ({self.embeddings})")
        if self.heads % self.kv_heads:
            raise ValueError(f"heads {self.heads} must be a multiple of kv_heads ({self.kv_heads})")

    def local(self, layer: int) -> bool:
        """Whether a layer sees the window only."""
        return (layer + 1) % self.pattern != 0


def _presets() -> dict[str, Config]:
    two = replace(Config(generation=2, pattern=2), attention_softcap=50.0, final_softcap=30.0)
    three = Config(generation=3, vocab=262_144, embeddings=262_144, pattern=6, window=512, rope_base=1e6)
    # The models that also see images have 64 more rows, one of them for an image's place.
    seeing = replace(three, embeddings=262_208, window=1024, rope_scale=8.0)
    size = lambda base, m, ff, n, h, l, d=256, scalar=256: replace(
        base, d_model=m, d_ff=ff, heads=n, kv_heads=h, layers=l, head_dim=d, query_scalar=scalar
    )
    return {
        "gemma-2b": size(Config(), 2048, 16_384, 8, 1, 18),
        "gemma-7b": size(Config(), 3072, 24_576, 16, 16, 28),
        "gemma-2-2b": size(two, 2304, 9216, 8, 4, 26),
        "gemma-2-9b": size(two, 3584, 14_336, 16, 8, 42),
        "gemma-2-27b": size(two, 4608, 36_864, 32, 16, 46, 128, 144),
        "gemma-3-270m": size(three, 640, 2048, 4, 1, 18),
        "gemma-3-1b": size(three, 1152, 6912, 4, 1, 26),
        "gemma-3-4b": size(seeing, 2560, 10_240, 8, 4, 34),
        "gemma-3-12b": size(seeing, 3840, 15_360, 16, 8, 48),
        "gemma-3-27b": size(seeing, 5376, 21_504, 32, 16, 62, 128, 168),
    }


PRESETS = _presets()
"""Published sizes by the name their repositories carry, less `-pt` and `-it` (`google/gemma-3-4b-it`)."""


# ------------------------------------------------------------------------------------------------------------
# Parameters


def init(key: PRNGKeyArray, config: Config, dtype: Any = jnp.float32) -> Params:
    """Random parameters: kernels and table fan-in normal; norms, which multiply by 1 + scale, 0."""
    leaves, tree = jax.tree_util.tree_flatten_with_path(shapes_of(config), is_leaf=lambda x: type(x) is tuple)

    def draw(key: PRNGKeyArray, path: Any, shape: tuple[int, ...]) -> Array:
        name = jax.tree_util.keystr(path)
        if "scale" in name:
            return jnp.zeros(shape, dtype)
        last = "embedding" in name or "gating" in name
        fan_in = shape[-1] if last else math.prod(shape[:-1]) if "attn_vec" in name else shape[-2]
        return (fan_in**-0.5 * jax.random.normal(key, shape)).astype(dtype)

    keys = jax.random.split(key, len(leaves))
    return jax.tree.unflatten(tree, [draw(k, *leaf) for k, leaf in zip(keys, leaves, strict=True)])


def shapes_of(config: Config) -> dict[str, Any]:
    """The parameter tree with a shape at every leaf: what a checkpoint must hold, no more and no less."""
    c, m, d, norm = config, config.d_model, config.head_dim, {"scale": (config.d_model,)}
    attn = {"attn_vec_einsum": {"w": (c.heads, d, m)}}
    if c.heads == c.kv_heads:
        attn["qkv_einsum"] = {"w": (3, c.heads, m, d)}
    else:
        attn |= {"q_einsum": {"w": (c.heads, m, d)}, "kv_einsum": {"w": (2, c.kv_heads, m, d)}}
    if c.generation == 3:
        attn |= {"_query_norm": {"scale": (d,)}, "_key_norm": {"scale": (d,)}}
    mlp = {"gating_einsum": (2, c.d_ff, m), "linear": (c.d_ff, m)}
    layer = {"pre_attention_norm": norm, "attn": attn, "pre_ffw_norm": norm, "mlp": mlp}
    if c.generation > 1:
        layer |= {"post_attention_norm": norm, "post_ffw_norm": norm}
    table = {"embedder": {"input_embedding": (c.embeddings, m)}, "final_norm": norm}
    return table | {f"layer_{i}": layer for i in range(c.layers)}


def _kernel(w: Float[Array, "..."], *inputs: int) -> Float[Array, "i o"]:
    """An official einsum as [in, out], given the axes summed over; what has two axes is one already."""
    if w.ndim == 2:
        return w
    front = jnp.moveaxis(w, inputs, range(len(inputs)))
    return front.reshape(math.prod(w.shape[i] for i in inputs), -1)


def serving(params: Params, config: Config) -> Params:
    """The parameters as decoding wants them: the layers' kernels two-dimensional."""
    return params | {f"layer_{i}": _flat_layer(params[f"layer_{i}"]) for i in range(config.layers)}


def _flat_layer(layer: Params) -> Params:
    attn, mlp = layer["attn"], layer["mlp"]
    inputs = {"q_einsum": (-2,), "kv_einsum": (-2,), "qkv_einsum": (-2,), "attn_vec_einsum": (0, 1)}
    flat = {n: {"w": _kernel(attn[n]["w"], *axes)} for n, axes in inputs.items() if n in attn}
    return layer | {"attn": attn | flat, "mlp": mlp | {"gating_einsum": _kernel(mlp["gating_einsum"], -1)}}


STACKED = "stacked_layers"


def stack(params: Params, config: Config) -> Params:
    """The parameters with layers of equal place in the pattern joined on a new first axis, for a scan.

    `stacked_layers/attention_type_j` holds layers j, j + pattern, ...; those of a last, incomplete pattern
    stay as they are.
    """
    n, p = config.layers // config.pattern, config.pattern
    layers = lambda j: [params[f"layer_{i}"] for i in range(j, n * p, p)]
    group = lambda j: jax.tree.map(lambda *w: jnp.stack(w), *layers(j))
    rest = {name: w for name, w in params.items() if not name.startswith("layer_")}
    rest |= {f"layer_{i}": params[f"layer_{i}"] for i in range(n * p, config.layers)}
    return rest | ({STACKED: {f"attention_type_{j}": group(j) for j in range(p)}} if n else {})


# ------------------------------------------------------------------------------------------------------------
# Blocks


class View(NamedTuple):
    """What all layers of a call share: where the tokens stand, and the biases of local and global layers."""

    positions: Int[Array, "b t"]
    near: Float[Array, "b 1 t l"]
    far: Float[Array, "b 1 t l"]


def _view(config: Config, length: Int[Array, " b"], t: int, l: int, same: Any = True) -> View:
    """t tokens at length[b] and after, against l slots; `same` [b, t, l] may hide further ones."""
    behind = kv.distances(length, t, l)
    seen = (behind >= 0) & same
    bias = lambda mask: jnp.where(mask, 0.0, HIDDEN)[:, None]
    return View(length[:, None] + jnp.arange(t), bias(seen & (behind < config.window)), bias(seen))


def _frequencies(config: Config, local: bool) -> Float[Array, " r"]:
    base, scale = (config.local_rope_base, 1.0) if local else (config.rope_base, config.rope_scale)
    exponents = np.arange(0, config.head_dim, 2) / config.head_dim
    return jnp.asarray(1 / (base**exponents * scale), jnp.float32)


def _norm(x: Float[Array, "... m"], w: Params, config: Config) -> Float[Array, "... m"]:
    return rms_norm(x, 1 + w["scale"].astype(jnp.float32), config.epsilon)


def _projections(w: Params, x: Float[Array, "b t m"], config: Config) -> list[Float[Array, "b _ t d"]]:
    """Queries, keys and values, heads before tokens."""
    heads = lambda y: jnp.swapaxes(y.reshape(*x.shape[:2], -1, config.head_dim), 1, 2)
    if "k_einsum" in w:  # a kernel each, as a mesh wants them (`sharding.serving`)
        return [heads(linear(x, w[name]["w"])) for name in ("q_einsum", "k_einsum", "v_einsum")]
    names = ("qkv_einsum",) if "qkv_einsum" in w else ("q_einsum", "kv_einsum")
    joined = jnp.concatenate([linear(x, _kernel(w[name]["w"], -2)) for name in names], axis=-1)
    return jnp.split(heads(joined), [config.heads, config.heads + config.kv_heads], axis=1)


def _attention(
    w: Params, config: Config, local: bool, x: Float[Array, "b t m"], view: View, own: Callable[..., Any]
) -> tuple[Float[Array, "b t m"], Any]:
    q, k, v = _projections(w, x, config)
    if config.generation == 3:
        q, k = _norm(q, w["_query_norm"], config), _norm(k, w["_key_norm"], config)
    frequencies = _frequencies(config, local)
    q = rotate(q, view.positions, frequencies) * config.query_scalar**-0.5
    pair, (k, v) = own(rotate(k, view.positions, frequencies), v)
    h = attend(q, k, v, view.near if local else view.far, config.attention_softcap)
    return linear(h, _kernel(w["attn_vec_einsum"]["w"], 0, 1)), pair


def _mlp(w: Params, x: Float[Array, "b t m"]) -> Float[Array, "b t m"]:
    if "gate" in w:
        gate, up = linear(x, w["gate"]), linear(x, w["up"])
    else:
        gate, up = jnp.split(linear(x, _kernel(w["gating_einsum"], -1)), 2, axis=-1)
    return linear(jax.nn.gelu(gate, approximate=True) * up, w["linear"])


def _block(
    w: Params, config: Config, local: bool, x: Float[Array, "b t m"], view: View, own: Callable[..., Any]
) -> tuple[Float[Array, "b t m"], Any]:
    """One layer: `own(k, v)` gives what is kept of the tokens, returned too, and what to attend to."""
    norm = lambda y, name: _norm(y, w[name], config)
    h, pair = _attention(w["attn"], config, local, norm(x, "pre_attention_norm"), view, own)
    x = x + (norm(h, "post_attention_norm") if config.generation > 1 else h)
    h = _mlp(w["mlp"], norm(x, "pre_ffw_norm"))
    return x + (norm(h, "post_ffw_norm") if config.generation > 1 else h), pair


def _layers(
    params: Params,
    config: Config,
    x: Float[Array, "b t m"],
    caches: Any,
    view: View,
    store: Callable[..., Any],
) -> tuple[Float[Array, "b t m"], Any]:
    """All layers and their caches, one after another or, where the parameters are stacked, in a scan.

    store(pair, at, k, v): a block's `own`; in a scan `pair` is the caches of all layers of its place in the
    pattern, of which its own is number `at`.
    """

    def run(w: Params, names: list[str], x: Array, pairs: Any, at: Any) -> tuple[Array, Any]:
        kept = []
        for i, (name, pair) in enumerate(zip(names, pairs, strict=True)):
            x, pair = _block(w[name], config, config.local(i), x, view, partial(store, pair, at))
            kept.append(pair)
        return x, tuple(kept)

    names = [f"layer_{i}" for i in range(config.layers)]
    if STACKED not in params:
        return run(params, names, x, caches, None)
    groups, rest = caches
    whole, places = config.layers - len(rest), [f"attention_type_{j}" for j in range(config.pattern)]
    # The caches travel in the carry: as inputs and outputs of a scan a CPU copies them.
    body = lambda carry, step: (run(step[1], places, *carry, step[0]), None)
    steps = (jnp.arange(whole // config.pattern), params[STACKED])
    (x, groups), _ = lax.scan(body, (x, groups), steps)
    x, rest = run(params, names[whole:], x, rest, None)  # a kind depends on the place in the pattern alone
    return x, (groups, rest)


def _embed(params: Params, tokens: Int[Array, "b t"], config: Config) -> Float[Array, "b t m"]:
    """Rows of the table times sqrt(d_model), a factor the published models round to the weights' dtype."""
    table = params["embedder"]["input_embedding"]
    factor = jnp.asarray(config.d_model**0.5, table.dtype).astype(jnp.float32)
    return look_up(table, tokens) * factor


def _logits(params: Params, x: Float[Array, "b t m"], config: Config) -> Float[Array, "b t v"]:
    """Scores over the table's rows, those beyond the tokenizer's ids at -inf (never emitted)."""
    h, head = _norm(x, params["final_norm"], config), params.get("logits_dense")
    y = scores(h, params["embedder"]["input_embedding"]) if head is None else linear(h, head["kernel"])
    if config.final_softcap is not None:
        y = config.final_softcap * jnp.tanh(y / config.final_softcap)
    return jnp.where(jnp.arange(config.embeddings) < config.vocab, y, -jnp.inf)


# ------------------------------------------------------------------------------------------------------------
# Training


def forward(
    params: Params, config: Config, tokens: Int[Array, "b t"], segments: Int[Array, "b t"]
) -> Float[Array, "b t v"]:
    """Logits of the token after each (teacher forcing, no cache); a token sees those of its own segment only.

    segments: packed texts count 1, 2, ... within a row and 0 is padding. Positions run on through a row:
    rotations and windows know distances only.
    """
    (b, t), dtype = tokens.shape, params["embedder"]["input_embedding"].dtype
    view = _view(config, jnp.zeros(b, jnp.int32), t, t, segments[:, :, None] == segments[:, None, :])
    store = lambda pair, at, k, v: (pair, (k.astype(dtype), v.astype(dtype)))
    none = _caches(config, STACKED in params, lambda *n: None)
    x, _ = _layers(params, config, _embed(params, tokens, config), none, view, store)
    return _logits(params, x, config)


# ------------------------------------------------------------------------------------------------------------
# Decoding: the LM protocol


def _caches(config: Config, stacked: bool, pair: Callable[..., Any]) -> Any:
    """One pair a layer; stacked: one pair a place in the pattern, `pair(n)`, and one a layer left over."""
    if not stacked:
        return tuple(pair() for _ in range(config.layers))
    n, left = divmod(config.layers, config.pattern)
    return tuple(pair(n) for _ in range(config.pattern)), tuple(pair() for _ in range(left))


LAYER_AND_SLOT = lax.ScatterDimensionNumbers((2, 3), (0, 3), (0, 3), (1,), (0,))
"""Updates [b, t, h, d] into [n, b, h, l, d] at indices [b, t, 2]; `vmap` over the second axis would copy."""


def _write(old: Array, new: Array, length: Int[Array, " b"], at: Any) -> tuple[Array, Array]:
    """The cache [b, h, l, d] or caches [n, b, h, l, d] with t new entries, and the layer's own."""
    if at is None:
        whole = kv.write(old, new, length)
        return whole, whole
    slots = length[:, None] + jnp.arange(new.shape[2])
    where = jnp.stack([jnp.full_like(slots, at), slots], -1)
    new = jnp.swapaxes(new, 1, 2).astype(old.dtype)
    whole = lax.scatter(old, where, new, LAYER_AND_SLOT, unique_indices=True, mode="drop")
    return whole, lax.dynamic_index_in_dim(whole, at, 0, keepdims=False)


@dataclass(frozen=True)
class Gemma:
    """The LM protocol over a Gemma.

    cache_dtype: of cached keys and values; scan: parameters come stacked (`serving` sees to it, or `stack`),
    so that the time to compile does not grow with the number of layers.
    """

    config: Config
    cache_dtype: Any = jnp.float32
    scan: bool = False

    @property
    def vocab(self) -> int:
        return self.config.embeddings

    def flops_per_token(self) -> int:
        """FLOPs of one token: two a weight of the layers' kernels and of the logits."""
        c = self.config
        layer = 2 * c.d_model * c.head_dim * (c.heads + c.kv_heads) + 3 * c.d_model * c.d_ff
        return 2 * (c.layers * layer + c.d_model * c.embeddings)

    def serving(self, params: Params) -> Params:
        """See `serving`; stacked where this model scans its layers."""
        flat = serving(params, self.config)
        return stack(flat, self.config) if self.scan else flat

    def prefill(
        self, params: Params, tokens: Int[Array, "b s"], lengths: Int[Array, " b"], capacity: int
    ) -> tuple[Int[Array, " b"], Cache]:
        """Reads right-padded prompts (at least one token) up to the last one, which stays unread."""
        c, b = self.config, tokens.shape[0]
        blank = lambda *n: (jnp.zeros((*n, b, c.kv_heads, capacity, c.head_dim), self.cache_dtype),) * 2
        empty = Cache(_caches(c, STACKED in params, blank), jnp.zeros(b, jnp.int32))
        _, layers = self._read(params, tokens, empty)
        last = jnp.take_along_axis(tokens, lengths[:, None] - 1, axis=1)[:, 0]
        return last, Cache(layers, lengths.astype(jnp.int32) - 1)

    def extend(
        self, params: Params, tokens: Int[Array, "b t"], cache: Cache
    ) -> tuple[Float[Array, "b t v"], Cache]:
        """Reads t tokens at each row's own position; logits [b, t, v] of the token after each."""
        x, layers = self._read(params, tokens, cache)
        return _logits(params, x, self.config), kv.advance(cache, layers, tokens.shape[1])

    def _read(self, params: Params, tokens: Int[Array, "b t"], cache: Cache) -> tuple[Array, Any]:
        c, stacked = self.config, STACKED in params
        if stacked != (self.scan and c.layers >= c.pattern):
            raise ValueError(f"parameters are {'' if stacked else 'not '}stacked, but scan is {self.scan}")
        l = jax.tree.leaves(cache.layers)[0].shape[-2]
        view = _view(c, cache.length, tokens.shape[1], l)

        def store(pair: Any, at: Any, *new: Array) -> tuple[Any, Any]:
            both = [_write(old, entries, cache.length, at) for old, entries in zip(pair, new, strict=True)]
            return tuple(zip(*both, strict=True))

        return _layers(params, c, _embed(params, tokens, c), cache.layers, view, store)
