"""How many calls an answer takes, by formula and by enumeration."""

import itertools
import math

import pytest
from planned import Flat

from spec_cascades.checks import ConfigError
from spec_cascades.planning.speed import (
    Asked,
    best_gamma,
    blocks,
    break_even,
    seconds,
    tokens_per_call,
)


@pytest.mark.parametrize("beta", [0.0, 0.3, 0.9, 1.0])
def test_tokens_of_a_block_are_the_sum_of_the_chances_that_each_is_there(beta):
    assert tokens_per_call(beta, 4) == pytest.approx(sum(beta**i for i in range(5)))


def enumerated(n, beta, gamma, rows):
    """Expected blocks of the slowest of `rows` answers, every outcome of n blocks written out."""
    chances = {}
    for standing in itertools.product(range(gamma + 1), repeat=n):
        chance = math.prod(beta**s * (1 - beta if s < gamma else 1) for s in standing)
        steps = next(i for i in range(1, n + 1) if sum(standing[:i]) + i >= n)
        chances[steps] = chances.get(steps, 0.0) + chance
    return sum(
        max(each) * math.prod(chances[s] for s in each) for each in itertools.product(chances, repeat=rows)
    )


@pytest.mark.parametrize(("beta", "gamma", "rows"), [(0.7, 2, 1), (0.4, 3, 2), (0.95, 1, 3)])
def test_blocks_of_an_answer_are_those_of_every_outcome(beta, gamma, rows):
    assert blocks(5, beta, gamma, rows) == pytest.approx(enumerated(5, beta, gamma, rows))


def test_blocks_at_the_ends_and_between():
    assert blocks(7, 0.0, 4) == 7
    assert blocks(11, 1.0, 4) == pytest.approx(3)
    assert blocks(7.5, 0.6, 3) == pytest.approx((blocks(7, 0.6, 3) + blocks(8, 0.6, 3)) / 2)
    assert blocks(0, 0.6, 3) == 0


def test_a_long_answer_takes_its_tokens_over_those_of_a_block():
    assert blocks(2000, 0.7, 3) * tokens_per_call(0.7, 3) / 2000 == pytest.approx(1, abs=2e-3)


@pytest.mark.parametrize("lossless", [True, False])
def test_at_break_even_a_block_costs_what_its_tokens_cost_the_target(lossless):
    costs = Flat(0.2)
    beta = break_even(costs, lossless, 3)
    assert tokens_per_call(beta, 3) == pytest.approx(costs.block(lossless, 3).step)
    took = [seconds(costs, Asked("speculative", lossless, 3, b), 2000) for b in (beta - 0.05, beta + 0.05)]
    assert took[0] > 2000 > took[1]


def test_no_acceptance_pays_for_a_drafter_as_slow_as_the_target():
    assert break_even(Flat(1.0), False, 3) is None
    assert break_even(Flat(1.0), True, 3) == pytest.approx(1.0)


@pytest.mark.parametrize(("beta", "ratio"), [(0.5, 0.1), (0.9, 0.02), (0.2, 0.4)])
def test_the_best_gamma_is_the_best_of_all(beta, ratio):
    took = {g: seconds(Flat(ratio), Asked("speculative", True, g, beta), 60) for g in range(1, 13)}
    assert best_gamma(Flat(ratio), True, beta, 60, 12) == min(took, key=took.get)
    assert best_gamma(Flat(ratio, most=2), True, 0.99, 60, 12) == 2


def test_what_each_method_costs():
    costs = Flat(0.1)
    assert seconds(costs, Asked("target"), 10) == 10
    assert seconds(costs, Asked("drafter"), 10) == pytest.approx(1)
    assert seconds(costs, Asked("token", share=0.3), 10) == pytest.approx(4)
    assert seconds(costs, Asked("sequence", share=0.3), 10) == pytest.approx(4)
    two = costs._replace(rows=2)
    assert seconds(two, Asked("token", share=0.3), 10) == pytest.approx(1 + 10 * (1 - 0.7**2))


def test_a_method_without_a_prediction_is_refused():
    with pytest.raises(ConfigError, match="oracle"):
        seconds(Flat(0.1), Asked("oracle"), 10)
