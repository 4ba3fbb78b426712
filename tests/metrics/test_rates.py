import pytest

from spec_cascades.metrics.rates import Counts, rates, total


def test_a_tally_by_hand():
    # Four blocks of three drafts: two accepted then one rejected; one rejected; all three; one, then EOS.
    counts = Counts(
        tokens=3 + 1 + 4 + 1, target_calls=4, drafter_calls=16, judged=[4, 2, 2], accepted=[3, 2, 1]
    )
    figures = rates(counts)
    assert figures.drafted == [4, 3, 3]
    assert figures.rejection_rate == pytest.approx(2 / 8)
    assert figures.draft_acceptance_rate == pytest.approx(6 / 10)
    assert figures.acceptance_by_position == pytest.approx([3 / 4, 1.0, 1 / 2])
    assert figures.acceptance_histogram == [1, 1, 1, 1]
    assert figures.mean_acceptance_length == figures.tokens_per_target_call == pytest.approx(9 / 4)


def test_drafts_behind_the_end_count_nowhere():
    figures = rates(Counts(1, 1, 5, judged=[1, 0, 0, 0], accepted=[1, 0, 0, 0]))
    assert figures.drafted == [1, 0, 0, 0]
    assert figures.draft_acceptance_rate == 1.0
    assert figures.acceptance_by_position == [1.0, None, None, None]
    assert figures.acceptance_histogram == [0, 1, 0, 0, 0]


def test_nothing_drafted_is_absent_and_not_zero():
    target = rates(Counts(10, 10, 0, [], []))
    assert target[:-1] == (None,) * 8
    assert target.tokens_per_target_call == 1.0
    assert rates(Counts(10, 0, 10, [], [])).tokens_per_target_call is None


def test_totals_add_by_position_even_of_unlike_lengths():
    a, b = Counts(3, 1, 3, [1, 1], [1, 1]), Counts(1, 1, 4, [1, 0, 0], [0, 0, 0])
    assert total([a, b]) == Counts(4, 2, 7, [2, 1, 0], [1, 1, 0])
    assert total([]) == Counts(0, 0, 0, [], [])


@pytest.mark.parametrize(
    ("judged", "accepted"), [([1, 2], [1, 1]), ([1, 1], [0, 0]), ([1], [2]), ([1, 1], [1])]
)
def test_an_impossible_tally_is_refused(judged, accepted):
    with pytest.raises(ValueError, match="accept"):
        rates(Counts(1, 1, 1, judged, accepted))
