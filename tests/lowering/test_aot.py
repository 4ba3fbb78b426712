"""A tiny pair and the kernels compile for eight v5e chips that are not there; skipped where libtpu is not."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding, SingleDeviceSharding

from spec_cascades import axes
from spec_cascades.config import Mesh
from spec_cascades.decode.speculative import Speculative
from spec_cascades.kernels import attention, verification
from spec_cascades.lowering import aot, hlo
from spec_cascades.models import llama
from spec_cascades.rules import RULES
from spec_cascades.verify import Noise

TOPOLOGY = "v5e:2x4"
SIZES = aot.Sizes(4, 32, 64)
BIG = llama.Config(
    vocab=512, embeddings=512, d_model=64, d_ff=128, layers=5, heads=4, kv_heads=4, head_dim=128
)


@pytest.fixture(scope="module")
def chips():
    pytest.importorskip("libtpu", reason="the extra [tpu-aot] compiles for TPUs")
    return aot.devices(TOPOLOGY)


def test_a_missing_compiler_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "libtpu", None)
    with pytest.raises(ModuleNotFoundError, match=r"spec-cascades\[tpu-aot\]"):
        aot.devices(TOPOLOGY)


def test_an_unknown_topology_is_named(chips):
    with pytest.raises(ValueError, match="topology 'v5e:9x9'"):
        aot.devices("v5e:9x9")


def test_a_pair_compiles_for_eight_chips_and_copies_no_cache(chips):
    models = {
        "drafter": llama.Llama(replace(BIG, layers=3), cache_dtype=jnp.bfloat16, scan=True),
        "target": llama.Llama(BIG, cache_dtype=jnp.bfloat16, scan=True),
    }
    at = aot.layout(Mesh(2, 4), TOPOLOGY)
    shapes = {role: llama.shapes_of(lm.config) for role, lm in models.items()}
    params = {role: aot.params(lm, shapes[role], jnp.bfloat16, role, at) for role, lm in models.items()}
    method = Speculative(models["drafter"], models["target"], RULES["v3"], 2)
    report, run = aot.compiled(method, params, SIZES, at)
    caches = 2 * 2 * SIZES.rows * 4 * (32 + 64 + method.width) * 128 * (3 + 5) // 8
    assert report.run.aliased >= caches
    assert report.copies == []
    assert report.loops >= 4
    # Each layer adds over the model axis twice: what attention and the feed-forward give.
    assert {c.times for c in report.collectives} >= {1, 5}
    sums = [c.shape for c in report.collectives if c.shape.endswith(f",{BIG.d_model}]")]
    assert len(sums) >= 5
    assert all(shape.startswith("bf16[") for shape in sums), "half of what float32 sums would be"
    # In any shape: the two rows of a device would be as many numbers.
    assert max(c.bytes for c in report.collectives) < 4 * 2 * BIG.vocab
    assert f"bf16[2,5,1,{96 + method.width},128]" in run.as_text()


@pytest.mark.parametrize("layers", [None, 3])
def test_the_kernel_is_accepted_for_a_tpu(chips, layers):
    here = SingleDeviceSharding(chips[0])
    shape = lambda dtype, *n: jax.ShapeDtypeStruct(n, dtype, sharding=here)
    cached = (2, 2, 1300, 128) if layers is None else (2, layers, 2, 1300, 128)
    q, length = shape(jnp.float32, 2, 4, 5, 128), shape(jnp.int32, 2)
    layer = None if layers is None else shape(jnp.int32)
    run = jax.jit(lambda q, k, v, n, i: attention.decode_attention(q, (k, v), n, i, window=600, softcap=50.0))
    done = run.lower(q, shape(jnp.bfloat16, *cached), shape(jnp.bfloat16, *cached), length, layer).compile()
    assert 'custom_call_target="tpu_custom_call"' in done.as_text()
    assert done.memory_analysis().temp_size_in_bytes < 2**20, "the cache is read where it lies"


@pytest.mark.parametrize("heads", [2, 8])
def test_the_kernel_is_accepted_for_eight_chips_and_exchanges_nothing(chips, heads):
    """Two key heads on four devices are there twice."""
    at = aot.layout(Mesh(2, 4), TOPOLOGY)
    shape = lambda dtype, *n: jax.ShapeDtypeStruct(n, dtype, sharding=_cached(at, n))
    kernel = attention.OnMesh("target")
    run = jax.jit(lambda q, k, v, n, i: kernel(q, (k, v), n, i, None, 50.0))
    cached = shape(jnp.bfloat16, 2, 3, heads, 1300, 128)
    given = shape(jnp.float32, 2, 8, 5, 128), cached, cached, shape(jnp.int32, 2), shape(jnp.int32)
    with at.within():
        done = run.lower(*given).compile()
    assert 'custom_call_target="tpu_custom_call"' in done.as_text()
    assert hlo.collectives(hlo.entry(done.as_text())) == []
    assert done.memory_analysis().temp_size_in_bytes < 2**20, "the cache is read where it lies"


def _cached(at, shape):
    return NamedSharding(at.mesh, axes.cached(shape, "target", at.sizes))


@pytest.mark.parametrize(("rule", "rows"), [("lossless", 1), ("v3", 12)])
def test_verification_is_accepted_for_a_tpu(chips, rule, rows):
    here, (w, v) = SingleDeviceSharding(chips[0]), (3, 2 * verification.CHUNK + 300)
    shape = lambda dtype, *n: jax.ShapeDtypeStruct((rows, *n), dtype, sharding=here)
    noise, row, logits = Noise(*[shape(jnp.float32, w)] * 3), shape(jnp.float32), shape(jnp.float32, w, v)
    given = noise, shape(jnp.int32, w), shape(jnp.int32), logits, logits, row
    run = jax.jit(lambda *x: verification.unfiltered(*x[:-1], RULES[rule], x[-1]))
    done = run.lower(*given, row).compile()
    assert 'custom_call_target="tpu_custom_call"' in done.as_text()
    assert done.memory_analysis().temp_size_in_bytes < logits.size * 4, "less than one array of logits"


def test_a_decode_loop_holds_the_kernel_for_verification(chips):
    lm = llama.Llama(replace(BIG, layers=1), cache_dtype=jnp.bfloat16)
    at = aot.layout(Mesh(1, 1), "v5e:1x1")
    params = {
        r: aot.params(lm, llama.shapes_of(lm.config), jnp.bfloat16, r, at) for r in ("drafter", "target")
    }
    method = Speculative(lm, lm, RULES["v3"], 2, judge=verification.judge)
    _, run = aot.compiled(method, params, SIZES, at)
    assert run.as_text().count('custom_call_target="tpu_custom_call"') == 1
