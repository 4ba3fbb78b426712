import csv
import io
import math
import subprocess
import sys

import pytest

from spec_cascades import report, runlog
from spec_cascades.config import Decoding, Sweep, Task, expand, plain
from spec_cascades.report import groups, summary, table


def record(name, bleu, seconds, against=None, **decoding):
    """A record as a sweep writes it, with the figures that the report reads."""
    d = Decoding(**{"temperature": 1.0, "alpha": 0.0, **decoding})
    drafted = d.method == "speculative"
    other = against or {"quality": {"bleu": bleu}, "latency": {"p50": seconds}}
    gap = bleu - other["quality"]["bleu"]
    return {
        "name": name,
        "n_examples": 130,
        "quality": {
            "bleu": bleu,
            "bleu_signature": "s",
            "chrf": bleu + 20,
            "bleu_interval": [bleu - 3, bleu + 3],
        },
        "rates": {"rejection_rate": 0.25 if drafted else None},
        "tokens_per_target_call": 2.5 if drafted else 1.0,
        "target_calls": 5.0,
        "drafter_calls": 20.0,
        "latency": {"p50": seconds, "mean": seconds},
        "answer_tokens": 12.0,
        "decoding": plain(d),
        "against_target": {
            "name": "target",
            "relative_seconds": seconds / other["latency"]["p50"],
            "bleu_difference": gap,
            "bleu_difference_interval": [gap - 2, gap + 2],
        },
    }


@pytest.fixture
def records():
    target = record("target", 22.0, 0.020, method="target")
    near = lambda *a, **k: record(*a, against=target, **k)
    greedy = record("greedy", 40.0, 0.020, method="target", temperature=0.0)
    return [
        target,
        near("target min_p=0.5", 33.0, 0.020, method="target", min_p=0.5),
        near("target min_p=0.1", 28.0, 0.020, method="target", min_p=0.1),
        near("drafter", 15.0, 0.005, method="drafter"),
        near("lossless", 22.5, 0.014, rule="lossless"),
        near("v3 alpha=0.5", 34.0, 0.012, rule="v3", alpha=0.5),
        near("v3 alpha=0.9", 26.0, 0.010, rule="v3", alpha=0.9),
        near("opt alpha=-inf", 22.0, 0.013, rule="opt", alpha=-math.inf),
        greedy,
        record("greedy v3", 30.0, 0.010, against=greedy, rule="v3", alpha=0.5, temperature=0.0),
    ]


def test_groups_are_what_may_be_compared(records):
    assert [len(g) for g in groups.split(records).values()] == [8, 2]
    assert groups.target_alone(records)["name"] == "target"
    assert groups.speed_up(records[4]) == pytest.approx(20 / 14)


def test_summary_says_what_the_records_say(records):
    speed, truncation = summary.lines(records)
    assert (
        "temperature 1, batch 1: v3 alpha=0.9 is the fastest within 1 BLEU of the target, 2.00 times" in speed
    )
    assert "BLEU 26.0 against 22.0, difference +2.0 to +6.0" in speed
    assert "lossless 1.43 times" in speed
    assert "greedy, batch 1: no point is within 1 BLEU of the target alone (40.0)" in speed
    assert "cut by min_p=0.5, scores 33.0 BLEU" in truncation
    assert "v3 alpha=0.5, 34.0" in truncation
    assert "92 % of the token rule's gain" in truncation


def test_summary_follows_the_records(records):
    slower = [r for r in records if r["name"] not in ("v3 alpha=0.9", "opt alpha=-inf", "lossless")]
    assert "v3 alpha=0.5 is the fastest within 1 BLEU of the target, 1.67 times" in summary.lines(slower)[0]
    records[1]["quality"]["bleu"] = 35.0
    assert "truncation by itself gives all" in summary.lines(records)[1]
    records[1]["quality"]["bleu"] = 21.0
    assert "truncation by itself gives none" in summary.lines(records)[1]
    records[5]["quality"]["bleu"] = records[6]["quality"]["bleu"] = 20.0
    assert "gains nothing here" in summary.lines(records)[1]


def test_summary_without_target_or_control(records):
    speed, truncation = summary.lines([records[5]])
    assert "nothing to compare with" in speed
    assert "no control" in truncation


def test_csv_holds_every_figure_unrounded(records):
    rows = list(csv.DictReader(io.StringIO(table.csv_text(records))))
    assert len(rows) == len(records)
    assert float(rows[4]["against_target.relative_seconds"]) == groups.against(records[4], "relative_seconds")
    assert rows[7]["decoding.alpha"] == "-inf"
    assert rows[0]["rates.rejection_rate"] == ""


def test_markdown_has_a_row_a_record_and_a_dash_for_nothing(records):
    text = table.markdown(records)
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")]
    assert {len(row) for row in rows} == {len(table.COLUMNS)}
    assert sum(row[0].startswith("| target") for row in rows) == 3
    assert next(row for row in rows if row[0] == "| target")[4] == "-"


def test_redrawn_from_the_file_alone(records, tmp_path):
    pytest.importorskip("matplotlib", reason="the plot extra is not installed")
    runlog.write_records(tmp_path / "r.jsonl", records)
    paths = report.write(runlog.read_records(tmp_path / "r.jsonl"), tmp_path / "out")
    assert [p.name for p in paths] == ["report.md", "report.csv", "report.png"]
    assert (tmp_path / "out" / "report.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "out" / "report.png").stat().st_size > 20_000
    again = report.write(runlog.read_records(tmp_path / "r.jsonl"), tmp_path / "again")
    assert [p.read_bytes() for p in paths] == [p.read_bytes() for p in again]


def test_lines_run_along_alpha(records):
    plot = pytest.importorskip("spec_cascades.report.plot", reason="the plot extra is not installed")
    series = plot._series(list(reversed(records[:8])))
    assert [r["name"] for r in series["v3"]] == ["v3 alpha=0.5", "v3 alpha=0.9"]
    assert [r["name"] for r in series[plot.TRUNCATED]] == ["target min_p=0.1", "target min_p=0.5"]
    assert len(series["target alone"]) == len(series["drafter alone"]) == 1


def test_every_rule_has_a_colour_of_its_own():
    plot = pytest.importorskip("spec_cascades.report.plot", reason="the plot extra is not installed")
    from spec_cascades.config import RULES

    assert set(plot.COLOURS) == set(RULES)
    assert len(set(plot.COLOURS.values())) == len(RULES)


def test_no_plot_without_matplotlib(records, tmp_path):
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from pathlib import Path; from spec_cascades import report, runlog\n"
        "print(len(report.write(runlog.read_records(Path(sys.argv[1])), Path(sys.argv[2]))))"
    )
    runlog.write_records(tmp_path / "r.jsonl", records)
    arguments = [sys.executable, "-c", code, tmp_path / "r.jsonl", tmp_path / "out"]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "no plot: matplotlib is not installed" in done.stdout
    assert done.stdout.endswith("\n2\n")
    assert "![" not in (tmp_path / "out" / "report.md").read_text()


def test_what_is_no_record_is_refused(tmp_path):
    (tmp_path / "r.jsonl").write_text('{"name": "x"}\n')
    with pytest.raises(ValueError, match=r"r\.jsonl:1: not a record"):
        runlog.read_records(tmp_path / "r.jsonl")
    (tmp_path / "r.jsonl").write_text("{")
    with pytest.raises(ValueError, match=r"r\.jsonl:1"):
        runlog.read_records(tmp_path / "r.jsonl")


def test_names_of_a_real_sweep_fit_the_series():
    points = expand(Sweep(Task("x"), "o", points=[{"method": "target", "min_p": [0.0, 0.1]}, {"rule": "v3"}]))
    assert [p.name for p in points] == ["target", "target min_p=0.1", "v3"]


def test_a_wide_interval_does_not_excuse_a_loss(records):
    """Two BLEU below the target are not its quality, though the interval reaches zero."""
    lost = next(r for r in records if r["name"] == "v3 alpha=0.5")
    lost["against_target"] |= {"bleu_difference": -2.0, "bleu_difference_interval": [-5.0, 1.0]}
    assert not summary.keeps_quality(lost)
    lost["against_target"] |= {"bleu_difference": -0.9}
    assert summary.keeps_quality(lost)
