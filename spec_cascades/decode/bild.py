"""BiLD, the big little decoder (Kim et al., NeurIPS 2023): the drafter writes, the target takes back.

Greedy. The drafter goes on while max q >= fallback; where it is not, the target reads what was drafted, takes
the text back to the first draft x with -log p(x) > alpha, and supplies the token there, or the next one if no
draft goes. That is, with r = 1 for the target's argmax and r = 0 for the drafter's,

    r = (max q < fallback) or (-log p(argmax q) > alpha).

So it is one more deferral rule, and a policy that stops drafting where r is known to be 1. BiLD* of the paper
(rule `bild`) lacks the first clause: with `Confident` lengths it would keep the drafter's own token at a
fallback if the target did not object to it.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import jax.numpy as jnp

from spec_cascades import rules
from spec_cascades.decode.drafting import Proposer
from spec_cascades.decode.lengths import Confident
from spec_cascades.decode.loop import LM
from spec_cascades.decode.speculative import Speculative
from spec_cascades.probs import Pair
from spec_cascades.typing import Array, Bool

FALLBACK = 0.6
"""The published confidence below which the drafter hands over; alpha, the rollback threshold, is 2 to 5."""


@dataclass(frozen=True)
class Unsure:
    """BiLD's mask: the drafter is not sure, or the target objects. A dataclass, so that equal methods are
    equal and compile once."""

    fallback: float

    def __call__(self, pair: Pair, alpha: Array) -> Bool[Array, "... 1"]:
        unsure = jnp.max(pair.q_raw, axis=-1, keepdims=True) < self.fallback
        return unsure | rules.bild(pair, alpha)


def bild(drafter: LM | Proposer, target: LM, gamma: int, fallback: float = FALLBACK) -> Speculative:
    """BiLD with at most gamma drafts a block, which limits the block and does not show in the text.

    A request's alpha is the rollback threshold in nats. Where the target objects to a draft that is also its
    own argmax, the draft stays and so does what follows it: the published algorithm takes it back, writes it
    again and goes on from there to the same text. Raises ValueError for a fallback outside [0, 1].
    """
    about = f"max q < {fallback:g} or -log p(argmax q) > alpha (BiLD)"
    draft_only = math.inf if fallback == 0 else math.nan
    rule = rules.Deferral("bild", Unsure(fallback), -math.inf, draft_only, 2.0, about)
    return Speculative(drafter, target, rule, gamma, Confident(fallback))


def check(temperatures: Iterable[float]) -> None:
    """Raises ValueError naming the first temperature that is not 0: BiLD is defined for greedy text only."""
    for row, temperature in enumerate(temperatures):
        if temperature != 0:
            raise ValueError(
                f"temperature {temperature:g} of row {row}: BiLD decodes greedily and needs temperature 0; "
                "under sampling use rule bild (BiLD*)"
            )
