from made import run

from spec_cascades.report import contents, control, summary

V3 = ("v3 alpha=0.5", 30.0, 0.8, {"rule": "v3", "alpha": 0.5})
CUT = ("target min_p=0.5", 28.0, 1.0, {"method": "target", "min_p": 0.5})
OTHERS = [
    ("target min_p=0.1", 29.0, 1.0, {"method": "target", "min_p": 0.1}),
    ("target top_p=0.9", 27.0, 1.0, {"method": "target", "top_p": 0.9}),
    ("lossless", 20.0, 0.9, {"rule": "lossless"}),
    ("lossless min_p=0.5", 29.5, 0.85, {"rule": "lossless", "min_p": 0.5}),
    ("lossless top_p=0.9", 26.0, 0.85, {"rule": "lossless", "top_p": 0.9}),
    ("target greedy", 31.0, 1.0, {"method": "target", "temperature": 0.0}),
    ("lossless greedy", 31.0, 0.8, {"rule": "lossless", "temperature": 0.0}),
]


def claim(points):
    records = run(points)
    return control.claim([r for r in records if r["decoding"]["temperature"] > 0], records)


def test_every_cut_stands_for_both_sides():
    found = {(c.side, c.cut): c.record["name"] for c in claim([V3, CUT, *OTHERS]).controls}
    assert found == {
        ("lossless", "uncut"): "lossless",
        ("target alone", "min-p"): "target min_p=0.5",
        ("target alone", "top-p"): "target top_p=0.9",
        ("target alone", "greedy"): "target greedy",
        ("lossless", "min-p"): "lossless min_p=0.5",
        ("lossless", "top-p"): "lossless top_p=0.9",
        ("lossless", "greedy"): "lossless greedy",
    }
    assert claim([V3, CUT, *OTHERS]).missing == []


def test_what_was_not_run_is_said():
    assert claim([V3, CUT]).missing == [
        *("top-p for target alone", "greedy for target alone"),
        *("min-p for lossless", "top-p for lossless", "greedy for lossless"),
    ]
    assert "gives 80 % of the token rule's gain" in summary.lines(run([V3, CUT]))[1]
    (text,) = summary.controls(run([V3, CUT]))
    assert "target alone, min-p, 28.0; not run: top-p for target alone, greedy for target alone" in text
    (text,) = summary.controls(run([V3]))
    assert "v3 alpha=0.5 30.0 against the target uncut 20.0; not run: min-p for target alone" in text


def test_every_control_is_in_the_line():
    (text,) = summary.controls(run([V3, CUT, *OTHERS]))
    assert "lossless, min-p, 29.5" in text
    assert "target alone, greedy, 31.0" in text
    assert "not run" not in text


def test_no_gain_needs_no_control():
    assert summary.controls(run([("v3", 19.0, 0.8, {"rule": "v3"}), CUT])) == []


def test_a_filter_of_its_own_has_its_own_row():
    several = ("target both", 29.0, 1.0, {"method": "target", "min_p": 0.1, "top_k": 5})
    found = claim([V3, CUT, several])
    assert ("target alone", "several filters") in {(c.side, c.cut) for c in found.controls}
    assert {c.cut for c in found.controls if c.side == "lossless"} == {"uncut", *control.CUTS}


def test_no_claim_no_control():
    assert claim([OTHERS[2], CUT]) is None
    greedy = run([("v3", 30.0, 0.8, {"temperature": 0.0})])
    for record in greedy:
        record["decoding"] |= {"temperature": 0.0}
    assert control.claim(greedy, greedy) is None


def test_the_table_has_a_row_a_control_and_no_share_of_no_gain():
    records = run([V3, CUT])
    sheet = next(s for s in contents.of_group("k", "t", records, records) if s.key == "k-control")
    assert ["target alone", "min-p", "target min_p=0.5", "28.0", "+8.0", "80 %"] in sheet.rows
    assert ["lossless", "top-p", "not run", "", "", ""] in sheet.rows
    worse = run([("v3", 19.0, 0.8, {"rule": "v3"}), CUT])
    sheet = next(s for s in contents.of_group("k", "t", worse, worse) if s.key == "k-control")
    assert ["target alone", "min-p", "target min_p=0.5", "28.0", "+8.0", "no gain"] in sheet.rows
