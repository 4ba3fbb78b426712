from made import made, run

from spec_cascades.report import contents, picks, summary

POINTS = [
    ("lossless", 20.0, 0.9, {"rule": "lossless"}),
    ("lossless gamma=6", 20.0, 0.85, {"rule": "lossless", "gamma": 6}),
    ("v3 alpha=0.2", 25.0, 0.8, {"rule": "v3", "alpha": 0.2}),
    ("v3 alpha=0.5", 19.5, 0.7, {"rule": "v3", "alpha": 0.5}),
    ("opt alpha=0", 18.5, 0.6, {"rule": "opt"}),
    ("opt alpha=1", 16.0, 0.5, {"rule": "opt", "alpha": 1.0}),
    ("chow", 10.0, 0.55, {"rule": "chow"}),
    ("bild", 30.0, 1.2, {"method": "bild"}),
    ("target min_p=0.5", 24.0, 0.95, {"method": "target", "min_p": 0.5}),
    ("drafter", 12.0, 0.1, {"method": "drafter"}),
]


def test_the_front_is_what_nothing_beats():
    assert [r["name"] for r in picks.front(run(POINTS))] == [
        *("drafter", "opt alpha=1", "opt alpha=0", "v3 alpha=0.5", "v3 alpha=0.2", "bild")
    ]


def test_each_demand_has_its_fastest_point():
    found = {p.demand: p.record["name"] for p in picks.picks(run(POINTS))}
    assert found == {
        "the target's very distribution": "lossless gamma=6",
        "the target's quality (at most 1 ROUGE-2 less)": "v3 alpha=0.5",
        "at most 2 ROUGE-2 less": "opt alpha=0",
        "at most 5 ROUGE-2 less": "opt alpha=1",
        "the best quality within the target's time": "v3 alpha=0.2",
    }


def test_no_point_is_said_and_no_target_gives_no_answer():
    lost = run([("chow", 10.0, 0.5, {"rule": "chow"})])
    assert [p.record and p.record["name"] for p in picks.picks(lost)] == [None, None, None, None, "target"]
    assert picks.picks(lost[1:]) == []


def test_without_a_score_only_time_and_lossless_are_answered():
    records = run([("lossless", None, 0.9, {"rule": "lossless"}), ("v3", None, 0.5, {})], unscored=True)
    assert [(p.demand, p.record["name"]) for p in picks.picks(records)] == [
        ("the target's very distribution", "lossless"),
        ("any answer, the quality unknown", "v3"),
    ]
    assert picks.front(records) == []
    keys = [s.key for s in contents.of_group("k", "t", records, records)]
    assert keys == ["k-take", "k-points", "k-acceptance"]


def test_each_rule_stands_at_its_best():
    sheet = next(s for s in contents.of_group("k", "t", run(POINTS), run(POINTS)) if s.key == "k-rules")
    rows = {row[0]: row for row in sheet.rows}
    assert "target alone" not in rows
    assert rows["v3"][1] == "v3 alpha=0.5"
    assert rows["v3"][2] == "1.43 [1.33, 1.54]"
    assert rows["v3"][4] == "v3 alpha=0.2"
    assert rows["chow"][1:4] == ["none", "", ""]
    assert rows["BiLD"][4] == "none"


def test_newer_times_are_columns_only_where_a_record_has_them():
    older, newer = made("v3", 20.0, 0.8), made("v3 alpha=1", 20.0, 0.8, alpha=1.0)
    newer["latency"]["p99"] = 0.25
    newer |= {"time_to_first_token": {"p50": 0.012, "p99": 0.034}, "gbytes_per_answer": 1.5}
    points = lambda records: next(
        s for s in contents.of_group("k", "t", records, records) if s.key == "k-points"
    )
    assert not {"p99", "ms to first token (p50)", "GB / answer"} & set(points([older]).headings)
    sheet = points([older, newer])
    cells = [dict(zip(sheet.headings, row, strict=True)) for row in sheet.rows]
    assert [c["p99"] for c in cells] == ["-", "250.0"]
    assert [c["ms to first token (p50)"] for c in cells] == ["-", "12.0"]
    assert [c["GB / answer"] for c in cells] == ["-", "1.50"]
    assert "ms / output token (p50)" not in sheet.headings


def test_what_is_lost_for_what_speed_is_said():
    (text,) = summary.trades(run(POINTS))
    assert text == (
        "Quality for speed: temperature 1, batch 1: 1.25 times as fast at +5.0 ROUGE-2 (v3 alpha=0.2), "
        "1.43 times as fast at -0.5 ROUGE-2 (v3 alpha=0.5), "
        "1.67 times as fast at -1.5 ROUGE-2 (opt alpha=0), "
        "2.00 times as fast at -4.0 ROUGE-2 (opt alpha=1), 10.00 times as fast at -8.0 ROUGE-2 (drafter)."
    )
    (text,) = summary.trades(run([("bild", 30.0, 1.2, {"method": "bild"})]))
    assert "nothing is faster than the target alone" in text


def test_speculation_that_is_cut_is_not_the_lossless_one():
    points = [
        ("lossless", 20.0, 0.9, {"rule": "lossless"}),
        ("lossless min_p=0.5", 25.0, 0.6, {"rule": "lossless", "min_p": 0.5}),
        ("opt", 20.0, 0.5, {"rule": "opt"}),
    ]
    (speed, *_) = summary.lines(run(points))
    assert "opt is the fastest" in speed
    assert "lossless 1.11 times" in speed
