"""Where a text stops and what is counted, on a pair whose text is 1, 2, 3, ..., against a count by hand."""

import jax.numpy as jnp
import laws
import numpy as np
import pytest
from counting import COUNT, V, counting
from laws import Setting

from spec_cascades.decode import loop
from spec_cascades.decode.autoregressive import Autoregressive
from spec_cascades.decode.speculative import Speculative
from spec_cascades.models.markov import Markov
from spec_cascades.rules import RULES


def count(method, params, n, eos=-1, max_new=64):
    """Rows that start at 0, one for each of the ends given."""
    b = max(np.size(eos), np.size(max_new))
    request = laws.request([Setting(temperature=0.0)], b, eos=eos, max_new=max_new)
    return loop.generate(method, params, jnp.zeros((b, 2), jnp.int32), jnp.full(b, 2), request, n)


def due(end, gamma, wrong):
    """(steps, judged, accepted) of a row whose text ends after `end` tokens, counted token by token."""
    emitted, steps = 0, 0
    judged, accepted = np.zeros((2, gamma), int)
    while emitted < end:
        steps += 1
        for place in range(gamma + 1):
            emitted += 1
            stands = emitted not in wrong
            if place < gamma:
                judged[place] += 1
                accepted[place] += stands
            if emitted == end or not stands:
                break
    return steps, judged, accepted


def check(got, ends, gamma, wrong):
    n = got.tokens.shape[1]
    np.testing.assert_array_equal(got.length, ends)
    for row, end in enumerate(ends):
        np.testing.assert_array_equal(got.tokens[row], [*range(1, end + 1), *[0] * (n - end)])
        steps, judged, accepted = due(end, gamma, wrong)
        assert int(got.ledger.steps[row]) == steps, end
        np.testing.assert_array_equal(got.ledger.judged[row], judged, f"end {end}")
        np.testing.assert_array_equal(got.ledger.accepted[row], accepted, f"end {end}")


WRONG = pytest.mark.parametrize(
    "wrong", [(), (3, 4, 9, 13), tuple(range(V))], ids=["never", "sometimes", "always"]
)
SPECULATIVE = Speculative(COUNT, COUNT, RULES["lossless"], 4)


@WRONG
def test_the_text_stops_at_the_end_symbol_wherever_in_a_block_it_falls(wrong):
    ends = np.arange(1, 15)
    got = count(SPECULATIVE, counting(wrong), 20, eos=ends)
    check(got, ends, 4, wrong)
    assert got.ended.all()


@WRONG
def test_any_of_a_rows_end_symbols_ends_it(wrong):
    eos = np.asarray([[5, 9], [9, 5], [12, -1], [30, 7]])
    request = laws.request([Setting(temperature=0.0)], 4, eos=eos, max_new=64)
    prompts, lengths = jnp.zeros((4, 2), jnp.int32), jnp.full(4, 2)
    got = loop.generate(SPECULATIVE, counting(wrong), prompts, lengths, request, 20)
    check(got, [5, 5, 12, 7], 4, wrong)
    assert got.ended.all()


@WRONG
def test_the_text_stops_at_each_rows_limit_inside_a_block(wrong):
    ends = np.arange(1, 15)
    got = count(SPECULATIVE, counting(wrong), 20, max_new=ends)
    check(got, ends, 4, wrong)
    assert not got.ended.any()


@WRONG
def test_the_buffer_is_a_limit_too_and_the_first_limit_counts(wrong):
    eos, limits = np.asarray([9, 20, 7, 20, 20, 10]), np.asarray([20, 9, 7, 64, 1, 11])
    got = count(SPECULATIVE, counting(wrong), 20, eos=eos, max_new=limits)
    check(got, np.minimum(np.minimum(eos, limits), 20), 4, wrong)
    np.testing.assert_array_equal(got.ended, [True, False, True, True, False, True])
    cut = count(SPECULATIVE, counting(wrong), 8, max_new=limits)
    check(cut, np.minimum(limits, 8), 4, wrong)


def test_one_model_alone_stops_likewise():
    eos, limits = np.asarray([1, 5, 9, 30]), np.asarray([64, 64, 4, 12])
    got = count(Autoregressive(COUNT), counting(), 20, eos=eos, max_new=limits)
    check(got, [1, 5, 4, 12], 0, ())
    np.testing.assert_array_equal(got.ended, [True, True, False, False])
    np.testing.assert_array_equal(got.ledger.steps, got.length)


def test_an_end_symbol_drafted_but_rejected_does_not_end_the_text():
    """The drafter proposes 24 where 4 is due; 24 as the end symbol must not stop the row there."""
    got = count(SPECULATIVE, counting((4,)), 30, eos=24)
    check(got, [24], 4, (4,))


def test_ledgers_add_up():
    """Emitted = kept drafts + steps, less the target's own token where the end fell on a draft."""
    method = Speculative(laws.LM, laws.LM, RULES["v3"], 3)
    b, n = 500, 30
    request = laws.request([Setting(0.5)], b, eos=4, max_new=n)
    prompts = jnp.broadcast_to(jnp.asarray(laws.PROMPT), (b, 3))
    got = loop.generate(method, laws.tables(), prompts, jnp.full(b, 3), request, n)
    ledger = got.ledger
    length, steps = np.asarray(got.length), np.asarray(ledger.steps)
    judged, accepted = np.asarray(ledger.judged), np.asarray(ledger.accepted)
    np.testing.assert_array_equal(ledger.calls["target"], steps)
    np.testing.assert_array_equal(ledger.calls["drafter"], 4 * steps)
    short = accepted.sum(1) + steps - length
    assert ((short == 0) | (short == 1)).all()
    assert 0 < short.mean() < 1
    assert (accepted <= judged).all()
    assert (judged[:, 0] == steps).all()
    assert (judged[:, 1:] <= accepted[:, :-1]).all()
    tokens, inside = np.asarray(got.tokens), np.arange(n) < length[:, None]
    ends = (tokens == 4) & inside
    np.testing.assert_array_equal(ends.any(1), got.ended)
    np.testing.assert_array_equal(ends.sum(1), got.ended)
    np.testing.assert_array_equal(np.argmax(ends, 1)[got.ended] + 1, length[got.ended])
    assert (length[~np.asarray(got.ended)] == n).all()
    assert (tokens[~inside] == 0).all()


def test_one_compilation_serves_all_settings():
    method = Speculative(laws.LM, laws.LM, RULES["opt"], 1)
    prompts, before = jnp.asarray([[1, 2]]), loop.run._cache_size()
    texts = []
    for alpha in (-0.5, 0.0, 0.5):
        for temperature in (0.0, 0.7, 1.0):
            for top_p in (0.5, 0.9, 1.0):
                request = laws.request([Setting(alpha, temperature, top_p=top_p)], 1, eos=3, seeds=[7])
                texts.append(loop.generate(method, laws.tables(), prompts, jnp.asarray([2]), request, 8))
    assert loop.run._cache_size() == before + 1
    assert len({tuple(x.tokens[0].tolist()) for x in texts}) > 5


def test_noise_depends_on_seed_and_position_alone():
    table = np.asarray(loop.noise_table(jnp.asarray([3, 9, 3], jnp.uint32), 50))
    np.testing.assert_array_equal(table[:, 0], table[:, 2])
    np.testing.assert_array_equal(table[:, :, :20], loop.noise_table(jnp.asarray([3, 9, 3], jnp.uint32), 20))
    assert len(np.unique(table[:, :2])) == table[:, :2].size
    assert table.min() >= 0
    assert table.max() < 1


@pytest.mark.parametrize("gamma", [0, -1])
def test_a_block_needs_a_draft(gamma):
    with pytest.raises(ValueError, match=f"gamma {gamma}"):
        Speculative(COUNT, COUNT, RULES["v3"], gamma)


def test_models_of_different_widths_are_refused():
    with pytest.raises(ValueError, match="40 and 41"):
        Speculative(COUNT, Markov(41), RULES["v3"], 2)


@WRONG
@pytest.mark.parametrize("steps", [1, 3])
def test_a_loop_run_in_parts_ends_as_one_run_whole(wrong, steps):
    params, eos = counting(wrong), np.asarray([1, 6, 14])
    request = laws.request([Setting(temperature=0.0)], 3, eos=eos, max_new=64)
    prompts, lengths = jnp.zeros((3, 2), jnp.int32), jnp.full(3, 2)
    progress = loop.start(SPECULATIVE, params, prompts, lengths, request, 20)
    parts = 0
    while not progress.done.all():
        before = int(progress.ledger.steps.max())
        progress = loop.run(SPECULATIVE, params, progress, request, steps)
        taken = int(progress.ledger.steps.max()) - before
        assert taken == steps or (progress.done.all() and 0 < taken < steps)
        parts += 1
    check(loop.finish(progress, request), eos, 4, wrong)
    assert parts == -(-int(progress.ledger.steps.max()) // steps)


def test_a_sweep_compiles_once_a_rule_and_one_batch_carries_all_alphas():
    """Eleven alphas of eight rules: eight compilations, and as many again for a batch of eleven rows."""
    names = ["lossy", "chow", "diff", "opt", "v1", "v2", "v3", "bild"]
    alphas = [i / 10 for i in range(11)]
    prompts, before = jnp.asarray([[1, 2]]), loop.run._cache_size()
    for name in names:
        method = Speculative(laws.LM, laws.LM, RULES[name], 2)
        each = [
            loop.generate(
                method, laws.tables(), prompts, jnp.asarray([2]), laws.request([Setting(a)], 1, seeds=[7]), 9
            ).tokens[0]
            for a in alphas
        ]
        request = laws.request([Setting(a) for a in alphas], 1, seeds=[7] * len(alphas))
        many, lengths = jnp.repeat(prompts, len(alphas), axis=0), jnp.full(len(alphas), 2)
        together = loop.generate(method, laws.tables(), many, lengths, request, 9).tokens
        np.testing.assert_array_equal(together, jnp.stack(each))
    assert loop.run._cache_size() == before + 2 * len(names)
