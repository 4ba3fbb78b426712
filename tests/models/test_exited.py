"""Early exit: k layers of a model are that model with k layers, and draft for the whole of it."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import laws
import numpy as np
import pytest
import tiny
from laws import Setting

from spec_cascades.decode.autoregressive import Autoregressive
from spec_cascades.decode.loop import LM, generate
from spec_cascades.decode.speculative import Speculative
from spec_cascades.models import gemma, llama
from spec_cascades.models.exited import exited
from spec_cascades.rules import RULES

FAMILIES = {"llama": llama, "gemma": gemma}
FAMILY = pytest.mark.parametrize("family", sorted(FAMILIES))


def exits(family, k):
    model = tiny.FAMILIES[family]
    return *exited(model.target, model.params["target"], k), model


@partial(jax.jit, static_argnames=("lm", "n"))
def read(lm, params, tokens, n):
    """Logits after the n-th token and each one behind it, the first n - 1 read by prefill."""
    lengths = jnp.full(len(tokens), n)
    _, cache = lm.prefill(params, tokens[:, :n], lengths, tokens.shape[1] + 3)
    return lm.extend(params, tokens[:, n - 1 :], cache)


@FAMILY
@pytest.mark.parametrize("k", [1, 2])
def test_the_logits_are_those_of_a_forward_pass_of_k_layers(family, k):
    """The whole model's parameters, of which that pass reads the first k layers; gemma's second is global."""
    lm, params, model = exits(family, k)
    tokens = jax.random.randint(jax.random.key(1), (2, 9), 2, 40)
    got, cache = read(lm, params, tokens, 4)
    forward = jax.jit(FAMILIES[family].forward, static_argnums=1)
    config = replace(model.target.config, layers=k)
    due = forward(model.params["target"], config, tokens, jnp.ones_like(tokens))
    np.testing.assert_allclose(got[..., :40], due[:, 3:, :40], atol=2e-5)
    assert len(jax.tree.leaves(cache.layers)) == 2 * k
    whole = forward(model.params["target"], model.target.config, tokens, jnp.ones_like(tokens))
    assert np.abs(whole[..., :40] - due[..., :40]).max() > 0.1


@FAMILY
def test_every_array_is_the_targets_own(family):
    lm, params, model = exits(family, 2)
    theirs = {id(leaf) for leaf in jax.tree.leaves(model.params["target"])}
    assert {id(leaf) for leaf in jax.tree.leaves(params)} < theirs
    shape = lambda leaf: tuple(leaf.shape)
    due = FAMILIES[family].shapes_of(lm.config)
    assert jax.tree.map(shape, params) == due
    assert isinstance(lm, LM)
    assert model.target.config.layers == 3
    assert "final_norm" in params


@FAMILY
def test_a_greedy_text_drafted_by_it_is_the_targets(family):
    lm, params, model = exits(family, 2)
    pair = {"target": model.params["target"], "drafter": params}
    request = laws.request([Setting(temperature=0.0)], len(model.lengths))
    run = lambda method: generate(method, pair, model.prompts, model.lengths, request, 20)
    got = run(Speculative(lm, model.target, RULES["lossless"], 3))
    np.testing.assert_array_equal(got.tokens, run(Autoregressive(model.target)).tokens)
    assert 0 < int(got.ledger.accepted.sum()) < int(got.ledger.judged.sum())


@FAMILY
def test_served_parameters_exit_too(family):
    model = tiny.FAMILIES[family]
    lm, params = exited(model.target, model.target.serving(model.params["target"]), 1)
    plain_lm, plain = exited(model.target, model.params["target"], 1)
    step = lambda lm, params: read(lm, params, model.prompts, 3)[0]
    np.testing.assert_allclose(step(lm, params), step(plain_lm, plain), atol=1e-5)


@FAMILY
@pytest.mark.parametrize("k", [-1, 0, 3, 4])
def test_an_exit_lies_within_the_model(family, k):
    with pytest.raises(ValueError, match=rf"exit after {k} layers: must lie in 1\.\.2"):
        exits(family, k)


def test_a_family_without_an_exit_is_refused():
    with pytest.raises(ValueError, match=r"T5 cannot exit early.*Gemma, Llama"):
        exits("t5", 1)
    with pytest.raises(ValueError, match="Markov cannot exit early"):
        exits("markov", 1)


def test_stacked_layers_are_refused_and_a_scanning_model_exits_without_a_scan():
    model = tiny.FAMILIES["gemma"]
    scanning = replace(model.target, scan=True)
    assert exited(scanning, model.params["target"], 2)[0].scan is False
    with pytest.raises(ValueError, match="stacked"):
        exited(scanning, scanning.serving(model.params["target"]), 1)
