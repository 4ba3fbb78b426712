"""Sequence cascades on the host: deferred rows move to small batches of few shapes, and times add up."""

from dataclasses import dataclass

import jax.numpy as jnp
import laws
import numpy as np
import pytest
from laws import Setting
from test_sequence import V, ask, cascade, run, same

from spec_cascades.decode import loop, sequence
from spec_cascades.decode.sequence import Sequence
from spec_cascades.models.markov import Markov

SIZES = []


@dataclass(frozen=True)
class Watched(Markov):
    """A model that tells how many rows it was compiled for."""

    def prefill(self, params, tokens, lengths, capacity, width=None):
        SIZES.append(tokens.shape[0])
        return super().prefill(params, tokens, lengths, capacity, width)


def deferring(method, b, rows):
    """A batch of b rows of which these are deferred."""
    alpha = np.where(np.isin(np.arange(b), rows), -np.inf, np.inf).astype(np.float32)
    request = laws.request([Setting()], b, eos=-1, max_new=6)._replace(alpha=jnp.asarray(alpha))
    got, info = run(method, request, 6)
    np.testing.assert_array_equal(np.flatnonzero(info.deferred), rows)
    return got


def test_deferred_rows_are_compacted_into_few_shapes():
    SIZES.clear()
    method, b = Sequence(laws.LM, Watched(V)), 11
    every = [deferring(method, b, range(b - n, b)) for n in range(b + 1)]
    assert sorted(SIZES) == [1, 2, 4, 8, 11]
    for n, got in enumerate(every):
        same(got.tokens[b - n :], every[-1].tokens[b - n :])
        same(got.tokens[: b - n], every[0].tokens[: b - n])
        np.testing.assert_array_equal(got.ledger.calls["target"], [0] * (b - n) + [6] * n)
    scattered = deferring(method, b, [0, 4, 9])
    same(scattered.tokens[jnp.asarray([0, 4, 9])], every[-1].tokens[jnp.asarray([0, 4, 9])])
    assert len(SIZES) == 5


@pytest.mark.parametrize("verify", [False, True], ids=["plain", "hybrid"])
def test_after_warming_nothing_compiles(verify):
    method, b = cascade("sum", verify=verify), 6
    request = laws.request([Setting(1.0)], b, eos=-1, max_new=7)
    prompts = jnp.broadcast_to(jnp.asarray(laws.PROMPT), (b, 3))
    sequence.warm(method, laws.tables(), prompts, jnp.full(b, 3), request, 7)
    before = loop.start._cache_size(), loop.run._cache_size(), loop.finish._cache_size()
    for n in range(b + 1):
        alpha = jnp.where(jnp.arange(b) < n, -jnp.inf, jnp.inf).astype(jnp.float32)
        asked = request._replace(alpha=alpha, seed=request.seed + 7)
        got, info = run(method, asked, 7)
        assert info.deferred.sum() == n
        assert (got.length == 7).all()
    assert (loop.start._cache_size(), loop.run._cache_size(), loop.finish._cache_size()) == before


@pytest.mark.parametrize("verify", [False, True], ids=["plain", "hybrid"])
def test_times_add_up(verify):
    _, info = run(cascade(verify=verify), ask(1.1, rows=5), 12)
    assert 0 < info.drafter_seconds < info.waiting_seconds
    assert info.waiting_seconds < info.drafter_seconds + info.target_seconds
    assert info.drafter_seconds / (info.drafter_seconds + info.target_seconds) < info.waiting_share < 1
