"""What a reader sees while an answer grows, and that a watched run gives the same answer."""

import pytest
from fakes import FakeEngine

from spec_cascades import prompting
from spec_cascades.config import ConfigError, Decoding, Generate, Models
from spec_cascades.tasks.examples import Prompt


def shown(parts, end):
    """The writes of a stream that saw `parts` and then `end`."""
    written = []
    stream = prompting.Stream(written.append)
    for part in parts:
        stream.grow(part)
    stream.end(end)
    return written


def test_a_growing_text_is_written_once():
    assert shown(["Der", "Der Zug", "Der Zug ist"], "Der Zug ist da.") == ["Der", " Zug", " ist", " da.\n"]


def test_a_character_waits_until_it_is_whole():
    smile = "\N{GRINNING FACE}"
    assert shown(["a", "a\ufffd", "a\ufffd\ufffd", f"a{smile}"], f"a{smile}!") == ["a", "", "", smile, "!\n"]


def test_a_text_that_turns_out_otherwise_is_written_again():
    assert shown(["Der Zug", "Die Bahn"], "Die Bahn.") == ["Der Zug", "\nDie Bahn.\n"]


def test_a_stream_begins_anew_with_the_next_answer():
    written = []
    stream = prompting.Stream(written.append)
    for text in ("one", "two"):
        stream.grow(text)
        stream.end(text)
    assert "".join(written) == "one\ntwo\n"


def test_prompts_are_watched_batch_by_batch():
    seen = []
    config = Generate(decoding=Decoding(batch_size=2))
    batches = list(prompting.run(config, ["a b c"] * 3, FakeEngine(None, None, ""), seen.append))
    assert [len(batch.rows) for batch in batches] == [2, 1]
    assert [len(answers) for answers in seen] == [2, 2, 1, 1]


@pytest.mark.parametrize("method", ["speculative", "target"])
def test_a_watched_run_gives_the_same_answers_block_by_block(method):
    engine = prompting.load(Generate())
    decoding = Decoding(method=method, alpha=0.5, max_new_tokens=24)
    seen = []
    texts = ["The train is late.", "We are eating bread and cheese, and it is raining."]
    plain, watched = engine.run(texts, decoding), engine.run(texts, decoding, seen.append)
    assert [a.tokens for a in watched.answers] == [a.tokens for a in plain.answers]
    assert [a.accepted for a in watched.answers] == [a.accepted for a in plain.answers]
    calls = max(a.target_calls for a in plain.answers)
    assert len(seen) == calls - 1
    for row, answer in enumerate(plain.answers):
        lengths = [len(answers[row].tokens) for answers in seen]
        assert lengths == sorted(lengths)
        assert lengths[0] < len(answer.tokens)
        for answers in seen:
            assert answers[row].tokens == answer.tokens[: len(answers[row].tokens)]


def test_a_model_without_a_chat_template_says_so():
    with pytest.raises(ValueError, match="no chat template"):
        prompting.load(Generate(models=Models(chat=True))).encode("Hello.")


def test_every_sample_has_a_seed_of_its_own():
    config = Generate(decoding=Decoding(samples=2, seed=10, temperature=1.0))
    asked = prompting.ask(config, ["a", Prompt("b", {"seed": 3, "samples": 3}), "c"])
    assert [(a.prompt, a.decoding.seed) for a in asked] == [
        *(("a", 10), ("a", 11)),
        *(("b", 3), ("b", 4), ("b", 5)),
        *(("c", 15), ("c", 16)),
    ]


def test_a_prompt_changes_its_own_decoding_only():
    asked = prompting.ask(Generate(), ["a", Prompt("b", {"temperature": 0.7, "stop": ["x"]}), "c"])
    assert [a.decoding.temperature for a in asked] == [0, 0.7, 0]
    assert [a.decoding.stop for a in asked] == [[], ["x"], []]
    assert all(a.decoding.alpha is not None for a in asked)
    for changes, words in [
        ({"temprature": 1}, "prompt 1.*did you mean 'temperature'"),
        ({"top_p": 2.0}, "top_p"),
    ]:
        with pytest.raises(ConfigError, match=words):
            prompting.ask(Generate(), ["a", Prompt("b", changes)])


def test_refilled_answers_come_in_order_and_once():
    prompts = [" ".join("abcdefgh"[: 1 + i * 5 % 8]) for i in range(9)]
    config, totals = Generate(decoding=Decoding(batch_size=2)), prompting.Totals()
    rows = []
    for batch in prompting.run(config, prompts, FakeEngine(None, None, "")):
        rows += batch.rows
        totals.add(batch)
    plain = [
        row
        for batch in prompting.run(
            Generate(decoding=Decoding(batch_size=2), refill=False), prompts, FakeEngine(None, None, "")
        )
        for row in batch.rows
    ]
    assert rows == plain
    assert [row["input"] for row in rows] == prompts
    assert "9 answers" in totals.line()
    assert "compilation included" in totals.line()
