import json

import pytest
from pretend import by_batch, record

from spec_cascades.checks import ConfigError
from spec_cascades.simulate import costs

MS = 1e-3


def test_a_batch_between_two_measured_ones_is_interpolated(table):
    assert table.call("target", 5, 1) == pytest.approx(3.5 * MS)
    assert table.call("target", 5, 2) == pytest.approx(3.5 * 1.1 * MS)
    assert table.call("target", 5, 8) == pytest.approx(3.5 * 1.7 * MS)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda t: t.call("target", 5, 9), ["batch of 9", "1..8"]),
        (lambda t: t.call("target", 6, 1), ["calls target 6", "1, 2, 3, 4, 5, 8"]),
        (lambda t: t.step("bild", 1), ["step bild", "lossless"]),
        (lambda t: costs.block(t, "v3", 6, 1), ["calls target 7"]),
    ],
)
def test_nothing_is_read_beyond_the_table(table, ask, words):
    with pytest.raises(ConfigError) as error:
        ask(table)
    for word in words:
        assert word in str(error.value)


def test_a_block_of_the_measured_gamma_takes_what_was_measured(table):
    assert costs.block(table, "lossless", 4, 1) == pytest.approx(8 * MS)
    assert costs.block(table, "v3", 4, 4) == pytest.approx(9 * 1.3 * MS)


def test_a_shorter_block_has_fewer_calls_and_less_added(table):
    # lossless: 0.5 + 3 * 0.4 + 3.5 = 5.2 of calls and 2.8 added; v3: 5 * 0.4 + 3.5 = 5.5 and 3.5.
    assert costs.block(table, "lossless", 2, 1) == pytest.approx((0.5 + 0.4 + 3.3 + 2.8 * 3 / 5) * MS)
    assert costs.block(table, "opt", 2, 1) == pytest.approx((3 * 0.4 + 3.3 + 3.5 * 3 / 5) * MS)


def test_steps_with_rows_at_several_places(table):
    grown = lambda ms, rows: ms * (1 + 0.1 * (rows - 1)) * MS
    seconds = costs.alone(table, "target")
    assert seconds((1, 0)) == pytest.approx(6 * MS)
    assert seconds((2, 3)) == pytest.approx(grown(6, 2) + grown(4, 3))
    seconds = costs.token_cascade(table)
    assert seconds((0, 3, 0, 0)) == pytest.approx(grown(0.6, 3))
    assert seconds((0, 3, 1, 0)) == pytest.approx(grown(7, 4))
    assert seconds((0, 3, 1, 1)) == pytest.approx(grown(0.6 + 18.4 - 11, 5))
    assert seconds((1, 0, 0, 0)) == pytest.approx(10.4 * MS)
    seconds = costs.both_stages(table)
    # first and step of the target's stage: what deferred answers take beyond kept ones.
    assert seconds((0, 0, 1, 0)) == pytest.approx((11 - 4.2) * MS)
    assert seconds((1, 2, 0, 3)) == pytest.approx(3.45 * MS + grown(0.55, 2) + grown(4.2, 3))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda r: r.pop("step"), "no step"),
        (lambda r: r["first"].update(target=by_batch(3.9)), "target at batch 1"),
        (lambda r: r["first"].update(sequence_deferred=by_batch(4.5)), "sequence"),
        (lambda r: r["step"].update(token_deferred=by_batch(0.01)), "token_deferred"),
    ],
)
def test_a_record_that_cannot_be_is_refused(tmp_path, change, word):
    bad = record()
    change(bad)
    path = tmp_path / "bad.jsonl"
    path.write_text(json.dumps(bad))
    with pytest.raises(ConfigError, match=word):
        costs.read(path)


def test_no_record_is_said(tmp_path):
    with pytest.raises(ConfigError, match="no file"):
        costs.read(tmp_path / "nowhere")
    path = tmp_path / "text"
    path.write_text("hello\n")
    with pytest.raises(ConfigError, match="not a record"):
        costs.read(path)
