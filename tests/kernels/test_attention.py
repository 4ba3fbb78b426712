"""The kernel against dense attention, interpreted: lengths, windows, groups, softcap, scanned layers."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import FAMILIES

from spec_cascades import kernels
from spec_cascades.kernels import attention
from spec_cascades.models import gemma
from spec_cascades.models.subset import Subset

B, H, L, D, BLOCK = 4, 2, 40, 8, 16
LENGTHS = (0, 15, 16, 33)
"""The first slot, a block's last, a block's first, and one in the last block, which the cache's end cuts."""


def arrays(group, t, layers=None, dtype=jnp.float32):
    keys = jax.random.split(jax.random.key(0), 3)
    shape = (B, H, L, D) if layers is None else (B, layers, H, L, D)
    q = jax.random.normal(keys[0], (B, H * group, t, D))
    return q, tuple(jax.random.normal(key, shape).astype(dtype) for key in keys[1:])


def both(q, pair, layer=None, window=None, softcap=None, lengths=LENGTHS):
    given = q, pair, jnp.array(lengths), layer, window, softcap
    got = attention.decode_attention(*given, block=BLOCK, interpret=True)
    return np.asarray(got), np.asarray(attention.reference(*given))


@pytest.mark.parametrize(
    ("group", "t", "window", "softcap"),
    [(1, 1, None, None), (2, 5, None, 2.0), (4, 3, 5, 1.5)],
)
def test_the_kernel_equals_dense_attention(group, t, window, softcap):
    got, expected = both(*arrays(group, t), window=window, softcap=softcap)
    assert got.shape == (B, t, H * group * D)
    np.testing.assert_allclose(got, expected, atol=2e-6)


def test_a_scanned_layer_is_read_where_it_lies():
    q, pair = arrays(2, 3, layers=3)
    for layer in (0, 2):
        got, expected = both(q, pair, jnp.int32(layer))
        np.testing.assert_allclose(got, expected, atol=2e-6)
    assert np.abs(got - both(q, pair, jnp.int32(0))[0]).max() > 0.1


def test_bfloat16_caches_differ_by_rounding_alone():
    got, expected = both(*arrays(2, 3, dtype=jnp.bfloat16))
    np.testing.assert_allclose(got, expected, atol=2e-2)


def test_what_lies_beyond_a_rows_length_is_not_read():
    """NaN in every block that a row has no business in, and beyond what it may see inside its blocks."""
    q, pair = arrays(2, 2)
    clean, _ = both(q, pair, window=6)
    slot, begin = jnp.arange(L), jnp.array(LENGTHS)[:, None]
    last, first = (begin + 1) // BLOCK, jnp.maximum(begin - 5, 0) // BLOCK
    far = (slot // BLOCK > last) | (slot // BLOCK < first)
    assert far.any(axis=1).sum() >= 3
    dirty = tuple(jnp.where(far[:, None, :, None], jnp.nan, x) for x in pair)
    np.testing.assert_array_equal(both(q, dirty, window=6)[0], clean)


def test_a_finished_row_beyond_the_caches_end_is_finite():
    got, _ = both(*arrays(1, 3), lengths=(38, 40, 45, 60), window=4)
    assert np.isfinite(got).all()


def test_a_layer_goes_with_a_stack_alone():
    q, pair = arrays(1, 1)
    with pytest.raises(ValueError, match="a layer does not go with keys of 4 axes"):
        attention.decode_attention(q, pair, jnp.array(LENGTHS), 1, interpret=True)
    with pytest.raises(ValueError, match="no layer does not go with keys of 5 axes"):
        attention.decode_attention(*arrays(1, 1, layers=2), jnp.array(LENGTHS), interpret=True)


# ------------------------------------------------------------------------------------------------------------
# In a model


def test_a_model_reads_its_scanned_cache_through_the_kernel():
    model = FAMILIES["llama"]
    kernel = partial(attention.decode_attention, block=8, interpret=True)
    out = []
    for lm in (model.target, replace(model.target, scan=True, attention=kernel)):
        params = lm.serving(model.params["target"])
        _, cache = lm.prefill(params, model.prompts, model.lengths, 20)
        out.append(lm.extend(params, model.prompts[:, :3], cache)[0][..., :40])
    np.testing.assert_allclose(*out, atol=1e-5)


def test_gemma_reads_its_whole_caches_through_the_kernel():
    """A window of those of local layers; their rings stay dense."""
    model = FAMILIES["gemma"]
    config = replace(model.target.config, generation=2, attention_softcap=2.0, layers=2)
    params, calls = gemma.init(jax.random.key(0), config), []

    def kernel(q, pair, length, layer, window, softcap):
        calls.append((window, softcap))
        return attention.decode_attention(q, pair, length, layer, window, softcap, block=8, interpret=True)

    def logits(lm, params, width):
        served = lm.serving(params)
        _, cache = lm.prefill(served, model.prompts, model.lengths, 20, width)
        return lm.extend(served, model.prompts[:, :3], cache)[0][..., :40]

    through = partial(logits, gemma.Gemma(config, attention=kernel))
    dense = partial(logits, gemma.Gemma(config))
    out = jax.jit(lambda params: (through(params, None), dense(params, None)))(params)
    np.testing.assert_allclose(*out, atol=1e-5)
    assert calls == [(config.window, 2.0), (None, 2.0)]
    jax.eval_shape(lambda params: through(params, 3), params)
    assert calls[2:] == [(None, 2.0)]


def test_the_kernel_goes_to_models_with_a_place_for_it_on_a_tpu_alone(monkeypatch):
    llama, t5 = FAMILIES["llama"].target, FAMILIES["t5"].target
    with pytest.raises(ValueError, match="is for TPUs, and this is a cpu"):
        kernels.attached(llama)
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    assert kernels.attached(Subset(llama, 48)).lm.attention is attention.decode_attention
    assert kernels.attached(Subset(llama, 48), "drafter").lm.attention == attention.OnMesh("drafter")
    assert kernels.attached(FAMILIES["gemma"].target).attention is attention.decode_attention
    with pytest.raises(ValueError, match="llama-like models and Gemma, and this is a T5"):
        kernels.attached(t5)
