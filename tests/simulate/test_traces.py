import json

import numpy as np
import pytest
import yaml

from spec_cascades.checks import ConfigError
from spec_cascades.config import Decoding, Point
from spec_cascades.simulate import traces
from spec_cascades.simulate.queue import Work
from spec_cascades.simulate.traces import Answer


def answer(index, tokens, target_calls, drafter_calls=0):
    calls = {"target_calls": target_calls, "drafter_calls": drafter_calls}
    return {"index": index, "tokens": list(range(tokens)), "judged": [], "accepted": [], **calls}


def batch(point, repeat, answers, seconds=0.5):
    return {"kind": "batch", "point": point, "repeat": repeat, "seconds": seconds, "answers": answers}


def run_folder(path, points, lines):
    task = {"path": "embedded:en-de-everyday"}
    path.mkdir()
    (path / "config.yaml").write_text(
        yaml.safe_dump({"task": task, "points": points, "examples_sha256": "0"})
    )
    (path / "examples.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_answers_come_in_order_with_the_seconds_of_those_that_were_alone(tmp_path):
    lines = [
        {"kind": "session"},
        batch("target", 1, [answer(0, 5, 5)]),
        batch("target", 0, [answer(1, 4, 4), answer(2, 9, 9)]),
        batch("target", 0, [answer(0, 3, 3)], seconds=0.25),
    ]
    folder = run_folder(tmp_path / "run", [{"method": "target"}, {"rule": "lossless"}], lines)
    sweep, (trace,) = traces.read(folder, ["target"])
    assert sweep.models.target == "embedded:en-de-target"
    assert [a.tokens for a in trace.answers] == [3, 4, 9, 5]
    assert [a.seconds for a in trace.answers] == [0.25, None, None, 0.5]
    assert trace.quality is None
    with pytest.raises(ConfigError, match="no answer of 'lossless'"):
        traces.read(folder, [])
    with pytest.raises(ConfigError, match="'v4' is none of the run's: target, lossless"):
        traces.read(folder, ["v4"])


@pytest.mark.parametrize(
    ("decoding", "word"), [({"method": "oracle"}, "oracle"), ({"lengths": "adaptive"}, "adaptive")]
)
def test_what_has_no_measured_step_is_refused(decoding, word):
    with pytest.raises(ConfigError, match=word):
        traces.check(Point("p", Decoding(**decoding)))


def test_an_answer_of_the_target_shows_its_first_token_after_one_step():
    assert traces.target_alone(7) == Work((0, 1, 1), (1, 1, 6), 1)
    assert traces.target_alone(1) == Work((0, 1), (1, 1), 1)


def test_a_sequence_cascade_shows_nothing_before_the_choice_is_made():
    kept, none = traces.sequence_cascade(Answer(6, 0, 6, None))
    assert (kept, none) == (Work((0, 1), (1, 6), 1), None)
    drafted, redone = traces.sequence_cascade(Answer(6, 6, 9, None))
    assert drafted.counts == (1, 9)
    assert drafted.shown == -1
    assert redone == traces.target_alone(6)


@pytest.mark.parametrize(("tokens", "calls"), [(1, 0), (1, 1), (2, 1), (9, 0), (9, 9), (30, 11)])
def test_a_token_cascade_calls_the_target_in_as_many_steps_as_the_log_says(tokens, calls):
    rng = np.random.default_rng(0)
    places = []
    for _ in range(50):
        work = traces.token_cascade(Answer(tokens, calls, tokens, None), rng)
        steps = [kind for kind, n in zip(work.kinds, work.counts, strict=True) for _ in range(n)]
        assert steps[0] == 0
        assert len(steps) == 1 + tokens
        target = [kind for kind in steps if kind >= 2]
        assert target == [3] * (calls > 0) + [2] * (calls - 1)
        assert work.counts[work.shown] == 1
        places.append(steps)
    if 0 < calls < tokens:
        share = np.mean(np.array(places)[:, 1:] >= 2, axis=0)
        assert (share > 0).all()
        assert (share < 1).all()
