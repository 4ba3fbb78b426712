"""A prompt that waits for a slot gets the answer it would get alone, and slots do not stand empty."""

import jax
import jax.numpy as jnp
import laws
import numpy as np
import pytest
import tiny
from laws import Setting

from spec_cascades.decode import loop
from spec_cascades.decode.autoregressive import Autoregressive
from spec_cascades.decode.scheduler import serve
from spec_cascades.decode.speculative import Speculative
from spec_cascades.rules import RULES

FAMILIES = pytest.mark.parametrize("family", sorted(tiny.FAMILIES))
SETTINGS = [
    Setting(0.5),
    Setting(0.0, temperature=0.0),
    Setting(0.3, temperature=0.7, top_p=0.9),
    Setting(0.6, temperature=1.3, top_k=3, min_p=0.1),
]
N = 12
LIMITS = [3, 12, 1, 7, 2, 12, 5, 1, 9, 4, 12, 6]


def workload(family):
    """Prompts of different lengths, and requests that have nothing in common."""
    n = len(LIMITS)
    model = tiny.FAMILIES[family]
    rows = np.asarray(model.prompts)
    prompts = [rows[i % len(rows), : int(model.lengths[i % len(rows)])].tolist() for i in range(n)]
    settings = [SETTINGS[i % 4] for i in range(n)]
    request = laws.request(settings, 1, eos=-1, max_new=np.asarray(LIMITS[:n]), seeds=np.arange(n) * 7 + 1)
    return model, prompts, request


def drain(serving):
    """All answers by prompt, and the statistics at the end."""
    got = {}
    while True:
        try:
            i, row = next(serving)
        except StopIteration as end:
            return got, end.value
        assert i not in got
        got[i] = row


def alone(method, model, prompts, request, i):
    """Prompt i in a batch of its own, without padding."""
    own = jax.tree.map(lambda x: x[i : i + 1], request)
    tokens = jnp.asarray([prompts[i]], jnp.int32)
    return loop.generate(method, model.params, tokens, jnp.asarray([len(prompts[i])]), own, N)


@FAMILIES
@pytest.mark.parametrize(("slots", "idle"), [(3, 1), (4, 3)])
def test_answers_are_those_of_each_prompt_alone(family, slots, idle):
    model, prompts, request = workload(family)
    method = Speculative(model.drafter, model.target, RULES["v3"], 3)
    got, stats = drain(serve(method, model.params, prompts, request, N, slots, idle, bucket=4))
    assert sorted(got) == list(range(len(prompts)))
    for i in range(len(prompts)):
        expected = alone(method, model, prompts, request, i)
        for a, b in zip(jax.tree.leaves(got[i]), jax.tree.leaves(expected), strict=True):
            np.testing.assert_array_equal(a, b, f"prompt {i}")
    assert 0 < stats.occupancy <= 1
    assert stats.prefills > 1


def by_batches(limits, slots):
    """Steps that batches of `slots` in order take when each waits for its slowest row."""
    return sum(max(limits[i : i + slots]) for i in range(0, len(limits), slots))


def by_slots(limits, slots):
    """Steps that the slots take when each free one takes the next prompt."""
    free = [0] * slots
    for limit in limits:
        at = free.index(min(free))
        free[at] += limit
    return max(free)


@pytest.mark.parametrize("slots", [1, 2, 3, 5])
def test_turns_are_those_of_slots_that_never_wait(slots):
    model, prompts, request = workload("markov")
    method = Autoregressive(model.target)
    _, stats = drain(serve(method, model.params, prompts, request, N, slots))
    assert stats.turns == by_slots(LIMITS, slots)
    if slots > 1:
        assert stats.turns < by_batches(LIMITS, slots)
    assert stats.occupancy == pytest.approx(sum(LIMITS) / (stats.turns * slots))


def test_waiting_for_more_free_slots_prefills_less_often():
    model, prompts, request = workload("markov")
    method = Autoregressive(model.target)
    eager, patient = (drain(serve(method, model.params, prompts, request, N, 4, idle))[1] for idle in (1, 3))
    assert patient.prefills < eager.prefills
    assert patient.occupancy < eager.occupancy


def test_few_shapes_compile():
    model, prompts, request = workload("markov")
    method = Autoregressive(model.drafter, "drafter")
    before = loop.run._cache_size(), loop.start._cache_size()
    drain(serve(method, model.params, prompts, request, N, 3))
    drain(serve(method, model.params, prompts[::-1], request, N, 3))
    assert loop.run._cache_size() == before[0] + 1
    assert loop.start._cache_size() - before[1] <= 3, "groups of one, two, and the first three"


@pytest.mark.parametrize(("slots", "idle"), [(3, 4), (3, 0), (0, 1)])
def test_slots_that_cannot_be_are_refused(slots, idle):
    model, prompts, request = workload("markov")
    with pytest.raises(ValueError, match="slots"):
        drain(serve(Autoregressive(model.target), model.params, prompts, request, N, slots, idle))
