from spec_cascades.report import sheets
from spec_cascades.report.sheets import Sheet

NASTY = "<script>|50 % & $x_1$ #{a}\\b~^\nc"


def test_markdown_keeps_a_cell_a_cell():
    text = sheets.markdown(Sheet("k", "c", ("a", "b"), [[NASTY, "1"]], "a | note"))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert [row.replace("\\|", "").count("|") for row in rows] == [3, 3, 3]
    assert "<script>" not in text


def test_latex_is_escaped():
    text = sheets.latex(Sheet("k", "100 % of A_B", ("a", "b"), [[NASTY, "1"]]))
    assert (
        r"\textless{}script\textgreater{}|50 \% \& \$x\_1\$ \#\{a\}\textbackslash{}b\textasciitilde{}" in text
    )
    assert r"\caption{100 \% of A\_B.}" in text
    body = text.split(r"\midrule")[1].split(r"\bottomrule")[0]
    assert body.strip().endswith(r"& 1 \\")
    assert body.replace(r"\&", "").count("&") == 1


def test_latex_sets_a_minus_before_numbers_only():
    text = sheets.latex(
        Sheet("k", "c", ("a", "b"), [["target min-p 0.1-0.2", "-1.5 [-3.0, +0.1]"], ["x", "-"]])
    )
    assert r"target min-p 0.1-0.2 & $-$1.5 [$-$3.0, +0.1] \\" in text
    assert r"x & - \\" in text
