"""What a row may ask for, on the embedded pair: stop strings, edits of the scores, windows, mixed batches."""

from dataclasses import replace

import numpy as np
import pytest

from spec_cascades import Decoding, Engine, asking, stops
from spec_cascades.config import EMBEDDED_TASK, Task
from spec_cascades.tasks.examples import read

GREEDY = Decoding(rule="v3", alpha=0.3, gamma=3, max_new_tokens=40)
WARM = replace(GREEDY, temperature=1.0, seed=5)


@pytest.fixture(scope="module")
def engine():
    return Engine("embedded:en-de-target", "embedded:en-de-drafter", dtype="float32")


@pytest.fixture(scope="module")
def sources():
    return [example.source for example in read(Task(path=EMBEDDED_TASK, join=2, limit=12))]


def one(engine, text, decoding):
    # Room for the same number of tokens whatever the limit: one shape, one compilation.
    return engine.run([text], decoding, buffer=40).answers[0]


@pytest.mark.parametrize("decoding", [GREEDY, WARM, replace(GREEDY, method="target")], ids=str)
def test_text_ids_and_counts_agree_wherever_a_stop_string_falls(engine, sources, decoding):
    """Against a run whose limit is the number of tokens that the stop string leaves."""
    whole = one(engine, sources[0], decoding)
    tried = set()
    for at in range(1, len(whole.text) - 6, 5):
        stop = whole.text[at : at + 6]
        got = one(engine, sources[0], replace(decoding, stop=["never there", stop]))
        assert got.text == whole.text[: whole.text.index(stop)]
        assert got.finish_reason == "stop"
        n = len(got.tokens)
        assert got.tokens == whole.tokens[:n]
        decode = engine.tokenizer.decode
        assert stop in decode(got.tokens)
        assert stop not in decode(got.tokens[:-1])
        limited = one(engine, sources[0], replace(decoding, max_new_tokens=n))
        assert got._replace(text="", finish_reason="") == limited._replace(text="", finish_reason="")
        tried.add(n)
    assert len(tried) > 5


def test_a_stop_string_that_never_comes_changes_nothing(engine, sources):
    assert one(engine, sources[1], replace(WARM, stop=["@@"])) == one(engine, sources[1], WARM)


def test_the_first_of_several_stop_strings_counts():
    assert stops.before("one two three", ["three", "two"]) == "one "
    assert stops.before("one two three", ["four"]) == "one two three"
    assert stops.before("one two three", []) == "one two three"


def test_a_stop_string_may_span_tokens_and_begin_inside_one(engine):
    tokenizer = engine.tokenizer
    tokens = tokenizer.encode("Wir gehen heute ins Kino.")[:-1]
    for stop in ("r gehen h", "Kino", "."):
        n = stops.stopped(tokenizer.decode, tokens, 0, [stop])
        assert stop in tokenizer.decode(tokens[:n])
        assert stop not in tokenizer.decode(tokens[: n - 1])
    assert stops.stopped(tokenizer.decode, tokens, 0, ["Theater"]) is None


def test_rows_of_one_batch_may_ask_for_different_things(engine, sources):
    """Each as it would be alone: greedy beside sampled, filtered, edited, stopped, limited, another alpha."""
    whole = one(engine, sources[4], GREEDY)
    loose = one(engine, sources[4], replace(GREEDY, alpha=0.9))
    often = max(set(whole.tokens), key=whole.tokens.count)
    asked = [
        GREEDY,
        replace(WARM, top_k=5, min_p=0.02),
        replace(WARM, repetition_penalty=1.3, seed=9),
        replace(GREEDY, forbidden=[often], max_new_tokens=17),
        replace(GREEDY, stop=[loose.text[8:12]], alpha=0.9),
        replace(WARM, logit_bias={often: 2.5}, eos=[often], top_p=0.8),
    ]
    texts = [sources[i] for i in (0, 1, 2, 4, 4, 3)]
    together = engine.run(texts, asked, buffer=40).answers
    for text, decoding, answer in zip(texts, asked, together, strict=True):
        alone = one(engine, text, decoding)
        assert alone == answer
    assert often not in together[3].tokens
    assert together[4].finish_reason == "stop"
    assert together[5].tokens.count(often) <= 1


def test_rows_of_one_batch_share_what_is_compiled(engine, sources):
    with pytest.raises(ValueError, match=r"gamma.*'2', '3'"):
        engine.run(sources[:2], [GREEDY, replace(GREEDY, gamma=2)])
    with pytest.raises(ValueError, match="1 decodings for 2 prompts"):
        engine.run(sources[:2], [GREEDY])


@pytest.mark.parametrize("key", ["forbidden", "eos"])
def test_ids_beyond_the_vocabulary_are_refused(engine, sources, key):
    with pytest.raises(ValueError, match=f"{key}: id 10000000"):
        one(engine, sources[0], replace(GREEDY, **{key: [10_000_000]}))


def test_edits_reach_both_models(engine, sources):
    """Lossless speculation under a penalty and a bias writes what the target alone writes under them."""
    whole = one(engine, sources[0], replace(GREEDY, method="target"))
    edits = dict(repetition_penalty=1.4, logit_bias={whole.tokens[0]: -3.0}, forbidden=[whole.tokens[2]])
    alone = engine.run(sources[:4], replace(GREEDY, method="target", **edits)).answers
    drafted = engine.run(sources[:4], replace(GREEDY, rule="lossless", **edits)).answers
    assert [a.tokens for a in alone] == [a.tokens for a in drafted]
    assert alone[0].tokens != whole.tokens
    assert sum(sum(a.accepted) for a in drafted) > 0


def test_served_answers_are_those_of_each_prompt_alone(engine, sources):
    asked = [replace(WARM if i % 2 else GREEDY, max_new_tokens=4 + 9 * (i % 4), seed=i) for i in range(8)]
    asked[5] = replace(asked[5], stop=["e"])
    got = dict(engine.serve(sources[:8], asked, slots=3))
    assert sorted(got) == list(range(8))
    for i, decoding in enumerate(asked):
        assert got[i] == one(engine, sources[i], decoding)
    assert got[5].finish_reason == "stop"


def test_a_sequence_cascade_is_neither_refilled_nor_stopped(engine, sources):
    cascade = Decoding(method="sequence")
    with pytest.raises(ValueError, match="cannot be refilled"):
        engine.serve(sources[:2], cascade, slots=1)
    with pytest.raises(ValueError, match="no stop strings"):
        engine.run(sources[:2], replace(cascade, stop=["x"]))


@pytest.mark.parametrize("method", ["token", "oracle", "sequence", "hybrid", "bild"])
def test_every_method_is_a_name_away(engine, sources, method):
    decoding = Decoding(method=method, rule="chow", max_new_tokens=24)
    ends = [engine.run(sources[:3], replace(decoding, alpha=a)).answers for a in (-50.0, 50.0)]
    alone = {
        role: engine.run(sources[:3], replace(decoding, method=role)).answers
        for role in ("target", "drafter")
    }
    assert [a.tokens for a in ends[0]] == [a.tokens for a in alone["target"]]
    if method != "bild":
        assert [a.tokens for a in ends[1]] == [a.tokens for a in alone["drafter"]]
        assert sum(a.target_calls for a in ends[1]) == (
            sum(len(a.tokens) for a in ends[1]) if method == "oracle" else 0
        )


@pytest.mark.parametrize("lengths", ["adaptive", "confident"])
def test_gamma_by_another_policy_drafts_less(engine, sources, lengths):
    fixed = engine.run(sources[:4], replace(GREEDY, rule="lossless", gamma=6)).answers
    other = engine.run(sources[:4], replace(GREEDY, rule="lossless", gamma=6, lengths=lengths)).answers
    assert [a.tokens for a in fixed] == [a.tokens for a in other]
    assert sum(a.drafter_calls for a in other) < sum(a.drafter_calls for a in fixed)


def test_prompts_may_draft_for_themselves(sources):
    texts = [text + " Berlin, Hamburg, Berlin, Hamburg." for text in sources[:3]]
    looking = Engine("embedded:en-de-target", "lookup:2", dtype="float32")
    decoding = replace(GREEDY, rule="lossless")
    alone = looking.run(texts, replace(decoding, method="target")).answers
    drafted = looking.run(texts, decoding).answers
    assert [a.tokens for a in drafted] == [a.tokens for a in alone]
    assert sum(a.target_calls for a in drafted) <= sum(a.target_calls for a in alone)
    assert all(a.drafter_calls == 0 for a in drafted)
    with pytest.raises(ValueError, match="'token' needs a model"):
        looking.run(texts, replace(decoding, method="token"))
    with pytest.raises(ValueError, match="lookup:N"):
        Engine("embedded:en-de-target", "lookup:x").run(texts, decoding)


def test_a_drafter_may_copy_too(sources):
    inner = "embedded:en-de-drafter"
    texts = [text + " Berlin, Hamburg, Bremen, Berlin, Hamburg, Bremen." for text in sources[:3]]
    decoding = replace(GREEDY, rule="lossless")
    answers = {}
    for drafter in (inner, f"copy:{inner}"):
        engine = Engine("embedded:en-de-target", drafter, dtype="float32")
        answers[drafter] = engine.run(texts, decoding).answers
    alone = engine.run(texts, replace(decoding, method="target")).answers
    for drafted in answers.values():
        assert [a.tokens for a in drafted] == [a.tokens for a in alone]
    plain, copied = answers.values()
    calls = lambda rows: sum(a.target_calls for a in rows)
    assert calls(copied) < calls(plain), "names that the source repeats are not copied"
    sampled = replace(WARM, rule="lossless")
    together = engine.run(texts, sampled, buffer=40).answers
    for i, text in enumerate(texts):
        assert (
            engine.run([text], replace(sampled, seed=sampled.seed + i), buffer=40).answers[0] == together[i]
        )


@pytest.mark.parametrize("drafter", ["copy:", "copy", "copy:lookup:2", "copy:copy:exit:2"])
def test_what_copies_must_be_a_model(drafter):
    with pytest.raises(ValueError, match="copy:MODEL"):
        Engine("embedded:en-de-target", drafter).run(["A train."], GREEDY)


def test_windows_end_rows_and_drafts():
    tokenizer = type("T", (), {"stops": (1,)})()
    prompts = [[3] * 5, [3] * 9]
    got = asking.request_of([GREEDY] * 2, prompts, tokenizer, 50, asking.Windows(target=12, drafter=8))
    np.testing.assert_array_equal(got.capacity, [7, 3])
    np.testing.assert_array_equal(got.drafter_capacity, [3, 0])
    with pytest.raises(ValueError, match="a prompt of 9 tokens leaves no room in the target's window of 9"):
        asking.request_of([GREEDY] * 2, prompts, tokenizer, 50, asking.Windows(target=9))
