import pytest
from made import run

pytest.importorskip("matplotlib", reason="the plot extra is not installed")

from matplotlib.text import Text

from spec_cascades.report import figures, labels, plot, steady


def boxes(figure, axis):
    """Of the texts alone, without the lines to their points."""
    renderer = figure.canvas.get_renderer()
    return [Text.get_window_extent(text, renderer) for text in axis.texts]


def crowd():
    """Points on one spot, whose labels would all cover each other."""
    figure, (axis,) = plot.canvas([1], 4.6)
    axis.plot([0, 1], [0, 1], "o")
    axis.plot([0.5], [0.5], "o")
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    wanted = [labels.Label(f"rule α 0.{i}", 0.5 + i / 1000, 0.5, "black") for i in range(6)]
    wanted += [labels.Label("at the corner", 1, 1, "black")]
    labels.place(axis, wanted, [line.get_xydata() for line in axis.lines])
    figure.draw_without_rendering()
    return figure, axis


def test_labels_keep_out_of_one_anothers_way():
    figure, axis = crowd()
    found = boxes(figure, axis)
    assert len(found) == 7
    overlaps = [(a, b) for i, a in enumerate(found) for b in found[:i] if a.overlaps(b)]
    assert not overlaps


def test_labels_stay_inside_and_off_the_markers():
    figure, axis = crowd()
    window = axis.get_window_extent()
    for box in boxes(figure, axis):
        assert window.x0 <= box.x0
        assert box.x1 <= window.x1
        assert box.y1 <= window.y1
        assert not box.contains(*axis.transData.transform((0.5, 0.5)))


def points(n):
    return [(f"v3 alpha={i}", 20.0 + i, 0.9 - 0.1 * i, {"rule": "v3", "alpha": float(i)}) for i in range(n)]


def test_a_figure_of_many_groups_is_two_panels_wide():
    figure, axes = plot.canvas([3, 9, 2, 4, 1], 0.3)
    assert len(axes) == len(figure.axes) == 5
    assert len({axis.get_gridspec().ncols for axis in axes}) == 1
    assert axes[0].get_gridspec().ncols == 2


def test_gammas_of_one_rule_look_different():
    lines = [("v3", 21.0, 0.8, {"rule": "v3", "gamma": g}) for g in (1, 3, 5, 7)]
    series = plot._series(run(lines))
    looks = [tuple(sorted(plot._style(name, line[0]).items())) for name, line in series.items()]
    assert len(series) == 5
    assert len(set(looks)) == 5


def test_latency_shows_what_is_known(tmp_path):
    records = run(points(3))
    figures.draw_latency(records, tmp_path / "old.png")
    for record in records:
        record["latency"]["p99"] = record["latency"]["p90"] * 2
        record["time_to_first_token"] = {"p50": 0.01}
    figures.draw_latency(records, tmp_path / "new.png")
    assert (tmp_path / "old.png").read_bytes() != (tmp_path / "new.png").read_bytes()


def test_tasks_are_drawn_from_standings(tmp_path):
    tasks = {"a": run(points(3)), "b": run(points(2))}
    ranked, _ = steady.standings(tasks)
    figures.draw_tasks(ranked, tmp_path / "t.png")
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")
