"""A row's answer depends on its own request alone, and its caches end as if the text had been read afresh."""

from functools import cache

import caches
import jax
import jax.numpy as jnp
import laws
import numpy as np
import pytest
import tiny
from laws import Setting

from spec_cascades.decode import loop
from spec_cascades.decode.speculative import Speculative
from spec_cascades.rules import RULES

N = 20
FAMILIES = pytest.mark.parametrize("family", sorted(tiny.FAMILIES))
SETTINGS = [
    Setting(0.5),
    Setting(0.0, temperature=0.0),
    Setting(0.3, temperature=0.7, top_p=0.9),
    Setting(0.6, temperature=1.3, top_k=3, min_p=0.1),
]


@cache
def method(family):
    model = tiny.FAMILIES[family]
    return Speculative(model.drafter, model.target, RULES["v3"], 3)


def ask(max_new=(20, 20, 11, 20), eos=(-1, -1, -1, 4), seeds=(3, 1, 4, 1)):
    """A request of four rows that have nothing in common."""
    return laws.request(SETTINGS, 1, eos=eos, max_new=max_new, seeds=seeds)


def answer(family, rows, request, width=None):
    """The answers of these rows of the family's prompts, in this order."""
    model, rows = tiny.FAMILIES[family], jnp.asarray(rows)
    own = jax.tree.map(lambda x: x[rows], request)
    prompts = model.prompts[rows, :width]
    return loop.generate(method(family), model.params, prompts, model.lengths[rows], own, N)


def same(got, expected, rows):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(a, b[np.asarray(rows)])


@FAMILIES
def test_a_row_in_a_batch_is_the_row_alone(family):
    together = answer(family, range(4), ask())
    for row in range(4):
        same(answer(family, [row], ask()), together, [row])
    assert len({tuple(x) for x in np.asarray(together.tokens).tolist()}) == 4
    assert together.tokens.max() < (laws.VOCAB if family == "markov" else 40), "an id that no tokenizer knows"


@FAMILIES
def test_a_row_without_its_padding_is_the_same(family):
    together = answer(family, range(4), ask())
    same(answer(family, [1], ask(), width=3), together, [1])


@FAMILIES
def test_the_order_of_rows_does_not_matter(family):
    together = answer(family, range(4), ask())
    for order in ([2, 0, 3, 1], [3, 2, 1, 0]):
        same(answer(family, order, ask()), together, order)


@FAMILIES
def test_rows_that_finish_early_do_not_shift_their_neighbours(family):
    together = answer(family, range(4), ask())
    early = answer(family, range(4), ask(max_new=(1, 20, 2, 20)))
    for row in (1, 3):
        same(jax.tree.map(lambda x, row=row: x[row : row + 1], early), together, [row])
    for row, n in ((0, 1), (2, 2)):
        assert int(early.length[row]) == n
        np.testing.assert_array_equal(early.tokens[row, :n], together.tokens[row, :n])


@FAMILIES
def test_the_same_seed_is_the_same_text_and_another_seed_another(family):
    model = tiny.FAMILIES[family]
    b = 4
    prompts = jnp.broadcast_to(model.prompts[0], (b, 7))
    request = laws.request([Setting(0.5, temperature=1.3)], b, seeds=[8, 9, 8, 10])
    got = loop.generate(method(family), model.params, prompts, jnp.full(b, 7), request, N)
    texts = [tuple(x) for x in got.tokens.tolist()]
    assert texts[0] == texts[2]
    assert len(set(texts)) == 3


@FAMILIES
def test_caches_end_as_if_the_text_had_been_read_afresh(family):
    """Both models', up to each row's length: nothing lost, shifted, clamped or left from a rejected draft."""
    model, b = tiny.FAMILIES[family], 4
    request = ask(max_new=(20, 20, 11, 20), eos=-1)
    state = loop.start(method(family), model.params, model.prompts, model.lengths, request, N)
    begun = {name: np.array(c.length) for name, c in state.caches.items()}
    end = loop.run(method(family), model.params, state, request)
    capacity = 7 + N + 4
    assert max(x.shape[2] for x in jax.tree.leaves(end.caches["target"].layers)) == capacity
    text = end.view.text
    for name, lm in (("target", model.target), ("drafter", model.drafter)):
        _, blank = lm.prefill(model.params[name], model.prompts, model.lengths, capacity)
        _, fresh = lm.extend(model.params[name], text, blank)
        length = np.asarray(end.caches[name].length)
        np.testing.assert_array_equal(length, begun[name] + np.asarray(end.view.emitted))
        caches.same(end.caches[name], fresh)
    np.testing.assert_array_equal(end.view.last, text[np.arange(b), np.asarray(end.view.emitted)])


@pytest.mark.parametrize("family", tiny.SLOW_T5)
@pytest.mark.parametrize("gamma", [pytest.param(1, marks=pytest.mark.slow), 4])
def test_a_row_that_fills_its_buffer_stays_within_capacity(family, gamma):
    """Greedy rows as long as the buffer: the last blocks reach the cache's end and the text is unharmed."""
    model = tiny.FAMILIES[family]
    greedy = laws.request([Setting(temperature=0.0)], 4)
    long = Speculative(model.drafter, model.target, RULES["lossless"], gamma)
    got = loop.generate(long, model.params, model.prompts, model.lengths, greedy, 9)
    assert (got.length == 9).all()
    longer = loop.generate(long, model.params, model.prompts, model.lengths, greedy, 18)
    np.testing.assert_array_equal(got.tokens, longer.tokens[:, :9])
