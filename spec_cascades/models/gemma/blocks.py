"""Gemma's layers over whatever keys and values they are handed, and the pass without a cache."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from spec_cascades.models.gemma.config import Config
from spec_cascades.models.gemma.params import STACKED, kernel_of
from spec_cascades.models.layers import HIDDEN, attend, linear, look_up, rms_norm, rotate, scores, summed
from spec_cascades.typing import Array, Float, Int, Params


class View(NamedTuple):
    """What all layers of a call share: where the tokens stand, and the biases of local and global layers."""

    positions: Int[Array, "b t"]
    near: Float[Array, "#b 1 t _"]
    far: Float[Array, "#b 1 t l"]


def view_of(
    config: Config,
    positions: Int[Array, "b t"],
    near: Int[Array, "#b _"],
    far: Int[Array, "#b l"],
    same: Any = True,
) -> View:
    """Tokens at these positions; near, far: those of the keys that local and global layers attend to.

    A key at a negative position is none; `same` [b, t, l] may hide further ones.
    """

    def bias(keys: Int[Array, "#b _"], reach: int | None) -> Float[Array, "b 1 t _"]:
        behind = positions[:, :, None] - keys[:, None]
        seen = (behind >= 0) & (keys >= 0)[:, None] & same
        return jnp.where(seen if reach is None else seen & (behind < reach), 0.0, HIDDEN)[:, None]

    return View(positions, bias(near, config.window), bias(far, None))


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
    joined = jnp.concatenate([linear(x, kernel_of(w[name]["w"], -2)) for name in names], axis=-1)
    return jnp.split(heads(joined), [config.heads, config.heads + config.kv_heads], axis=1)


def _attention(
    w: Params, config: Config, local: bool, x: Float[Array, "b t m"], view: View, own: Callable[..., Any]
) -> tuple[Float[Array, "b t m"], Any]:
    q, k, v = _projections(w, x, config)
    if config.generation == 3:
        q, k = _norm(q, w["_query_norm"], config), _norm(k, w["_key_norm"], config)
    frequencies = _frequencies(config, local)
    q = rotate(q, view.positions, frequencies) * config.query_scalar**-0.5
    pair, kept = own(rotate(k, view.positions, frequencies), v)
    if callable(kept):
        h = kept(q, config.window if local else None)
    else:
        h = attend(q, *kept, view.near if local else view.far, config.attention_softcap)
    return summed(h, kernel_of(w["attn_vec_einsum"]["w"], 0, 1)), pair


def _mlp(w: Params, x: Float[Array, "b t m"]) -> Float[Array, "b t m"]:
    if "gate" in w:
        gate, up = linear(x, w["gate"]), linear(x, w["up"])
    else:
        gate, up = jnp.split(linear(x, kernel_of(w["gating_einsum"], -1)), 2, axis=-1)
    return summed(jax.nn.gelu(gate, approximate=True) * up, w["linear"])


def _block(
    w: Params, config: Config, local: bool, x: Float[Array, "b t m"], view: View, own: Callable[..., Any]
) -> tuple[Float[Array, "b t m"], Any]:
    """One layer: `own(k, v)` gives what is kept of the tokens, returned too, and what to attend to.

    That is keys and values, or a function of queries and of the window (None for all) that attends itself.
    """
    norm = lambda y, name: _norm(y, w[name], config)
    h, pair = _attention(w["attn"], config, local, norm(x, "pre_attention_norm"), view, own)
    x = x + (norm(h, "post_attention_norm") if config.generation > 1 else h)
    h = _mlp(w["mlp"], norm(x, "pre_ffw_norm"))
    return x + (norm(h, "post_ffw_norm") if config.generation > 1 else h), pair


def run_layers(
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


def embed(params: Params, tokens: Int[Array, "b t"], config: Config) -> Float[Array, "b t m"]:
    """Rows of the table times sqrt(d_model), a factor the published models round to the weights' dtype."""
    table = params["embedder"]["input_embedding"]
    factor = jnp.asarray(config.d_model**0.5, table.dtype).astype(jnp.float32)
    return look_up(table, tokens) * factor


def logits_of(params: Params, x: Float[Array, "b t m"], config: Config) -> Float[Array, "b t v"]:
    """Scores over the table's rows, those beyond the tokenizer's ids at -inf (never emitted)."""
    h, head = _norm(x, params["final_norm"], config), params.get("logits_dense")
    y = scores(h, params["embedder"]["input_embedding"]) if head is None else linear(h, head["kernel"])
    if config.final_softcap is not None:
        y = config.final_softcap * jnp.tanh(y / config.final_softcap)
    return jnp.where(jnp.arange(config.embeddings) < config.vocab, y, -jnp.inf)


def one_a_layer(config: Config, stacked: bool, pair: Callable[..., Any]) -> Any:
    """`pair(i)` for layer i; stacked: `pair(i, n)` for each place in the pattern, and those left over."""
    if not stacked:
        return tuple(pair(i) for i in range(config.layers))
    n, left = divmod(config.layers, config.pattern)
    return tuple(pair(i, n) for i in range(config.pattern)), tuple(pair(i) for i in range(left))


def forward(
    params: Params, config: Config, tokens: Int[Array, "b t"], segments: Int[Array, "b t"]
) -> Float[Array, "b t v"]:
    """Logits of the token after each (teacher forcing, no cache); a token sees those of its own segment only.

    segments: packed texts count 1, 2, ... within a row and 0 is padding. Positions run on through a row:
    rotations and windows know distances only.
    """
    (b, t), dtype = tokens.shape, params["embedder"]["input_embedding"].dtype
    at = jnp.broadcast_to(jnp.arange(t), (b, t))
    view = view_of(config, at, at, at, segments[:, :, None] == segments[:, None, :])
    store = lambda pair, at, k, v: (pair, (k.astype(dtype), v.astype(dtype)))
    none = one_a_layer(config, STACKED in params, lambda *n: None)
    x, _ = run_layers(params, config, embed(params, tokens, config), none, view, store)
    return logits_of(params, x, config)
