"""Tiny model pairs of every family, with right-padded prompts of different lengths."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import laws
import pytest

from spec_cascades.models import t5


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


SLOW_T5 = ["markov", pytest.param("t5", marks=pytest.mark.slow)]
"""Families for tests whose T5 half costs much and is also covered elsewhere."""

FAMILIES = {
    "markov": Model(laws.LM, laws.LM, laws.tables(), *_prompts(laws.VOCAB)),
    "t5": _t5(),
}
