import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from made import run

from spec_cascades import report, runlog
from spec_cascades.config import Task
from spec_cascades.report import book, pictures, runs
from spec_cascades.report import page as pages

RECORDS = Path(__file__).parents[2] / "docs" / "records"
POINTS = [
    ("<script>alert(1)</script> \"'&", 21.0, 0.8, {"rule": "v3", "alpha": 0.5}),
    ("lossless", 20.0, 0.9, {"rule": "lossless"}),
    ("$\\alpha_{", 20.5, 0.7, {"rule": "opt", "alpha": 0.1}),
]
VOID = {"meta", "img", "br", "link", "hr", "input"}


class Reader(HTMLParser):
    """Tags with their attributes, and that each is closed in its turn."""

    def __init__(self, text):
        super().__init__()
        self.found, self.open = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def all(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


def told(records):
    found = runs.parts(records)
    return book.book(found, runs.settings(found))


def html(records, drawn=None, command="spec-cascades report a.jsonl"):
    return pages.html(told(records), drawn, command)


@pytest.fixture
def two_tasks():
    return run(POINTS) + run(POINTS, task=Task(name="xsum"), file="b&<b>.jsonl")


def test_nothing_a_user_names_is_a_tag(two_tasks):
    text = html(two_tasks, command="spec-cascades report '<img src=x>'")
    read = Reader(text)
    assert read.open == []
    assert not {"script", "b"} & {tag for tag, _ in read.found}
    assert read.all("img") == []
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


def test_the_page_stands_alone(two_tasks, tmp_path):
    pytest.importorskip("matplotlib", reason="the plot extra is not installed")
    (tmp_path / "p.png").write_bytes(b"\x89PNG")
    drawn = [
        pictures.Picture(tmp_path / "p.png", p.title, "c", "what is seen", 2) for p in told(two_tasks).parts
    ]
    text = html(two_tasks, drawn)
    read = Reader(text)
    assert len(read.all("img")) == 2
    assert all(i["src"].startswith("data:image/png;base64,iVBOR") and i["alt"] for i in read.all("img"))
    assert not {"script", "link", "iframe", "object"} & {tag for tag, _ in read.found}
    assert not re.search(r"https?:|@import|url\(|//", re.sub(r"base64,[^\"]*", "", text))


def test_it_can_be_found_and_read_aloud(two_tasks):
    read = Reader(html(two_tasks))
    ids = [attributes["id"] for _, attributes in read.found if "id" in attributes]
    assert len(set(ids)) == len(ids)
    wanted = [a["href"].removeprefix("#") for a in read.all("a")]
    labels = [a["aria-labelledby"] for _, a in read.found if "aria-labelledby" in a]
    assert wanted
    assert set(wanted) | set(labels) <= set(ids)
    assert len(read.all("caption")) == len(read.all("table")) >= 10
    assert all(th.get("scope") in ("col", "row") for th in read.all("th"))
    assert read.all("html") == [{"lang": "en"}]


def test_numbers_name_their_file_and_point(two_tasks):
    text = html(two_tasks)
    assert "b&amp;&lt;b&gt;.jsonl" in text
    assert "record 3" in text, "over tasks the line stands behind the point"
    assert "seed + repeat * n + example" in text
    assert "jax 0.10.2" in text
    assert "<code>spec-cascades report a.jsonl</code>" in text


def test_over_tasks_only_with_several():
    assert 'id="over"' not in html(run(POINTS))
    assert "one task only" in html(run(POINTS))
    assert 'id="over"' in html(run(POINTS) + run(POINTS, task=Task(name="xsum"), file="b.jsonl"))


def test_without_matplotlib_the_page_says_so(two_tasks):
    assert "matplotlib is not installed" in html(two_tasks, None)
    assert "matplotlib is not installed" not in html(two_tasks, [])


def test_records_without_a_score_have_rates_and_latency(tmp_path):
    pytest.importorskip("matplotlib", reason="the plot extra is not installed")
    points = [(name, None, time, d) for name, _, time, d in POINTS]
    records = run(points, unscored=True, task=Task(name="spec_bench"))
    paths = report.publish(records, tmp_path, "spec-cascades report x")
    names = {p.name for p in paths}
    assert names == {
        *("report.md", "report.csv", "report.tex", "report.html"),
        *("report_latency.png", "report_acceptance.png"),
    }
    text = (tmp_path / "report.html").read_text()
    assert "no reference" in text
    assert "Pareto" not in text


BLOCKED = (
    "import sys; sys.modules['jax'] = None; sys.modules['jaxlib'] = None\n"
    "from spec_cascades import cli; sys.exit(cli.main(sys.argv[1:]))"
)


def command(*arguments, code=BLOCKED):
    return subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True)


def test_every_figure_is_redrawn_from_records_where_jax_cannot_be_imported(tmp_path):
    pytest.importorskip("matplotlib", reason="the plot extra is not installed")
    done = command("report", RECORDS / "quickstart" / "records.jsonl", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    kinds = ["report", *(f"report_{kind}" for kind in pictures.CAPTIONS if kind)]
    for kind in kinds:
        assert (tmp_path / f"{kind}.png").stat().st_size > 20_000, kind
    text = (tmp_path / "report.html").read_text()
    assert text.count("data:image/png;base64,") == len(kinds) == 5
    assert "v3 alpha=0.8" in text


def test_several_tasks_from_the_command_line(tmp_path):
    pytest.importorskip("matplotlib", reason="the plot extra is not installed")
    card = RECORDS / "card"
    done = command("report", card / "multi30k.jsonl", card / "tatoeba.jsonl", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "lossless is the steadiest over 2 tasks" in done.stdout
    names = {p.name for p in tmp_path.iterdir()}
    assert {"report.html", "report_multi30k.png", "report_tatoeba-en-de-test_pareto.png"} <= names
    assert any(name.startswith("report_tasks") for name in names)


def test_what_cannot_be_compared_is_one_line_and_2(tmp_path):
    runlog.write_records(tmp_path / "a.jsonl", run(POINTS))
    runlog.write_records(tmp_path / "b.jsonl", run(POINTS))
    both = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for arguments, words in (
        ([*both, "--out", tmp_path / "out"], "both hold temperature 1, batch 1 of en-de-everyday"),
        (both, "--out: missing"),
    ):
        done = command("report", *arguments)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert words in done.stderr
        assert not (tmp_path / "out").exists()
