"""Whatever the rule, the method and the block: what is emitted follows the enumerated pi exactly."""

import itertools

import laws
import numpy as np
import pytest
from laws import Setting

from spec_cascades.decode.autoregressive import Autoregressive
from spec_cascades.decode.speculative import Speculative
from spec_cascades.rules import RULES

ROWS = 20_000
FILTERS = [
    {},
    {"temperature": 0.6},
    {"top_k": 3},
    {"top_p": 0.8, "temperature": 0.6},
    {"min_p": 0.2, "top_p": 0.9},
]


def alphas(rule):
    """The default alpha and one at either side of it."""
    return sorted({0.5 * rule.default, rule.default, 1.6 * rule.default})


def check(method, settings, rule):
    """Joint of tokens 1-3 and of 4-6 against the chain of pi over all contexts, for every setting of one batch."""
    tokens = laws.sample(method, settings, ROWS, 6)
    for setting, rows in zip(settings, tokens, strict=True):
        pi = laws.pi_of(rule, laws.pairs(setting), setting.alpha)
        for n in (3, 6):
            p_value = laws.follows(laws.triples(rows, n), laws.joint(pi, n))
            assert p_value > laws.FLOOR, (setting, n, p_value)


@pytest.mark.parametrize("name", sorted(RULES))
def test_a_block_of_two_drafts_follows_pi(name):
    rule = RULES[name]
    settings = [Setting(rule.default), Setting(alphas(rule)[0], temperature=0.6, top_k=4, top_p=0.9, min_p=0.05)]
    check(Speculative(laws.LM, laws.LM, rule, 2), settings, rule)
