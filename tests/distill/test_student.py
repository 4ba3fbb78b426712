"""The student of either family as parameters: what is trained, what is the target's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from spec_cascades.distill import student
from spec_cascades.distill.settings import Drafter

IDS = np.asarray([0, 3, 4, 9, 30], np.int32)


@pytest.mark.parametrize("ids", [None, IDS], ids=["all ids", "some ids"])
@pytest.mark.parametrize("family", ["gemma", "llama"])
def test_an_untrained_student_is_the_targets_first_layer(family, ids):
    model = tiny.FAMILIES[family]
    config, params = model.target.config, model.params["target"]
    drafter = Drafter(layers=1, vocabulary=None if ids is None else len(ids))
    trained = student.trunk(params, config, drafter, jax.random.key(0))
    shapes = {"/".join(p.key for p in path): x.shape for path, x in jax.tree.leaves_with_path(trained)}
    assert shapes == student.shapes(config, drafter)
    lm, own = student.assemble(params, config, student.config_of(config, drafter, ids), trained, ids)
    assert lm.vocab == model.target.vocab
    tokens = jnp.asarray([[3, 9, 4]])
    last, cache = lm.prefill(own, tokens, jnp.asarray([3]), 8)
    got, _ = lm.extend(lm.serving(own), last[:, None], cache)
    _, cache = model.drafter.prefill(model.params["drafter"], tokens, jnp.asarray([3]), 8)
    expected, _ = model.drafter.extend(model.params["drafter"], last[:, None], cache)
    kept = np.arange(config.vocab) if ids is None else ids
    np.testing.assert_allclose(got[..., kept], expected[..., kept], atol=1e-5)
    others = np.setdiff1d(np.arange(config.embeddings), kept)
    assert np.isneginf(np.asarray(got)[..., others]).all()
