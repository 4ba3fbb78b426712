"""Scanned layers are the unrolled ones (logits over rewinds, greedy text, refilled slots); who gets them."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import laws
import numpy as np
import pytest
from laws import Setting
from tiny import FAMILIES

from spec_cascades import cache as kv
from spec_cascades.config import ConfigError, Models, load
from spec_cascades.decode import loop, scheduler
from spec_cascades.decode.autoregressive import Autoregressive
from spec_cascades.decode.speculative import Speculative
from spec_cascades.engine import engine_of
from spec_cascades.models import llama, stacking
from spec_cascades.models.subset import Subset
from spec_cascades.rules import RULES

PREFILL = jax.jit(lambda lm, *given: lm.prefill(*given, 20), static_argnums=0)
EXTEND = jax.jit(lambda lm, *given: lm.extend(*given), static_argnums=0)
GAMMA, NEW = 2, 8


def scanned(lm):
    return replace(lm, scan=True)


@pytest.fixture(scope="module", params=["t5", "llama"])
def model(request):
    return FAMILIES[request.param]


def read(lm, params, model):
    """Logits over two blocks, a rewind by a different amount in each row, and a third block."""
    served = lm.serving(params)
    last, cache = PREFILL(lm, served, model.prompts, model.lengths)
    text = jnp.concatenate([last[:, None], model.prompts[:, :5]], axis=1)
    a, cache = EXTEND(lm, served, text[:, :1], cache)
    b, cache = EXTEND(lm, served, text[:, 1:5], cache)
    cache = kv.rewind(cache, cache.length - jnp.array([3, 0, 1, 4]))
    c, cache = EXTEND(lm, served, text[:, 2:6], cache)
    return np.concatenate([a, b, c], axis=1), cache


def test_logits_equal_those_of_unrolled_layers(model):
    params = model.params["target"]
    expected, plain = read(model.target, params, model)
    got, stacked = read(scanned(model.target), params, model)
    finite = np.isfinite(expected)
    assert np.std(expected[finite]) > 0.05
    np.testing.assert_array_equal(finite, np.isfinite(got))
    np.testing.assert_allclose(got[finite], expected[finite], atol=1e-5)
    assert stacked.length.tolist() == plain.length.tolist()
    assert len(jax.tree.leaves(stacked.layers)) < len(jax.tree.leaves(plain.layers))


def request(n):
    return laws.request([Setting(0.5, temperature=0.0)], n, max_new=NEW)


@pytest.mark.parametrize("family", ["t5", "gemma"])
def test_greedy_text_is_the_same(family):
    model, out = FAMILIES[family], []
    for lm in (model.target, scanned(model.target)):
        params = {"target": lm.serving(model.params["target"])}
        given = model.prompts, model.lengths, request(4), NEW
        out.append(loop.generate(Autoregressive(lm), params, *given).tokens.tolist())
    assert len(set(map(tuple, out[0]))) > 1
    assert out[0] == out[1]


def pair(model, change):
    """Greedy speculation of a tiny pair and its parameters as served, both models changed."""
    lms = {"drafter": change(model.drafter), "target": change(model.target)}
    method = Speculative(lms["drafter"], lms["target"], RULES["v3"], GAMMA)
    return method, {name: lm.serving(model.params[name]) for name, lm in lms.items()}


def test_speculation_in_refilled_slots_of_stacked_caches_gives_each_row_its_own_text():
    model = FAMILIES["llama"]
    rows = [row[:n].tolist() for row, n in zip(model.prompts, model.lengths, strict=True)]
    plain = loop.generate(*pair(model, lambda lm: lm), model.prompts, model.lengths, request(4), NEW)
    served = dict(scheduler.serve(*pair(model, scanned), rows, request(4), NEW, 2, bucket=7))
    assert sorted(served) == [0, 1, 2, 3]
    for i, row in served.items():
        assert row.tokens[0].tolist() == plain.tokens[i].tolist()


def test_what_has_no_cache_reads_stacked_layers_too():
    model = FAMILIES["llama"]
    params, one = model.params["target"], jnp.ones_like(model.prompts)
    stacked = scanned(model.target).serving(params)
    both = [llama.forward(p, model.target.config, model.prompts, one) for p in (params, stacked)]
    np.testing.assert_allclose(both[0][..., :40], both[1][..., :40], atol=1e-5)


# ------------------------------------------------------------------------------------------------------------
# Which of the two


@pytest.mark.parametrize(
    ("backend", "layers", "depth", "expected"),
    [
        ("cpu", None, 46, False),
        ("tpu", None, 46, True),
        ("gpu", None, stacking.DEEP, True),
        ("tpu", None, stacking.DEEP - 1, False),
        ("cpu", "scanned", 2, True),
        ("tpu", "unrolled", 46, False),
    ],
)
def test_the_backend_and_the_depth_decide_unless_told(backend, layers, depth, expected, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    lm = FAMILIES["llama"].target
    lm = replace(lm, config=replace(lm.config, layers=depth))
    assert stacking.arranged(lm, layers).scan is expected
    assert stacking.arranged(Subset(lm, 48), layers).lm.scan is expected


def test_a_model_to_be_cut_is_never_scanned(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    lm = FAMILIES["llama"].target
    lm = replace(lm, config=replace(lm.config, layers=46))
    assert stacking.arranged(lm, None, cut=True).scan is False
    with pytest.raises(ValueError, match="exit:K"):
        stacking.arranged(lm, "scanned", cut=True)


def test_a_configuration_reaches_the_models():
    told = load(Models, None, ["layers=scanned", "drafter=null", "dtype=float32"])
    model = engine_of(told).model("target")
    assert model.lm.scan
    assert stacking.STACKED in model.params["decoder"]
    with pytest.raises(ConfigError, match="layers: 'stacked' is not one of"):
        load(Models, None, ["layers=stacked"])


def test_a_model_without_layers_is_left_alone_and_names_are_checked():
    assert stacking.arranged(FAMILIES["markov"].target, "scanned") is FAMILIES["markov"].target
    with pytest.raises(ValueError, match="layers 'stacked' is not one of"):
        stacking.arranged(FAMILIES["llama"].target, "stacked")


@pytest.mark.parametrize("family", ["t5", "llama"])
def test_parameters_must_be_stacked_as_the_model_says(family):
    model = FAMILIES[family]
    params = model.params["target"]
    with pytest.raises(ValueError, match="parameters are not stacked, but scan is True"):
        PREFILL(scanned(model.target), params, model.prompts, model.lengths)
    with pytest.raises(ValueError, match="parameters are stacked, but scan is False"):
        PREFILL(model.target, scanned(model.target).serving(params), model.prompts, model.lengths)
