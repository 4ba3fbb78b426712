"""Call times as they were measured, in place of a chip."""

import json
from pathlib import Path

import pytest

from spec_cascades.checks import ConfigError
from spec_cascades.config import Models
from spec_cascades.planning import measured

DOCS = Path(__file__).parents[2] / "docs"
TABLE = DOCS / "records" / "simulate" / "call_times.jsonl"
LOOP = DOCS / "benchmarks" / "loop.jsonl"
RECORD = json.loads(TABLE.read_text().splitlines()[-1])


def test_measured_times_are_given_back():
    one, eight = measured.read(TABLE, Models(), 1), measured.read(TABLE, Models(), 8)
    assert one.call("target", 4) == RECORD["calls"]["target"]["4"][0]
    assert eight.call("drafter", 2) == RECORD["calls"]["drafter"]["2"][3]
    assert one.block(True, RECORD["gamma"]).step == pytest.approx(RECORD["step"]["lossless"][0])
    assert eight.block(False, RECORD["gamma"]).step == pytest.approx(RECORD["step"]["cascade"][3])
    assert one.alone("target").answer(1) == pytest.approx(RECORD["first"]["target"][0])
    assert one.token(0.0).step == RECORD["step"]["token_kept"][0]
    first, second = one.stages()
    assert first.answer(1) + second.answer(1) == pytest.approx(RECORD["first"]["sequence_deferred"][0])


def test_between_measured_widths_and_batches_times_are_interpolated():
    low, high = (RECORD["calls"]["target"][k][0] for k in ("5", "8"))
    one = measured.read(TABLE, Models(), 1)
    assert one.call("target", 6) == pytest.approx(low + (high - low) / 3)
    assert one.most == 7
    three = measured.read(TABLE, Models(), 3).call("target", 1)
    assert three == pytest.approx(sum(RECORD["calls"]["target"]["1"][1:3]) / 2)


def test_a_record_of_the_loop_has_calls_and_blocks_but_no_start():
    told = json.loads(LOOP.read_text())["batch_8"]
    eight = measured.read(LOOP, Models(), 8)
    assert eight.call("target", 5) == pytest.approx(told["target_call_block"] / 1e3)
    assert eight.block(True, 4).step == pytest.approx(told["block"] / 1e3)
    assert eight.alone("target") == (0.0, pytest.approx(told["target_step"] / 1e3))
    with pytest.raises(ConfigError, match="token_kept"):
        eight.token(0.5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: measured.read(TABLE, Models(), 9), "largest is 8"),
        (lambda: measured.read(TABLE, Models(dtype="float32"), 1), "models.dtype=bfloat16, not float32"),
        (lambda: measured.read(LOOP, Models(target="other"), 1), "models.target"),
        (lambda: measured.read(TABLE, Models(), 1).call("target", 9), "on 9 tokens"),
        (lambda: measured.read(DOCS / "rules.md", Models(), 1), "not a record"),
    ],
)
def test_what_was_not_measured_is_refused(call, words):
    with pytest.raises(ConfigError, match=words):
        call()
