"""The tables people read are those of the records in the repository."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fakes import FakeEngine

from spec_cascades import costs, runlog, sweep
from spec_cascades.config import Decoding, Sweep, Task

ROOT = Path(__file__).parents[1]


def test_every_table_comes_from_its_records():
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "readme.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (ROOT / "docs" / "records" / "quickstart" / "records.jsonl").exists()


def test_the_documents_name_no_foreign_path():
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*"), *ROOT.glob("configs/**/*")]:
        if path.is_file() and path.suffix in (".md", ".jsonl", ".yaml", ".csv"):
            assert not re.search(r"[\"' =](/\w+)+/", path.read_text(encoding="utf-8")), path


# ------------------------------------------------------------------------------------------
# What answers cost


def batch(seconds, first, tokens, read=None, calls=(3, 5)):
    rows = [{"tokens": [1] * n, "target_calls": calls[0] * n, "drafter_calls": calls[1]} for n in tokens]
    return {"repeat": 0, "seconds": seconds, "first_seconds": first, "bytes_per_call": read, "answers": rows}


def test_time_to_the_first_token_and_per_token_behind_it():
    found = costs.first_token([batch(1.0, [0.2], [5]), batch(2.0, [0.5, 0.5], [4, 1])])
    assert found["time_to_first_token"]["mean"] == pytest.approx(0.4)
    assert found["time_to_first_token"]["p50"] == 0.5
    # The answer of one token has none behind it.
    assert found["time_per_output_token"]["mean"] == pytest.approx((0.8 / 4 + 1.5 / 3) / 2)
    assert list(found["time_per_output_token"]) == ["mean", "p50", "p90", "p99"]
    assert costs.first_token([batch(1.0, [0.2], [5]), batch(9.0, None, [5]) | {"repeat": 1}])[
        "time_to_first_token"
    ]["p99"] == pytest.approx(0.2)
    assert costs.first_token([batch(1.0, [0.2], [5]), batch(9.0, None, [5])]) == {}
    assert "time_per_output_token" not in costs.first_token([batch(1.0, [0.2], [1])])


def test_percentiles_are_of_answers():
    found = costs.latency([batch(3.0, None, [1] * 98), batch(9.0, None, [1, 1])], 100)
    assert (found["p50"], found["p90"]) == (3.0, 3.0)
    assert found["p99"] == pytest.approx(np.quantile([3.0] * 98 + [9.0] * 2, 0.99))
    assert found["total"] == 12.0
    assert costs.lengths([batch(1.0, None, [2, 4, 9])])["p50"] == 4.0


def test_traffic_is_calls_times_what_a_call_reads():
    read = {"target": 4e9, "drafter": 1e9}
    # Rows share calls: those of the row of two tokens, 6 of the target and 5 of the drafter.
    assert costs.traffic([batch(1.0, None, [1, 2], read)]) == {"gbytes_per_answer": (6 * 4 + 5) / 2}
    assert costs.traffic([batch(1.0, None, [1], read), batch(1.0, None, [1])]) == {}


def test_an_older_log_lacks_figures_and_has_no_zeros(tmp_path):
    config = Sweep(
        Task("embedded:en-de-everyday", limit=4),
        str(tmp_path / "out"),
        base=Decoding(alpha=0.5),
        points=[{"method": "target"}, {}],
    )
    told = sweep.run(config, FakeEngine("t", "d", "float32"))
    assert told[0]["time_to_first_token"] == {"mean": 0.004, "p50": 0.004, "p90": 0.004, "p99": 0.004}
    assert told[1]["gbytes_per_answer"] > 0
    log = tmp_path / "out" / runlog.EXAMPLES
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    older = [{k: v for k, v in r.items() if k not in ("first_seconds", "bytes_per_call")} for r in rows]
    new = ("time_to_first_token", "time_per_output_token", "gbytes_per_answer")
    # The run of an earlier version, broken off after four batches and gone on with: not all of it is told.
    for kept in (older, older[:-4]):
        log.write_text("\n".join(map(json.dumps, kept)) + "\n")
        again = sweep.run(config, FakeEngine("t", "d", "float32"))
        assert not {key for record in again for key in new if key in record}
        assert [r["latency"]["p99"] for r in again] == [r["latency"]["p99"] for r in told]
        assert [r["quality"] for r in again] == [r["quality"] for r in told]


def test_a_cascade_of_whole_answers_shows_each_when_it_is_final():
    info = {"deferred": [True, False], "waiting_seconds": 0.7, "drafter_seconds": 0.3}
    assert sweep._first(info) == [0.7, 0.3]
