"""Parts of a run, and the two numbers chosen on one and reported on the other."""

import json
from pathlib import Path

import pytest
from fakes import FakeEngine

from spec_cascades import runlog, splitting, sweep, tradeoffs
from spec_cascades.config import ConfigError, Decoding, Sweep, Task, plain

EVERYDAY = "embedded:en-de-everyday"
POINTS = [
    {"method": "target"},
    {"method": "target", "min_p": [0.2, 0.5]},
    {"method": "drafter"},
    {"rule": "lossless", "gamma": [2, 4]},
    {"rule": "v3", "alpha": [0.2, 0.8]},
]


def run(tmp_path, points=POINTS, **base):
    base = Decoding(**{"temperature": 1.0, **base})
    config = Sweep(Task(EVERYDAY, limit=12), str(tmp_path / "out"), base=base, points=points, repeats=2)
    sweep.run(config, FakeEngine("t", "d", "float32"))
    return Path(config.output)


def test_the_whole_as_a_part_is_what_the_run_wrote(tmp_path):
    folder = run(tmp_path)
    stored = [{k: v for k, v in r.items() if k != "seeds"} for r in runlog.read_records(folder)]
    assert plain(tradeoffs.part(folder, lambda i: True)) == stored


def test_a_part_is_the_run_of_its_examples(tmp_path):
    folder = run(tmp_path)
    lines = (Path(__file__).parents[1] / "spec_cascades/embedded/en_de_everyday.tsv").read_text().split("\n")
    odd = tmp_path / "odd.tsv"
    odd.write_text("\n".join([x for x in lines if x.strip()][1:12:2]) + "\n")
    alone = Sweep(
        Task(str(odd)), str(tmp_path / "alone"), base=Decoding(method="target", max_new_tokens=64), repeats=2
    )
    (straight,) = sweep.run(alone, FakeEngine("t", "d", "float32"))
    greedy = run(tmp_path / "greedy", [{"method": "target"}], temperature=0.0)
    (found,) = tradeoffs.part(greedy, lambda i: i % 2 == 1)
    same = ("quality", "rates", "target_calls", "latency", "answer_tokens", "n_examples", "gflops_per_answer")
    assert {key: found[key] for key in same} == {key: straight[key] for key in same}
    # Nothing of the even examples is left: their answers may be anything.
    log = folder / runlog.EXAMPLES
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    before = tradeoffs.part(folder, lambda i: i % 2 == 1)
    for row in rows:
        for answer in row.get("answers", []):
            if answer["index"] % 2 == 0:
                answer["text"], row["seconds"] = "no", 99.0
    log.write_text("\n".join(map(json.dumps, rows)) + "\n")
    assert tradeoffs.part(folder, lambda i: i % 2 == 1) == before


def test_a_batch_is_not_divided(tmp_path):
    folder = run(tmp_path, [{"method": "target"}], batch_size=4)
    with pytest.raises(ConfigError, match="batch of 4"):
        tradeoffs.part(folder, lambda i: i % 2 == 0)
    assert tradeoffs.part(folder, lambda i: i // 4 == 1)[0]["n_examples"] == 4


def test_an_empty_part_and_an_unfinished_run_are_refused(tmp_path):
    folder = run(tmp_path, POINTS[:1])
    with pytest.raises(ConfigError, match="no example of 12"):
        tradeoffs.part(folder, lambda i: False)
    log = folder / runlog.EXAMPLES
    log.write_bytes(log.read_bytes().rstrip(b"\n").rpartition(b"\n")[0] + b"\n")
    with pytest.raises(ConfigError, match="23 of 24 answers"):
        tradeoffs.part(folder, lambda i: True)
    with pytest.raises(ConfigError, match="no run"):
        tradeoffs.two_numbers(tmp_path)


def test_programs_are_not_run_again(tmp_path):
    folder = run(tmp_path, [{"method": "target"}])
    whole = splitting.read(folder)
    record = whole.records["target"]
    record["per_example"] = {"pass@1": [100.0, 0.0] * 6}
    coded = whole._replace(asked=whole.asked._replace(metric="pass@1", about={"metric": "pass@1"}))
    (made,) = splitting.part_of(coded, lambda i: i % 2 == 0, coded.points)
    assert made["quality"]["score"] == 100.0
    assert made["per_example"] == {"pass@1": [100.0] * 6}
    (made,) = splitting.part_of(coded, lambda i: i < 3, coded.points)
    assert made["quality"]["score"] == pytest.approx(200 / 3)


# ------------------------------------------------------------------------------------------
# The two numbers


def test_families_differ_in_alpha_only(tmp_path):
    numbers = tradeoffs.two_numbers(run(tmp_path))
    assert list(numbers) == ["temperature 1, batch 1"]
    names = [n.method for n in numbers["temperature 1, batch 1"]]
    assert names == [
        *("target alone", "target alone, truncated", "drafter"),
        *("lossless gamma=2", "lossless gamma=4", "v3"),
    ]


def record(name, seconds, score, rule="v3", **more):
    decoding = plain(Decoding(rule=rule, alpha=0.5, temperature=1.0, **more))
    against = {
        "relative_seconds": seconds,
        "relative_interval": [seconds, seconds],
        "bleu_difference": score - 40.0,
        "bleu_difference_interval": [score - 41, score - 39],
    }
    quality = {"bleu": score, "bleu_interval": [score - 1, score + 1]}
    return {"name": name, "decoding": decoding, "against_target": against, "quality": quality}


ALONE = record("target", 1.0, 40.0, method="target")


def chosen(*records, slack=0.0):
    """What is chosen of one family, reported under figures that nothing else has."""
    swapped = {r["name"]: r | {"n_examples": 7} for r in (ALONE, *records)}
    alone, only = tradeoffs._numbers([ALONE, *records], swapped, slack)
    assert alone.fastest["n_examples"] == alone.best["n_examples"] == 7
    assert all(r is None or r["n_examples"] == 7 for r in only[1:])
    return [r and r["name"] for r in only[1:]]


def test_the_fastest_is_at_the_targets_quality_and_the_best_within_its_time():
    fast, good = record("fast", 0.3, 30.0), record("good", 0.6, 41.0)
    slow, slower = record("slow", 1.2, 50.0), record("slower", 0.9, 40.0)
    assert chosen(fast, good, slow, slower) == ["good", "good"]
    assert chosen(fast, slow) == ["slow", "fast"]
    assert chosen(fast) == [None, "fast"]
    assert chosen(slow) == ["slow", None]
    assert chosen(fast, good, slack=10.0) == ["fast", "good"]
    assert chosen(fast, good, slack=9.9) == ["good", "good"]


def test_lossless_is_at_the_targets_quality_by_construction():
    assert chosen(record("l", 0.5, 39.0, rule="lossless")) == ["l", "l"]
    assert chosen(record("l", 0.5, 39.0, rule="lossless", min_p=0.5)) == [None, "l"]


def test_without_the_target_nothing_qualifies_and_the_table_says_none(tmp_path):
    numbers = tradeoffs.two_numbers(run(tmp_path, POINTS[2:]))
    assert {n[1:] for (group,) in [numbers.values()] for n in group} == {(None, None)}
    assert "| v3 | none | none |" in tradeoffs.table2(numbers)


def test_the_table_holds_the_reported_figures(tmp_path):
    numbers = tradeoffs.two_numbers(run(tmp_path), slack=100.0)
    (group,) = numbers.values()
    v3 = next(n for n in group if n.method == "v3")
    text = tradeoffs.table2(numbers)
    line = next(line for line in text.splitlines() if line.startswith("| v3 |"))
    against = v3.fastest["against_target"]
    assert v3.fastest["n_examples"] == 6
    assert f"{1 / against['relative_seconds']:.2f} [{1 / against['relative_interval'][1]:.2f}, " in line
    assert f"alpha {v3.fastest['decoding']['alpha']:g}" in line
    assert f"{v3.best['quality']['bleu']:.1f} (alpha" in line
    assert f"{against['bleu_difference']:+.1f} [" in line
    assert "temperature 1, batch 1: best BLEU within its time" in text


def test_batches_go_to_one_side_whole(tmp_path):
    (group,) = tradeoffs.two_numbers(run(tmp_path, POINTS[:1], batch_size=4)).values()
    assert group[0].fastest["n_examples"] == 4
