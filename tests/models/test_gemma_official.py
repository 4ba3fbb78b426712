"""Our Gemmas against the official package's modules, float32, on the official parameter tree as it is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_cascades.models import gemma

TINY = dict(vocab=96, embeddings=96, d_model=32, head_dim=16, d_ff=48, heads=4, kv_heads=2, window=5)
CONFIGS = {
    "1": gemma.Config(1, **TINY | dict(layers=2, kv_heads=1, query_scalar=16)),
    "2": gemma.Config(
        2,
        **TINY | dict(layers=3, pattern=2, attention_softcap=2.0, final_softcap=1.5, kv_heads=4),
        query_scalar=8,
    ),
    "3": gemma.Config(3, **TINY | dict(layers=4, pattern=3, rope_base=1e6, rope_scale=8.0, query_scalar=16)),
}


@pytest.fixture(scope="module")
def official():
    """The package's modules for transformers, without its tokenizers and samplers."""
    return pytest.importorskip("gemma.gm.nn", reason="needs the official package (extra [gemma])")


def theirs(official, c):
    """The official module of a Config."""
    kinds, norms = official.AttentionType, official.config.QueryPreAttentionNormalisation
    by_head, by_width = norms.BY_ONE_OVER_SQRT_HEAD_DIM, norms.BY_ONE_OVER_SQRT_EMBED_DIM_DIV_NUM_HEADS
    config = official.config.TransformerConfig(
        num_embed=c.embeddings,
        embed_dim=c.d_model,
        hidden_dim=c.d_ff,
        num_heads=c.heads,
        head_dim=c.head_dim,
        num_kv_heads=c.kv_heads,
        final_logit_softcap=c.final_softcap,
        use_post_attn_norm=c.generation > 1,
        use_post_ffw_norm=c.generation > 1,
        attention_types=[kinds.LOCAL_SLIDING if c.local(i) else kinds.GLOBAL for i in range(c.layers)],
        query_pre_attn_norm=by_head if c.query_scalar == c.head_dim else by_width,
        attn_logits_soft_cap=c.attention_softcap,
        sliding_window_size=c.window,
        transpose_gating_einsum=True,
        use_qk_norm=c.generation == 3,
        local_base_frequency=int(c.local_rope_base),
        global_base_frequency=int(c.rope_base),
        global_scale_factor=c.rope_scale,
    )
    return official.Transformer(config=config, tokens="tokens", dtype=jnp.float32)


@pytest.mark.parametrize("name", sorted(CONFIGS))
@pytest.mark.parametrize("t", [3, 30])
def test_logits_equal_the_official_ones(official, name, t):
    config = CONFIGS[name]
    assert config.query_scalar in (config.head_dim, config.d_model // config.heads)
    rng = np.random.default_rng(0)
    draw = lambda s: jnp.asarray(rng.normal(size=s) * (0.2 if len(s) == 1 else s[-2] ** -0.5), jnp.float32)
    params = jax.tree.map(draw, gemma.shapes_of(config), is_leaf=lambda x: isinstance(x, tuple))
    params = params | {
        "embedder": {"input_embedding": draw((4 * config.embeddings, 32))[: config.embeddings]}
    }
    tokens = jnp.asarray(rng.integers(3, 96, (2, t)))
    model = theirs(official, config)
    shapes = jax.eval_shape(model.init, jax.random.key(0), tokens)["params"]
    assert jax.tree.map(lambda x: x.shape, shapes) == gemma.shapes_of(config)
    expected = model.apply({"params": params}, tokens).logits
    got = jax.jit(gemma.forward, static_argnums=1)(params, config, tokens, jnp.ones_like(tokens))
    assert np.std(expected) > 0.1, "logits this small would pass any tolerance"
    np.testing.assert_allclose(got, expected, atol=1e-5, rtol=0)
