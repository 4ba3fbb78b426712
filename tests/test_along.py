"""The pair along a text is the pair that decoding saw, on the embedded models."""

from dataclasses import replace

import numpy as np
import pytest

from spec_cascades import Decoding, Engine
from spec_cascades.along import along
from spec_cascades.config import EMBEDDED_TASK, Task
from spec_cascades.tasks.examples import read

GREEDY = Decoding(method="target", max_new_tokens=24)
PENALISED = replace(GREEDY, repetition_penalty=1.3, logit_bias={5: 2.0}, forbidden=[7])


@pytest.fixture(scope="module")
def engine():
    return Engine("embedded:en-de-target", "embedded:en-de-drafter", dtype="float32")


@pytest.fixture(scope="module")
def texts():
    return [example.source for example in read(Task(path=EMBEDDED_TASK, limit=4))]


@pytest.mark.parametrize("decoding", [GREEDY, PENALISED], ids=["greedy", "edited"])
@pytest.mark.parametrize(("method", "law"), [("target", "p"), ("drafter", "q")])
def test_greedy_answers_are_the_best_of_the_law_they_were_drawn_from(engine, texts, decoding, method, law):
    decoding = replace(decoding, method=method)
    answers = [answer.tokens for answer in engine.run(texts, decoding).answers]
    pairs = along(engine, texts, answers, decoding)
    for tokens, pair in zip(answers, pairs, strict=True):
        assert pair.q.shape == pair.p.shape == (len(tokens), engine.model("target").lm.vocab)
        assert np.argmax(getattr(pair, f"{law}_raw"), axis=-1).tolist() == tokens
        np.testing.assert_array_equal(getattr(pair, law).max(axis=-1), 1.0)
    other = {"p": "q", "q": "p"}[law]
    assert any(
        np.argmax(getattr(pair, other), axis=-1).tolist() != tokens
        for tokens, pair in zip(answers, pairs, strict=True)
    ), "drafter and target say the same everywhere: the test would pass with either"


def test_a_deferral_can_be_read_off_the_pair(engine, texts):
    chow = replace(GREEDY, method="token", rule="chow", alpha=0.3)
    answers = [answer.tokens for answer in engine.run(texts, chow).answers]
    deferred = []
    for tokens, pair in zip(answers, along(engine, texts, answers, chow), strict=True):
        defers = pair.q_raw.max(axis=-1) < 0.7
        deferred += defers.tolist()
        np.testing.assert_array_equal(tokens, np.where(defers, pair.p.argmax(-1), pair.q.argmax(-1)))
    assert 0 < sum(deferred) < len(deferred)


def test_filters_are_in_the_sampled_pair_alone_and_a_row_alone_reads_the_same(engine, texts):
    filtered = Decoding(temperature=0.7, top_k=3, max_new_tokens=24)
    answers = [answer.tokens for answer in engine.run(texts, filtered).answers]
    together = along(engine, texts, answers, filtered)
    for text, tokens, pair in zip(texts, answers, together, strict=True):
        for sampled, unfiltered in ((pair.q, pair.q_raw), (pair.p, pair.p_raw)):
            assert (sampled > 0).sum(axis=-1).max() == 3
            np.testing.assert_allclose(unfiltered.sum(axis=-1), 1, atol=1e-5)
            top = np.sort(unfiltered, axis=-1)[:, -3:] ** (1 / 0.7)
            np.testing.assert_allclose(
                np.sort(sampled, axis=-1)[:, -3:], top / top.sum(-1, keepdims=True), atol=1e-4
            )
        (alone,) = along(engine, [text], [tokens], filtered)
        for a, b in zip(alone, pair, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5)


def test_what_has_no_pair_is_refused(engine, texts):
    with pytest.raises(ValueError, match="without tokens"):
        along(engine, texts[:1], [[]], GREEDY)
    with pytest.raises(ValueError, match="1 prompts for 2"):
        along(engine, texts[:1], [[5], [6]], GREEDY)
    with pytest.raises(ValueError, match="needs a model as drafter"):
        along(Engine("embedded:en-de-target", "lookup:2", "float32"), texts[:1], [[5]], GREEDY)
    with pytest.raises(ValueError, match=r"models\.drafter is not given"):
        along(Engine("embedded:en-de-target", None, "float32"), texts[:1], [[5]], GREEDY)
