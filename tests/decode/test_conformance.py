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


def check(method, settings, laws_of, lengths=(3, 6)):
    """The joint law of each three tokens that end at one of `lengths`, for every setting of one batch."""
    tokens = laws.sample(method, settings, ROWS, max(lengths))
    for setting, rows in zip(settings, tokens, strict=True):
        pi = laws_of(setting)
        for n in lengths:
            p_value = laws.follows(laws.triples(rows, n), laws.joint(pi, n))
            assert p_value > laws.FLOOR, (setting, n, p_value)


def law_of(rule):
    """From a setting to the rule's pi after each context."""
    return lambda setting: laws.pi_of(rule, laws.pairs(setting), setting.alpha)


@pytest.mark.parametrize("name", sorted(RULES))
def test_two_drafts_follow_pi(name):
    rule = RULES[name]
    filtered = Setting(alphas(rule)[0], temperature=0.6, top_k=4, top_p=0.9, min_p=0.05)
    check(Speculative(laws.LM, laws.LM, rule, 2), [Setting(rule.default), filtered], law_of(rule))


@pytest.mark.slow
@pytest.mark.parametrize("gamma", [1, 2, 4])
@pytest.mark.parametrize("name", sorted(RULES))
def test_every_block_size_alpha_and_filter_follows_pi(name, gamma):
    rule = RULES[name]
    settings = [Setting(alpha, **f) for alpha, f in itertools.product(alphas(rule), FILTERS[:2])]
    settings += [Setting(rule.default, **f) for f in FILTERS[2:]]
    # Six tokens pass the end of a full first block of any gamma here, bonus token included.
    check(Speculative(laws.LM, laws.LM, rule, gamma), settings, law_of(rule))


@pytest.mark.parametrize("name", ["target", "drafter"])
def test_one_model_alone_follows_its_own_law(name):
    side = {"target": "p", "drafter": "q"}[name]
    method = Autoregressive(laws.LM, name)
    check(method, [Setting(**f) for f in FILTERS], lambda setting: getattr(laws.pairs(setting), side))


def test_the_toy_pair_tells_the_laws_apart():
    """Power: the suite's own test rejects each rule's sample against p and against q, where pi is neither."""
    for name, rule in RULES.items():
        setting = Setting(rule.default)
        pair = laws.pairs(setting)
        pi = laws.joint(laws.pi_of(rule, pair, setting.alpha), 3)
        for law in (pair.p, pair.q):
            gap = 0.5 * np.abs(pi - laws.joint(law, 3)).sum()
            exact = (name, "p" if law is pair.p else "q") in [("lossless", "p"), ("drafter_only", "q")]
            assert gap < 1e-5 if exact else gap > 0.04, (name, gap)


def test_the_chi_square_notices_a_law_that_is_a_little_off():
    rng = np.random.default_rng(0)
    law = rng.dirichlet(np.ones(30))
    off = law * (1 + 0.15 * rng.choice([-1, 1], 30))
    counts = rng.multinomial(ROWS, off / off.sum())
    assert laws.follows(counts, law) < laws.FLOOR
    assert laws.follows(rng.multinomial(ROWS, law), law) > laws.FLOOR
    with pytest.raises(AssertionError, match="probability zero"):
        laws.follows([5, 5, 1], np.asarray([0.5, 0.5, 0.0]))
