import json
import re

import pytest

from spec_cascades.config import EMBEDDED_TASK, ConfigError, Task
from spec_cascades.tasks.examples import EMBEDDED, Prompt, fingerprint, read, read_prompts


def test_tsv_and_jsonl_read_alike(tmp_path):
    pairs = [("Good day.", "Guten Tag."), ("Thanks.", "Danke.")]
    (tmp_path / "a.tsv").write_text("".join(f"{a}\t{b}\r\n" for a, b in pairs) + "\n")
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"input": a, "target": b}) for a, b in pairs))
    assert read(Task(str(tmp_path / "a.tsv"))) == read(Task(str(tmp_path / "a.jsonl"))) == pairs


def test_join_limit_and_prefix(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("a\tA\nb\tB\nc\tC\nd\tD\ne\tE\n")
    assert read(Task(str(path), join=2, prefix="t: ")) == [("t: a b", "A B"), ("t: c d", "C D")]
    assert read(Task(str(path), join=2, limit=1)) == [("a b", "A B")]
    with pytest.raises(ConfigError, match="too few"):
        read(Task(str(path), join=6))


@pytest.mark.parametrize(
    ("name", "text", "where"),
    [
        ("a.tsv", "a\tA\nonly one column\n", "a.tsv:2"),
        ("a.tsv", "a\tA\n\nb\tB\tC\n", "a.tsv:3"),
        ("a.tsv", "a\t \n", "a.tsv:1"),
        ("a.jsonl", '{"input": "a", "target": "b"}\n{"input": "a"}\n', "a.jsonl:2"),
        ("a.jsonl", '{"input": \n', "a.jsonl:1"),
        ("a.jsonl", '["a"]\n', "a.jsonl:1"),
    ],
)
def test_a_malformed_line_is_named(tmp_path, name, text, where):
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=re.escape(where)):
        read(Task(str(tmp_path / name)))


def test_absent_files_and_names_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.tsv"):
        read(Task("nowhere.tsv"))
    with pytest.raises(ConfigError, match="en-de-everyday"):
        read(Task("embedded:unknown"))
    (tmp_path / "latin.tsv").write_bytes("f\xfcr\tfor\n".encode("latin-1"))
    with pytest.raises(ConfigError, match="UTF-8"):
        read(Task(str(tmp_path / "latin.tsv")))


def test_prompts(tmp_path):
    (tmp_path / "p.txt").write_text("one\n\ntwo\n")
    assert read_prompts(tmp_path / "p.txt") == [Prompt("one", {}), Prompt("two", {})]
    (tmp_path / "p.jsonl").write_text('{"input": "one"}\n{"x": 1}\n')
    with pytest.raises(ConfigError, match=r"p\.jsonl:2.*input"):
        read_prompts(tmp_path / "p.jsonl")


def test_the_embedded_pairs_are_whole():
    examples = read(Task(EMBEDDED_TASK))
    assert len(examples) >= 120
    assert len({e.source for e in examples}) == len(examples)
    sentences = lambda text: len(re.findall(r"[.!?]", text))
    assert all(sentences(e.source) == sentences(e.reference) for e in examples)
    assert {sentences(e.source) for e in examples} == {1, 2, 3, 4}
    assert not EMBEDDED[EMBEDDED_TASK].read_bytes().startswith(b"#")


def test_fingerprint_sees_every_change(tmp_path):
    examples = read(Task(EMBEDDED_TASK))
    assert fingerprint(examples) == fingerprint(list(examples))
    assert fingerprint(examples) != fingerprint(examples[1:])
    assert fingerprint(examples) != fingerprint([*examples[:-1], examples[-1]._replace(reference="x")])
