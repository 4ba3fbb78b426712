"""The terminal and the page of a trace made by hand: everything is there, and nothing is obeyed."""

import io
import re
from html.parser import HTMLParser

import pytest
from rich.console import Console

from spec_cascades.trace import page, showing, terminal
from spec_cascades.trace.showing import Settings
from spec_cascades.trace.tokens import (
    BONUS,
    DRAFT,
    KEPT,
    RESIDUAL,
    TARGET,
    Choice,
    Numbers,
    Rejected,
    Token,
    Trace,
)

SETTINGS = Settings('Say "<b>" & \x1b[31mrun', "a/target", "a/drafter", "float32", 1.0, 3, 7, False)
NUMBERS = Numbers(0.5, 0.25, 0.375, 0.4, 0.2, 0.3, 0.45, 0.05, False)
EVIL = [" <script>alert(1)</script>", "\x1b[2J", '" onfocus="x', "\n", " end"]


def token(position, text, author, block=0, **changes):
    rejected = Rejected("draft</s>", NUMBERS._replace(r=True)) if author == RESIDUAL else None
    made = Token(
        text=text,
        piece=text or "</s>",
        id=position + 100,
        author=author,
        position=position,
        block=block,
        numbers=NUMBERS,
        uniform=0.125 if author in (DRAFT, KEPT, RESIDUAL) else None,
        rejected=rejected,
        drafter_best=(Choice("da&", 0.4), Choice("db", 0.004)),
        target_best=(Choice("ta", 0.6), Choice("tb", 0.3)),
    )
    return made._replace(**changes)


def trace(name, tokens, **changes):
    text = "".join(t.text for t in tokens)
    blocks = tokens[-1].block + 1
    made = Trace(name, text, "eos", tokens, blocks, target_calls=blocks, drafter_calls=9, disagreements=0)
    return made._replace(**changes)


@pytest.fixture
def traces():
    alone = trace("target", [token(i, text, TARGET, i) for i, text in enumerate(EVIL)], drafter_calls=0)
    authors = [DRAFT, KEPT, RESIDUAL, DRAFT, BONUS]
    cascade = [token(i, text, authors[i], i // 3) for i, text in enumerate(EVIL)]
    return [alone, trace("v3 alpha=0.5", [*cascade, token(5, "", BONUS, 2)], disagreements=1)]


class Reader(HTMLParser):
    """Tags with their attributes, and the tokens' own text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.tokens, self._open = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.tags.append((tag, given))
        if tag not in ("meta",):
            self._open.append((tag, given.get("class", "")))
        if tag == "span" and "tabindex" in given:
            self.tokens.append("")

    def handle_endtag(self, tag):
        assert self._open.pop()[0] == tag, "tags cross each other"

    def handle_data(self, data):
        if self.tokens and self._open and "token" in self._open[-1][1].split():
            self.tokens[-1] += data


def test_the_page_escapes_what_models_and_prompts_wrote(traces):
    text = page.page(traces, SETTINGS)
    assert "<script" not in text
    assert "\x1b" not in text
    read = Reader(text)
    assert not [a for tag, given in read.tags for a in given if a.startswith("on")]
    table = "div table thead tbody tr th td"
    known = f"html head meta title style body h1 h2 p ul li span s b main section {table}".split()
    assert {tag for tag, _ in read.tags} <= set(known)
    assert "&lt;script&gt;alert(1)" in text
    assert "␛[2J" in text


def test_the_page_is_one_file_that_asks_no_network(traces):
    text = page.page(traces, SETTINGS)
    for word in ("http", "src=", "href=", "url(", "@import", "<link"):
        assert word not in text


def test_every_token_can_be_reached_and_tells_its_figures(traces):
    read = Reader(page.page(traces, SETTINGS))
    ids = [given["id"] for _, given in read.tags if "id" in given]
    told = [given["aria-describedby"] for _, given in read.tags if "aria-describedby" in given]
    focused = [given for _, given in read.tags if given.get("tabindex") == "0"]
    n = sum(len(t.tokens) for t in traces)
    assert len(focused) == len(told) == n
    assert sorted(told) == sorted(set(ids))
    strip = lambda one: one.text.strip(" ").replace("\n", "␊").replace("\x1b", "␛") or "‹</s>›"
    marks = {KEPT: "*", RESIDUAL: "!", BONUS: "+"}
    expected = [strip(one) + marks.get(one.author, "") for t in traces for one in t.tokens]
    assert read.tokens[-n:] == expected


def test_facts_tell_q_p_tv_and_the_rule(traces):
    kept, residual = traces[1].tokens[1:3]
    facts = dict(showing.facts(kept, unlike=True))
    assert facts["q, p, TV"] == "0.40, 0.20, 0.30"
    assert facts["as sampled"] == "0.50, 0.25, 0.38"
    assert facts["rule"] == "r = 0 (keeps), pi = 0.45"
    assert facts["verdict"] == "u q = 0.06 < pi = 0.45"
    assert facts["P(reject) here"] == "0.05"
    assert facts["drafter's best"] == "da& 0.40, db 4e-03"
    facts = showing.facts(residual, unlike=False)
    assert ("rejected draft", "draft</s>") in facts
    assert ("rule", "r = 1 (defers), pi = 0.45") in facts
    assert [label for label, _ in facts].count("q, p, TV") == 2
    assert "as sampled" not in dict(facts)
    assert dict(facts)["verdict"].startswith("u q = 0.06 >= pi")
    bare = token(0, "x", BONUS, numbers=NUMBERS._replace(r=None))
    assert dict(showing.facts(bare, False))["rule"].startswith("no mask")
    assert "verdict" not in dict(showing.facts(bare, False))


def on_terminal(traces, width, colours):
    out = io.StringIO()
    system = "truecolor" if colours else None
    console = Console(file=out, force_terminal=colours, width=width, color_system=system)
    terminal.show(traces, SETTINGS, console)
    return out.getvalue()


def test_the_terminal_shows_colours_and_obeys_no_token(traces):
    text = on_terminal(traces, 130, True)
    assert "\x1b[2J" not in text
    assert "\x1b[31mrun" not in text
    assert len(set(re.findall(r"\x1b\[[0-9;]+m", text))) > 5
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    for words in (
        "target",
        "v3 alpha=0.5",
        "␛[2J*",
        "~draft</s>~",
        "end+",
        "‹</s>›+",
        "3 target calls and 9",
    ):
        assert words in plain
    assert "1 of 11 tokens differ" in plain


def test_marks_do_without_colours_and_narrow_terminals_stack(traces):
    text = on_terminal(traces, 130, False)
    assert "\x1b" not in text
    assert "␛[2J*" in text
    side = next(line for line in text.splitlines() if "v3 alpha=0.5" in line)
    assert "target" in side
    narrow = on_terminal(traces, 60, True)
    side = next(line for line in narrow.splitlines() if "v3 alpha=0.5" in line)
    assert "target" not in side
    assert max(map(len, re.sub(r"\x1b\[[0-9;]*m", "", narrow).splitlines())) <= 60


def test_contests_are_the_drafts_that_lossless_speculation_rejects(traces):
    found = showing.contests(traces)
    assert [(c.answer, c.token.position, c.draft) for c in found] == [
        ("v3 alpha=0.5", 1, "␛[2J"),
        ("v3 alpha=0.5", 2, "draft</s>"),
    ]
    assert found[0].outcome == "kept"
    assert found[1].outcome == '→ " onfocus="x'
    assert found[1].numbers.r is True


def test_a_line_of_the_answer_is_a_line_of_the_picture(traces):
    assert showing.parted(traces[0].tokens[3]) == ("", "␊", "\n")
    assert showing.parted(traces[0].tokens[4]) == (" ", "end", "")
    assert showing.parted(token(0, "  ", DRAFT)) == (" ", "␣", "")
    assert terminal.coloured(traces[0]).plain.endswith("␊\n end")


def test_blocks_are_parted_and_models_alone_are_not(traces):
    plain = terminal.coloured(traces[1]).plain
    assert plain.count("|") == 2
    assert "|" not in terminal.coloured(traces[0]).plain
    assert "|" not in terminal.coloured(traces[1]._replace(target_calls=1)).plain, "a token cascade's steps"


@pytest.mark.parametrize(
    ("reason", "word"),
    [("stop", "stop string"), ("length", "limit"), ("capacity", "window"), ("eos", "calls")],
)
def test_how_an_answer_ended_is_told(traces, reason, word):
    said = showing.calls(traces[1]._replace(finish_reason=reason))
    assert said.startswith("6 tokens from 3 target calls and 9 drafter calls")
    assert word in said
    assert showing.calls(traces[0]._replace(target_calls=1)).startswith("5 tokens from 1 target call")
