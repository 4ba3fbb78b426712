"""Tiny model pairs of every family, with right-padded prompts of different lengths."""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import laws
import pytest

from spec_cascades.models import gemma, llama, t5


class Model(NamedTuple):
    """A pair, its parameters and a batch of prompts."""

    target: Any
    drafter: Any
    params: dict[str, Any]
    prompts: jax.Array
    lengths: jax.Array


SIZES = dict(vocab=40, embeddings=48, d_model=16, d_kv=4, d_ff=32, heads=4, encoder_layers=1, tied=True)


def _prompts(vocab, b=4, s=7):
    tokens = jax.random.randint(jax.random.key(5), (b, s), 2, vocab)
    lengths = jnp.asarray([s, 3, 5, 4][:b])
    return jnp.where(jnp.arange(s) < lengths[:, None], tokens, 0), lengths


def _t5():
    """A drafter that is the target without its second decoder layer: it agrees often, not always."""
    big = t5.Config(**SIZES, decoder_layers=2)
    small = t5.Config(**SIZES, decoder_layers=1)
    params = t5.init(jax.random.key(0), big)
    # Sharper kernels than at the start of training, else the untrained text is one token repeated.
    sharp = lambda path, x: x * (1.0 if "scale" in str(path) else 2.5)
    params = jax.tree_util.tree_map_with_path(sharp, params)
    decoder = {k: v for k, v in params["decoder"].items() if k != "layers_1"}
    pair = {"target": params, "drafter": params | {"decoder": decoder}}
    return Model(t5.T5(big), t5.T5(small), pair, *_prompts(40))


def _decoder_only(module, lm, **sizes):
    """A three-layer target and its own first layer as drafter, sharpened likewise."""
    big = module.Config(vocab=40, embeddings=48, d_model=16, d_ff=32, layers=3, heads=4, head_dim=4, **sizes)
    # Loud layers under a table as it is: the sum would else be the token just read, repeated.
    sharp = lambda path, x: x * (1.0 if "scale" in str(path) or "embed" in str(path) else 2.5)
    params = jax.tree_util.tree_map_with_path(sharp, module.init(jax.random.key(0), big))
    small = {name: leaf for name, leaf in params.items() if not name.endswith(("_1", "_2"))}
    pair = {"target": params, "drafter": small}
    return Model(lm(big), lm(replace(big, layers=1)), pair, *_prompts(40))


SLOW_T5 = ["markov", pytest.param("t5", marks=pytest.mark.slow)]
"""Families for tests whose T5 half costs much and is also covered elsewhere."""

FAMILIES = {
    "markov": Model(laws.LM, laws.LM, laws.tables(), *_prompts(laws.VOCAB)),
    "t5": _t5(),
    "llama": _decoder_only(llama, llama.Llama, kv_heads=2),
    "gemma": _decoder_only(gemma, gemma.Gemma, kv_heads=1, generation=3, pattern=2, window=4, query_scalar=4),
}
