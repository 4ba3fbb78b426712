"""Traces of the embedded pair, float32: authors agree with the ledger, and with lossless speculation."""

from dataclasses import replace

import pytest

from spec_cascades import Decoding, Engine, cli
from spec_cascades.commands.trace import EXAMPLE, EXAMPLE_RULE
from spec_cascades.config import Generate, Models, load
from spec_cascades.sweep import with_alpha
from spec_cascades.trace import running
from spec_cascades.trace.tokens import BONUS, DRAFT, DRAFTER, KEPT, RESIDUAL, TARGET

TEXT = "The test was hard. I could not answer every question."
SAMPLED = Decoding(rule="v3", alpha=0.5, gamma=3, temperature=1.0, max_new_tokens=24, seed=3)
GREEDY = replace(SAMPLED, temperature=0.0)
SPECULATIVE = {
    "greedy": GREEDY,
    "sampled": SAMPLED,
    "position mask": replace(SAMPLED, rule="opt", alpha=0.3),
    "no mask": replace(SAMPLED, rule="lossy", alpha=0.4, top_p=0.9),
    "confident": replace(SAMPLED, lengths="confident", confidence=0.5, max_new_tokens=9),
    "bild": replace(GREEDY, method="bild", alpha=2.0),
    "stopped": replace(GREEDY, stop=["ung"]),
}
STEPPED = {
    "oracle": replace(SAMPLED, method="oracle", rule="v3"),
    "oracle without a mask": replace(SAMPLED, method="oracle", rule="lossy"),
    "token": replace(SAMPLED, method="token", rule="chow", alpha=0.5),
}


@pytest.fixture(scope="module")
def engine():
    return Engine("embedded:en-de-target", "embedded:en-de-drafter", dtype="float32")


def ledger(engine, decoding):
    return engine.run([TEXT], with_alpha(decoding)).answers[0]


def drafts(trace):
    return trace.count(DRAFT) + trace.count(KEPT)


@pytest.mark.parametrize("name", SPECULATIVE)
def test_authors_of_speculation_agree_with_the_ledger(engine, name):
    decoding = SPECULATIVE[name]
    trace, answer = running.trace(engine, TEXT, decoding), ledger(engine, decoding)
    assert [token.id for token in trace.tokens] == answer.tokens
    assert drafts(trace) == sum(answer.accepted) > 0
    assert drafts(trace) + trace.count(RESIDUAL) == sum(answer.judged)
    assert drafts(trace) + trace.count(RESIDUAL) + trace.count(BONUS) == len(answer.tokens)
    assert trace.blocks == trace.target_calls == answer.target_calls == trace.tokens[-1].block + 1
    assert trace.disagreements == 0
    for token in trace.tokens:
        assert (token.rejected is not None) == (token.author == RESIDUAL)
        assert (token.uniform is not None) == (token.author != BONUS)
        if token.author in (DRAFT, KEPT):
            assert token.uniform * token.numbers.q < token.numbers.pi
    assert (name == "stopped") == (trace.finish_reason == "stop")


@pytest.mark.parametrize("name", STEPPED)
def test_cascades_of_one_token_a_step(engine, name):
    decoding = STEPPED[name]
    trace, answer = running.trace(engine, TEXT, decoding), ledger(engine, decoding)
    assert drafts(trace) == sum(answer.accepted) > 0
    own = RESIDUAL if name == "oracle without a mask" else TARGET
    assert trace.count(own) == sum(answer.judged) - sum(answer.accepted) > 0
    assert trace.blocks == len(answer.tokens)
    assert trace.target_calls == answer.target_calls
    assert trace.disagreements == 0
    for token in trace.tokens if own == TARGET else ():
        stands = token.author in (DRAFT, KEPT)
        assert (token.numbers if stands else token.rejected.numbers).r is not stands
        assert token.uniform is None
        if name == "token":  # chow's mask is one bit a position: all drafts there stand, or none
            assert token.numbers.rejects == pytest.approx(float(not stands), abs=1e-5)


@pytest.mark.parametrize("method", ["target", "drafter"])
def test_one_model_alone(engine, method):
    trace = running.trace(engine, TEXT, replace(SAMPLED, method=method))
    own = {"target": TARGET, "drafter": DRAFTER}[method]
    calls = {"target": trace.target_calls, "drafter": trace.drafter_calls}
    assert trace.count(own) == len(trace.tokens) == calls[method] == sum(calls.values())
    assert trace.disagreements == 0
    n = trace.tokens[0].numbers
    assert n.pi == {"target": n.p, "drafter": n.q}[method]


@pytest.mark.parametrize("decoding", [GREEDY, SPECULATIVE["position mask"]], ids=["greedy", "sampled"])
def test_what_a_rule_kept_lossless_speculation_rejects(engine, decoding):
    found = 0
    for seed in range(3):
        alone, lossless, cascade = running.traces(engine, TEXT, replace(decoding, seed=seed))
        assert lossless.count(KEPT) == 0
        if decoding is GREEDY:
            assert [t.id for t in lossless.tokens] == [t.id for t in alone.tokens]
        who = lambda trace, n: [(t.id, t.author) for t in trace.tokens[:n]]
        first = next((t.position for t in cascade.tokens if t.author == KEPT), None)
        # The noise depends on the position alone: up to there the two decodes are one.
        if first is not None and who(lossless, first) == who(cascade, first):
            there, kept = lossless.tokens[first], cascade.tokens[first]
            assert there.author == RESIDUAL
            assert there.rejected.numbers.q_raw == pytest.approx(kept.numbers.q_raw, abs=1e-6)
            assert there.rejected.text in cascade.text
            found += 1
    assert found, "no seed kept a draft before the two parted: nothing was tested"


@pytest.mark.parametrize("method", ["sequence", "hybrid"])
def test_sequence_cascades(engine, method):
    kept = running.trace(engine, TEXT, replace(SAMPLED, method=method, alpha=float("inf")))
    assert drafts(kept) == len(kept.tokens)
    assert (kept.blocks, kept.target_calls, kept.disagreements) == (1, 0, 0)
    assert {token.uniform for token in kept.tokens} == {None}
    assert kept.count(KEPT) > 0, "the drafter's sample holds nothing that the target would have rejected"
    deferred = running.trace(engine, TEXT, replace(SAMPLED, method=method, alpha=-1.0))
    assert deferred.disagreements == 0
    assert deferred.target_calls == deferred.blocks
    assert deferred.count(KEPT) == 0
    assert deferred.count(RESIDUAL) == (method == "hybrid")
    assert deferred.count(TARGET) + deferred.count(RESIDUAL) + deferred.count(DRAFT) == len(deferred.tokens)


def test_a_check_that_can_fail(engine, monkeypatch):
    """Another seed's noise draws other tokens: the line would say so."""
    real = running.figures
    monkeypatch.setattr(running, "figures", lambda *given: real(*given[:-1], given[-1] + 1))
    assert running.trace(engine, TEXT, SAMPLED).disagreements > 0


def test_the_example_two_right_answers_worded_differently(engine):
    decoding = load(Generate, None, list(EXAMPLE_RULE)).decoding
    alone, lossless, cascade = running.traces(engine, EXAMPLE, decoding)
    assert alone.text == lossless.text == "Ich heiße Tom. Wie heißt du?"
    assert cascade.text == "Mein Name ist Tom. Wie heißt du?"
    assert lossless.tokens[0].author == RESIDUAL
    assert cascade.tokens[0].author == KEPT
    assert cascade.text.startswith(lossless.tokens[0].rejected.text)
    assert cascade.target_calls < lossless.target_calls < alone.target_calls


def test_lossless_and_the_target_are_not_shown_twice(engine):
    for same in (replace(GREEDY, method="target"), replace(GREEDY, rule="lossless")):
        assert [trace.name for trace in running.traces(engine, TEXT, same)] == ["target", "lossless"]


@pytest.mark.parametrize("drafter", ["lookup:2", None])
def test_a_drafter_without_q_is_refused_with_the_choices(drafter):
    with pytest.raises(ValueError, match=r"models\.drafter: .* has no q .* choose a model"):
        running.check(replace(Models(), drafter=drafter))
    running.check(replace(Models(), drafter="exit:2"))


def test_on_the_command_line(capsys, tmp_path):
    page = tmp_path / "new" / "page.html"
    assert cli.main(["trace", "--out", str(page)]) == 0
    shown = capsys.readouterr()
    assert f"page: {page}" in shown.err
    assert EXAMPLE in shown.out
    assert "float32; greedy" in shown.out
    assert ": 0 of " in shown.out
    assert page.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["", "--set", "decoding.gamma=2"], ["no prompt"]),
        (["Hi.", "--set", "models.drafter=lookup:3"], ["models.drafter", "lookup:3", "choose"]),
        (["Hi.", "--set", "decoding.rule=v9"], ["decoding.rule", "v9", "v3"]),
        (["Hi.", "--config", "nowhere.yaml"], ["nowhere.yaml"]),
    ],
)
def test_bad_input_is_one_line_and_2(capsys, arguments, words):
    assert cli.main(["trace", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    for word in words:
        assert word in error
