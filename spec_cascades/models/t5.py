"""T5 1.0, T5 1.1 and Flan-T5: encoder once, decoder in blocks of any length against a per-row cache.

Raffel et al., JMLR 2020. The parameter tree is T5X's (`decoder/layers_0/self_attention/query/kernel`),
kernels are [in, out] with the heads joined, and the residual stream, norms and softmaxes are float32 whatever
the weights are.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from spec_cascades import cache as kv
from spec_cascades.cache import Cache
from spec_cascades.models.layers import (
    HIDDEN,
    Dropout,
    attend,
    drop_out,
    linear,
    look_up,
    rms_norm,
    scores,
    summed,
)
from spec_cascades.models.stacking import STACKED, check, stack, through
from spec_cascades.models.t5_sizes import ACTIVATIONS
from spec_cascades.models.t5_sizes import PRESETS as PRESETS
from spec_cascades.models.t5_sizes import Config as Config
from spec_cascades.typing import Array, Bool, Float, Int, Params, PRNGKeyArray

# ------------------------------------------------------------------------------------------------------------
# Parameters


def init(key: PRNGKeyArray, config: Config, dtype: Any = jnp.float32) -> Params:
    """Random parameters at T5's scales: kernels fan-in normal, queries also 1/sqrt(d_kv), embeddings 1."""
    shapes = shapes_of(config)
    leaves, tree = jax.tree.flatten(shapes, is_leaf=lambda x: isinstance(x, tuple))
    paths = [
        jax.tree_util.keystr(p) for p, _ in jax.tree_util.tree_leaves_with_path(shapes, is_leaf=_is_shape)
    ]
    keys = jax.random.split(key, len(leaves))
    draw = lambda k, path, shape: (_scale(path, shape, config) * jax.random.normal(k, shape)).astype(dtype)
    values = [
        jnp.ones(s, dtype) if "scale" in p else draw(k, p, s)
        for k, p, s in zip(keys, paths, leaves, strict=True)
    ]
    return jax.tree.unflatten(tree, values)


def _is_shape(x: Any) -> bool:
    return isinstance(x, tuple)


def _scale(path: str, shape: tuple[int, ...], config: Config) -> float:
    if "token_embedder" in path:
        return 1.0
    if "rel_embedding" in path:
        return config.d_model**-0.5
    return shape[0] ** -0.5 * (config.d_kv**-0.5 if "query" in path else 1.0)


def shapes_of(config: Config) -> dict[str, Any]:
    """The parameter tree with a shape at every leaf: what a checkpoint must hold, no more and no less."""
    m, joined = config.d_model, config.heads * config.d_kv
    attention = {n: {"kernel": (m, joined)} for n in ("query", "key", "value")} | {
        "out": {"kernel": (joined, m)}
    }
    wi = {"wi_0": {"kernel": (m, config.d_ff)}, "wi_1": {"kernel": (m, config.d_ff)}}
    mlp = (wi if config.gated else {"wi": {"kernel": (m, config.d_ff)}}) | {
        "wo": {"kernel": (config.d_ff, m)}
    }
    norm = {"scale": (m,)}
    relpos = {"rel_embedding": (config.heads, config.buckets)}
    encoder_layer = {
        "pre_attention_layer_norm": norm,
        "attention": attention,
        "pre_mlp_layer_norm": norm,
        "mlp": mlp,
    }
    decoder_layer = {
        "pre_self_attention_layer_norm": norm,
        "self_attention": attention,
        "pre_cross_attention_layer_norm": norm,
        "encoder_decoder_attention": attention,
        "pre_mlp_layer_norm": norm,
        "mlp": mlp,
    }
    encoder = {f"layers_{i}": encoder_layer for i in range(config.encoder_layers)}
    decoder = {f"layers_{i}": decoder_layer for i in range(config.decoder_layers)}
    head = {} if config.tied else {"logits_dense": {"kernel": (m, config.embeddings)}}
    return {
        "token_embedder": {"embedding": (config.embeddings, m)},
        "encoder": encoder | {"encoder_norm": norm, "relpos_bias": relpos},
        "decoder": decoder | {"decoder_norm": norm, "relpos_bias": relpos} | head,
    }


# ------------------------------------------------------------------------------------------------------------
# Blocks


def _bucket(behind: Int[Array, "..."], config: Config, both_ways: bool) -> Int[Array, "..."]:
    """T5's log buckets of a distance (query index - key index); an encoder also looks ahead."""
    buckets, offset = config.buckets, jnp.zeros_like(behind)
    if both_ways:
        buckets //= 2
        offset = jnp.where(behind < 0, buckets, 0)
        behind = jnp.abs(behind)
    behind = jnp.maximum(behind, 0)
    exact = buckets // 2
    ratio = jnp.maximum(behind, 1).astype(jnp.float32) / exact
    far = exact + (jnp.log(ratio) / jnp.log(config.max_distance / exact) * (buckets - exact)).astype(
        jnp.int32
    )
    return offset + jnp.where(behind < exact, behind, jnp.minimum(far, buckets - 1))


def _split(x: Float[Array, "b t hd"], config: Config) -> Float[Array, "b h t d"]:
    return jnp.swapaxes(x.reshape(*x.shape[:2], config.heads, config.d_kv), 1, 2)


def _project(w: Params, x: Array, config: Config, *names: str) -> list[Float[Array, "b h t d"]]:
    return [_split(linear(x, w[name]["kernel"]), config) for name in names]


def _mlp(w: Params, x: Float[Array, "b t m"], config: Config) -> Float[Array, "b t m"]:
    act = ACTIVATIONS[config.activation]
    if config.gated:
        hidden = act(linear(x, w["wi_0"]["kernel"])) * linear(x, w["wi_1"]["kernel"])
    else:
        hidden = act(linear(x, w["wi"]["kernel"]))
    return summed(hidden, w["wo"]["kernel"])


def _embed(params: Params, tokens: Int[Array, "b t"]) -> Float[Array, "b t m"]:
    return look_up(params["token_embedder"]["embedding"], tokens)


def _logits(params: Params, x: Float[Array, "b t m"], config: Config) -> Float[Array, "b t v"]:
    """Scores over the table's rows, those beyond the tokenizer's ids at -inf (never emitted)."""
    if config.tied:
        y = scores(x * config.d_model**-0.5, params["token_embedder"]["embedding"])
    else:
        y = linear(x, params["decoder"]["logits_dense"]["kernel"])
    return jnp.where(jnp.arange(config.embeddings) < config.vocab, y, -jnp.inf)


def encode(
    params: Params,
    config: Config,
    tokens: Int[Array, "b s"],
    mask: Bool[Array, "#b #s s"],
    dropout: Any = None,
) -> Float[Array, "b s m"]:
    """The encoder's output for right-padded tokens; `mask[b, i, j]` says that i may look at j."""
    w, s = params["encoder"], tokens.shape[1]
    behind = jnp.arange(s)[:, None] - jnp.arange(s)
    bias = w["relpos_bias"]["rel_embedding"].astype(jnp.float32)[:, _bucket(behind, config, True)]
    bias = bias[None] + jnp.where(mask, 0.0, HIDDEN)[:, None]

    def block(layer: Params, x: Array, cache: Any, i: Any) -> tuple[Array, Any]:
        h = rms_norm(x, layer["pre_attention_layer_norm"]["scale"], config.epsilon)
        h = attend(*_project(layer["attention"], h, config, "query", "key", "value"), bias)
        x = x + drop_out(dropout, summed(h, layer["attention"]["out"]["kernel"]), 3 * i + 1)
        h = rms_norm(x, layer["pre_mlp_layer_norm"]["scale"], config.epsilon)
        return x + drop_out(dropout, _mlp(layer["mlp"], h, config), 3 * i + 2), cache

    x = drop_out(dropout, _embed(params, tokens), 0)
    x, _ = through(w, _names(config.encoder_layers), block, x)
    return drop_out(
        dropout, rms_norm(x, w["encoder_norm"]["scale"], config.epsilon), 3 * config.encoder_layers + 1
    )


def _decoder_layer(
    layer: Params,
    config: Config,
    x: Array,
    own: Any,
    memory: Any,
    self_bias: Array,
    cross_bias: Array,
    drop: Any,
) -> tuple[Array, Any]:
    """One decoder block: `own(k, v)` gives what is kept of its tokens, returned too, and what to read."""
    h = rms_norm(x, layer["pre_self_attention_layer_norm"]["scale"], config.epsilon)
    q, k, v = _project(layer["self_attention"], h, config, "query", "key", "value")
    kept, (k, v) = own(k, v)
    h = attend(q, k, v, self_bias)
    x = x + drop(summed(h, layer["self_attention"]["out"]["kernel"]), 0)
    h = rms_norm(x, layer["pre_cross_attention_layer_norm"]["scale"], config.epsilon)
    (q,) = _project(layer["encoder_decoder_attention"], h, config, "query")
    h = attend(q, *memory, cross_bias)
    x = x + drop(summed(h, layer["encoder_decoder_attention"]["out"]["kernel"]), 1)
    h = rms_norm(x, layer["pre_mlp_layer_norm"]["scale"], config.epsilon)
    return x + drop(_mlp(layer["mlp"], h, config), 2), kept


def _names(n: int) -> list[str]:
    return [f"layers_{i}" for i in range(n)]


def cross_keys(params: Params, config: Config, encoded: Float[Array, "b s m"], dtype: Any) -> tuple[Any, ...]:
    """Every decoder layer's keys and values of the encoder's output: n pairs of [b, h, s, d], or one pair of
    [b, n, h, s, d] for stacked layers.
    """
    project = lambda w: tuple(kv.stored(a, dtype) for a in _project(w, encoded, config, "key", "value"))
    layers, name = params["decoder"], "encoder_decoder_attention"
    if STACKED in layers:
        return jax.vmap(project, out_axes=1)(layers[STACKED][name])
    return tuple(project(layers[i][name]) for i in _names(config.decoder_layers))


def _causal_bias(params: Params, config: Config, behind: Int[Array, "b t l"]) -> Float[Array, "b h t l"]:
    table = params["decoder"]["relpos_bias"]["rel_embedding"].astype(jnp.float32)
    # By distance first: the buckets' logarithms are then taken once per distance and not once per (b, t, l).
    by_distance = table[:, _bucket(jnp.arange(behind.shape[-1]), config, False)].T
    bias = by_distance[jnp.clip(behind, 0, behind.shape[-1] - 1)]
    return jnp.where(behind[:, None] >= 0, jnp.moveaxis(bias, -1, 1), HIDDEN)


# ------------------------------------------------------------------------------------------------------------
# Training


class Batch(NamedTuple):
    """Packed examples, [b, s] and [b, t]: segments count 1, 2, ... within a row and 0 is padding."""

    inputs: Int[Array, "b s"]
    targets: Int[Array, "b t"]
    input_segments: Int[Array, "b s"]
    target_segments: Int[Array, "b t"]
    decoder_inputs: Int[Array, "b t"]


def forward(
    params: Params, config: Config, batch: Batch, dropout: Dropout | None = None
) -> Float[Array, "b t v"]:
    """Logits of every target position given the tokens before it (teacher forcing, no cache)."""
    same = lambda a, b: a[:, :, None] == b[:, None, :]
    encoder_drop = None if dropout is None else dropout._replace(key=jax.random.fold_in(dropout.key, 1))
    encoded = encode(
        params, config, batch.inputs, same(batch.input_segments, batch.input_segments), encoder_drop
    )
    seen = same(batch.target_segments, batch.input_segments)
    cross_bias = jnp.where(seen, 0.0, HIDDEN)[:, None]
    t = batch.targets.shape[1]
    behind = kv.distances(jnp.zeros(1, jnp.int32), t, t)
    own = same(batch.target_segments, batch.target_segments)[:, None]
    self_bias = jnp.where(own, _causal_bias(params, config, behind), HIDDEN)

    # One key and value per layer, computed where it is used: training has no cache to fill.
    def block(layer: Params, x: Array, cache: Any, i: Any) -> tuple[Array, Any]:
        dtype = layer["mlp"]["wo"]["kernel"].dtype
        low = lambda k, v: (k.astype(dtype), v.astype(dtype))
        memory = low(*_project(layer["encoder_decoder_attention"], encoded, config, "key", "value"))
        drop = lambda y, j: drop_out(dropout, y, 3 * i + j + 1)
        own = lambda k, v: (None, low(k, v))
        return _decoder_layer(layer, config, x, own, memory, self_bias, cross_bias, drop)

    n, x = config.decoder_layers, drop_out(dropout, _embed(params, batch.decoder_inputs), 0)
    x, _ = through(params["decoder"], _names(n), block, x)
    x = rms_norm(x, params["decoder"]["decoder_norm"]["scale"], config.epsilon)
    return _logits(params, drop_out(dropout, x, 3 * config.decoder_layers + 1), config)


# ------------------------------------------------------------------------------------------------------------
# Decoding: the LM protocol


class Memory(NamedTuple):
    """What the decoder keeps of the prompt: `cross_keys` of it, and which slots are real."""

    layers: tuple[Any, ...]
    mask: Bool[Array, "b s"]


@dataclass(frozen=True)
class T5:
    """The LM protocol over a T5: `prefill` runs the encoder, `extend` the decoder on a block of t tokens.

    cache_dtype: of cached keys and values; scan: parameters come stacked (`serving` sees to it), so that the
    time to compile does not grow with the number of layers. Raises ValueError for float16 weights, whose
    range T5's activations exceed.
    """

    config: Config
    cache_dtype: Any = jnp.float32
    scan: bool = False
    encodes: ClassVar[bool] = True
    """Prompts are an encoder's: their tokens are none of the decoder's text."""

    @property
    def vocab(self) -> int:
        return self.config.embeddings

    def flops_per_token(self) -> int:
        """FLOPs of one decoded token: two a weight of the decoder (memory keys aside) and of the logits."""
        c = self.config
        joined = c.heads * c.d_kv
        layer = 6 * c.d_model * joined + (3 if c.gated else 2) * c.d_model * c.d_ff
        return 2 * (c.decoder_layers * layer + c.d_model * c.embeddings)

    def serving(self, params: Params) -> Params:
        """The parameters as decoding wants them: as they are, or stacked where layers are scanned."""
        if not self.scan:
            return params
        encoder = stack(params["encoder"], _names(self.config.encoder_layers))
        return params | {
            "encoder": encoder,
            "decoder": stack(params["decoder"], _names(self.config.decoder_layers)),
        }

    def prefill(
        self,
        params: Params,
        tokens: Int[Array, "b s"],
        lengths: Int[Array, " b"],
        capacity: int,
        width: int | None = None,
    ) -> tuple[Int[Array, " b"], Cache]:
        """Encodes right-padded prompts; the unread last token is the decoder's start symbol."""
        refuse_fp16(params)
        check(params["decoder"], self.scan)
        c, b = self.config, tokens.shape[0]
        mask = jnp.arange(tokens.shape[1]) < lengths[:, None]
        encoded = encode(params, c, tokens, mask[:, None])
        memory = Memory(cross_keys(params, c, encoded, self.cache_dtype), mask)
        empty = kv.empty_stack if self.scan else kv.empty
        blank = empty(c.decoder_layers, b, capacity, c.heads, c.d_kv, self.cache_dtype, memory)
        return jnp.full(b, c.start, jnp.int32), blank

    def extend(
        self, params: Params, tokens: Int[Array, "b t"], cache: Cache
    ) -> tuple[Float[Array, "b t v"], Cache]:
        """Reads t tokens at each row's own position; logits [b, t, v] of the token after each."""
        check(params["decoder"], self.scan)
        c, t, memory = self.config, tokens.shape[1], cache.memory
        slots, l = cache.length[:, None] + jnp.arange(t), jax.tree.leaves(cache.layers)[0].shape[-2]
        self_bias = _causal_bias(params, c, kv.distances(cache.length, t, l))
        cross_bias = jnp.where(cache.memory.mask, 0.0, HIDDEN)[:, None, None]

        def block(layer: Params, x: Array, old: Any, i: Any) -> tuple[Array, Any]:
            own = lambda *new: kv.store(old, new, slots, i if self.scan else None)
            cross = kv.of_layer(memory.layers, i) if self.scan else memory.layers[i]
            return _decoder_layer(layer, c, x, own, cross, self_bias, cross_bias, lambda y, _: y)

        x, layers = through(
            params["decoder"], _names(c.decoder_layers), block, _embed(params, tokens), cache.layers
        )
        x = rms_norm(x, params["decoder"]["decoder_norm"]["scale"], c.epsilon)
        return _logits(params, x, c), kv.advance(cache, layers, t)


def refuse_fp16(params: Params) -> None:
    """Raises ValueError for float16 weights."""
    if any(leaf.dtype == jnp.float16 for leaf in jax.tree.leaves(params)):
        raise ValueError(
            "T5 in float16 overflows: its feed-forward activations pass 65,504 and become inf. "
            "Load the weights as bfloat16 or float32."
        )
