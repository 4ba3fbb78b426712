"""The roofline and the memory of a mesh, against figures worked out by hand."""

import pytest
from planned import CHIP, DRAFTER, MODELS, TARGET, plan

from spec_cascades.checks import ConfigError
from spec_cascades.planning import chips
from spec_cascades.planning.pair import NOTHING
from spec_cascades.planning.roofline import VERIFY_READS, Roofline, fit
from spec_cascades.planning.settings import Assumed, Plan


def costs(models=MODELS, **given):
    return Roofline(plan(**given), CHIP, models)


def test_a_narrow_call_takes_the_time_of_its_bytes_and_a_wide_one_that_of_its_operations():
    one = costs().call("target", 1)
    assert one == pytest.approx((2e9 + 1e6) / 1e11)
    assert costs().call("target", 8) == pytest.approx(one)
    operations = 100 * (2e9 + 4 * 8 * 16 * 10 * 600)
    assert costs().call("target", 100) == pytest.approx(operations / 1e12)


def test_overhead_is_added_to_every_call():
    assert costs(overhead_us=30).call("drafter", 1) == pytest.approx(costs().call("drafter", 1) + 30e-6)


def test_four_chips_divide_weights_and_pay_for_all_reduces():
    four = costs(mesh=(1, 4), hop_us=2.0)
    moved = 2 * 3 / 4 * 5 * 100 * 2
    # Two key heads: each half of the cache is held twice.
    expected = (2e9 / 4 + 1e6 / 2) / 1e11 + 21 * (moved / 1e10 + 2 * 3 * 2e-6)
    assert four.call("target", 5) == pytest.approx(expected)
    replicated = costs(mesh=(1, 4, 1), hop_us=2.0)
    assert replicated.call("drafter", 1) == pytest.approx(costs().call("drafter", 1))
    assert replicated.call("target", 5) == four.call("target", 5)
    halves = costs(mesh=(1, 4, 2), hop_us=2.0).call("drafter", 1)
    assert halves == costs(mesh=(1, 2), hop_us=2.0).call("drafter", 1)


def test_copies_share_the_rows():
    assert costs(mesh=(2, 1), batch=8).call("target", 3) == costs(batch=4).call("target", 3)


def test_a_batch_is_filled_up_for_the_copies():
    assert costs(mesh=(2, 1), batch=7).call("target", 3) == costs(batch=4).call("target", 3)


def test_a_layer_with_a_window_attends_to_no_more():
    wide = costs({"target": TARGET._replace(near=8, window=50), "drafter": DRAFTER}).call("target", 1000)
    assert wide == pytest.approx(1000 * (2e9 + 4 * 8 * 16 * (2 * 600 + 8 * 50)) / 1e12)


def test_a_prompt_in_pieces_takes_the_scores_of_one_piece():
    whole, pieces = (
        fit(costs({role: m._replace(chunk=chunk) for role, m in MODELS.items()}, prompt=4000), 4).temporaries
        for chunk in (None, 1000)
    )
    assert pieces == pytest.approx(whole / 4)


def test_a_block_is_its_calls_and_the_verdict():
    c = costs()
    judged = 2 * VERIFY_READS * 4 * 4 * 1000 / 1e11
    assert c.block(False, 3).step == pytest.approx(4 * c.call("drafter", 1) + c.call("target", 4) + judged)
    assert c.block(True, 3).step == pytest.approx(
        2 * c.call("drafter", 1) + c.call("drafter", 2) + c.call("target", 4) + judged
    )
    assert c.block(True, 3).start == pytest.approx(c.prefill("target") + c.prefill("drafter"))


def test_a_drafter_that_copies_costs_no_call():
    c = costs({"target": TARGET, "drafter": NOTHING})
    assert c.call("drafter", 1) == 0
    assert c.block(True, 3).step == pytest.approx(c.call("target", 4), rel=1e-2)
    assert fit(c, 3).weights == 2e9


@pytest.mark.parametrize(("data", "model"), [(1, 1), (2, 1), (1, 4)])
def test_the_batch_that_is_allowed_fits_and_one_row_a_copy_more_does_not(data, model):
    most = fit(costs(mesh=(data, model), batch=data), 4).batch
    at = lambda rows: fit(costs(mesh=(data, model), batch=rows), 4)
    assert at(most).fits
    assert not at(most + data).fits
    assert at(most).total <= 10e9 < at(most + data).total


def test_the_context_that_is_allowed_fits_and_a_longer_one_does_not():
    context = fit(costs(batch=2), 4).context
    at = lambda prompt: fit(costs(batch=2, prompt=prompt), 4)
    assert at(context - 100).fits
    assert not at(context - 99).fits


def test_weights_that_do_not_fit_leave_room_for_nothing():
    found = fit(costs({"target": TARGET._replace(held=11e9), "drafter": DRAFTER}), 4)
    assert (found.fits, found.batch, found.context) == (False, 0, 0)


def test_more_chips_hold_more():
    assert fit(costs(mesh=(1, 2)), 4).batch > fit(costs(), 4).batch


def test_every_chip_states_its_figures_and_where_they_are_from():
    assert set(chips.CHIPS) == {"v5e", "v5p", "v6e", "h100", "h200"}
    for chip in chips.CHIPS.values():
        assert chip.flops < 2 * chip.int8_ops
        assert 10e9 < chip.memory < 200e9
        assert 5e11 < chip.bandwidth < 1e13
        assert chip.ring < chip.bandwidth
        assert all(source.startswith("https://") for source in chip.sources)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: chips.named("v5"), "did you mean 'v5"),
        (lambda: Plan(batch=0), "batch"),
        (lambda: Assumed(lossless=1.2), "lossless"),
    ],
)
def test_bad_input_is_named(make, words):
    with pytest.raises(ConfigError, match=words):
        make()
