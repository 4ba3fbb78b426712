"""Every task on hand-made files in the published layout."""

import json
import re
from dataclasses import replace

import pytest
from published import WRITERS, mbpp_rows, write

from spec_cascades.checks import ConfigError
from spec_cascades.metrics import sandbox, scoring, text
from spec_cascades.tasks import registry
from spec_cascades.tasks.asked import ask
from spec_cascades.tasks.settings import NAMES, VIEWS, Task

SCORED = [n for n, d in registry.TASKS.items() if d.metric not in ("none", "bleu", "pass@1")]


def task(name, tmp_path, **more):
    """The task on its hand-made file, with another one as the training split where the task wants shots."""
    paths = {"path": write(name, tmp_path)}
    if registry.get(name).train and name != "mbpp":
        paths["shots_path"] = write(name, tmp_path, "train")
    return Task(name=name, **(paths | more))


def test_the_settings_know_every_task():
    assert set(NAMES) == {*registry.TASKS, "local"}
    assert set(WRITERS) == set(registry.TASKS)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", registry.TASKS)
def test_prompts_hold_the_question_and_never_its_answer(name, view, tmp_path):
    prompts, items = registry.prompts(task(name, tmp_path, view=view))
    assert len(prompts) == len(items) >= 2
    for prompt, item in zip(prompts, items, strict=True):
        own = prompt.head + prompt.context + prompt.tail
        assert item.question in own
        assert item.context in own
        assert own.count("{question}") == item.context.count("{question}")
        if view == "encdec":
            assert not prompt.tail, "trimming an encoder's input takes its end"
            assert not prompt.shots
        if item.target and name not in ("squad_v2",):
            assert item.target not in own
    assert (len(prompts[0].shots) > 0) == (view == "few_shot" and registry.get(name).shots > 0)


@pytest.mark.parametrize("name", registry.TASKS)
def test_shots_come_from_the_training_split_and_are_the_same_every_time(name, tmp_path):
    if registry.get(name).train is None:
        with pytest.raises(ConfigError, match="no training split"):
            registry.prompts(task(name, tmp_path, shots=1))
        return
    asked = task(name, tmp_path, shots=2)
    prompts, items = registry.prompts(asked)
    again, _ = registry.prompts(asked)
    assert prompts == again
    assert len({p.shots for p in prompts}) == 1
    assert len(set(prompts[0].shots)) == 2
    for shot in prompts[0].shots:
        assert shot.endswith(registry.get(name).few_shot.end)
        assert not any(i.question and i.question in shot for i in items)
    short, _ = registry.prompts(replace(asked, limit=1))
    assert short[0] == prompts[0]


def test_examples_of_the_evaluated_split_are_never_shown(tmp_path):
    path = write("gsm8k", tmp_path)
    (tmp_path / "copy.jsonl").write_text((tmp_path / "gsm8k.jsonl").read_text())
    with pytest.raises(ConfigError, match="must not be shown"):
        registry.prompts(Task(name="gsm8k", path=path, shots_path=path))
    with pytest.raises(ConfigError, match="0 examples to show"):
        registry.prompts(Task(name="gsm8k", path=path, shots_path=str(tmp_path / "copy.jsonl"), limit=1))
    with pytest.raises(ConfigError, match=r"task\.shots_path: missing.*question and answer.*shots=0"):
        registry.prompts(Task(name="gsm8k", path=path))


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", SCORED)
def test_right_answers_score_100_and_empty_ones_what_the_published_script_gives(name, view, tmp_path):
    asked = ask(task(name, tmp_path, view=view))
    _, items = registry.prompts(task_again(name, tmp_path, view))
    references = [e.reference for e in asked.examples]
    stop = registry.get(name).view(view).stop
    right = [f" {item.target}{end}" for item in items for end in ("", *(s + "and more, 7" for s in stop))]
    each = [r for r in references for _ in range(1 + len(stop))]
    scores = scoring.score(asked.metric, [asked.extract(a) for a in right], each)
    assert all(value == pytest.approx(100) for values in scores.values() for value in values)
    empty = scoring.score(asked.metric, [asked.extract("") for _ in references], references)
    expected = [100.0 if r == [] else 0.0 for r in references]
    assert all(values == expected for values in empty.values())


def task_again(name, tmp_path, view):
    folder = tmp_path / "again"
    folder.mkdir()
    return task(name, folder, view=view)


def test_translation_scores_100(tmp_path):
    asked = ask(task("wmt14_en_de", tmp_path))
    references = [e.reference for e in asked.examples]
    answers = [asked.extract(f" {r}\nEnglish: more") for r in references]
    assert text.score(answers, references).bleu == pytest.approx(100)
    assert asked.examples[1].source.endswith("English: It is late {question}.\nGerman:")


def passes(pairs):
    try:
        return scoring.check(pairs)
    except sandbox.SandboxError as error:
        pytest.skip(f"programs cannot be run here: {error}")


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", ["mbpp", "humaneval"])
def test_programs_pass_their_tests_and_empty_ones_fail(name, view, tmp_path):
    asked = ask(task(name, tmp_path, view=view, limit=2))
    _, items = registry.prompts(task_again(name, tmp_path, view))
    references = [e.reference for e in asked.examples]
    stop = registry.get(name).view(view).stop
    plain = [i.target + end for i in items[:1] for end in ("", *(s + " x = (" for s in stop))]
    whole = items[0].reference["before"] + items[0].target
    fenced = [f"Here it is:\n```python\n{whole}\n```\nIt adds."] if view == "chat" else []
    answers = [asked.extract(a) for a in plain + fenced]
    assert passes(scoring.programs(answers, [references[0]] * len(answers))) == [True] * len(answers)
    wrong = [asked.extract(a) for a in ("", "    pass", "raise SystemExit(0)", "import os\nos._exit(0)")]
    assert passes(scoring.programs(wrong, [references[0]] * len(wrong))) == [False] * len(wrong)


def test_mbpp_splits_and_its_standard_prompts(tmp_path):
    path = write("mbpp", tmp_path)
    count = lambda split: len(registry.prompts(Task(name="mbpp", path=path, split=split, shots=0))[1])
    assert [count(s) for s in ("test", "validation", "train", "prompt", "all")] == [500, 90, 374, 10, 974]
    prompts, items = registry.prompts(Task(name="mbpp", path=path))
    assert len(items) == 500
    assert [int(re.search(r"add (\d+) to", shot).group(1)) for shot in prompts[0].shots] == [2, 3, 4]
    assert prompts[0].text.count("[BEGIN]\n") == 4
    assert prompts[0].text.endswith("== 13\n[BEGIN]\n")
    assert "\r" not in prompts[0].text
    with pytest.raises(ConfigError, match=r"task\.split.*'dev' is not one of"):
        registry.prompts(Task(name="mbpp", path=path, split="dev"))


def test_spec_bench_kinds_are_splits(tmp_path):
    path = write("spec_bench", tmp_path)
    read = lambda split: [
        p.text for p in registry.prompts(Task(name="spec_bench", path=path, split=split))[0]
    ]
    assert read("translation") == ["Translate: Hallo\n"]
    assert read("chat") == ["Write a letter.\n"]
    assert len(read(None)) == len(read("all")) == 2
    assert ask(Task(name="spec_bench", path=path)).examples[0].reference is None


def test_other_layouts_read_alike(tmp_path):
    nested = write("squad_v2", tmp_path)
    rows = [
        {"context": i.context, "question": i.question, "answers": {"text": i.reference, "answer_start": []}}
        for i in registry.items(registry.get("squad_v2"), nested, None)
    ]
    (tmp_path / "flat.json").write_text(json.dumps({"data": rows}))
    (tmp_path / "flat.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "w.tsv").write_text(
        "The sun  rises.\tDie Sonne geht auf.\nIt is late {question}.\tEs ist spät.\n"
    )
    (tmp_path / "w.jsonl").write_text(
        '{"translation": {"en": "The sun  rises.", "de": "Die Sonne geht auf."}}\n'
        '{"en": "It is late {question}.", "de": "Es ist spät."}\n'
    )
    alike = {"squad_v2": (nested, "flat.json", "flat.jsonl")}
    alike["wmt14_en_de"] = (write("wmt14_en_de", tmp_path), "w.tsv", "w.jsonl")
    for name, (first, *others) in alike.items():
        expected = registry.items(registry.get(name), first, None)
        assert len(expected) == 2
        for other in others:
            assert registry.items(registry.get(name), str(tmp_path / other), None) == expected


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("gsm8k", '{"question": "q"}\n', ["row 0", "question and answer", "KeyError 'answer'"]),
        ("gsm8k", '{"question": "q", "answer": 3}\n', ["row 0", "expected a text, found '3'"]),
        ("gsm8k", '{"question": "q", "answer": "#### 1"}\n[1]\n', [":2", "expected an object"]),
        ("gsm8k", '{"question": "q", "answer": "many"}\n', ["row 0", "without a number"]),
        ("gsm8k", "{\n", [":1", "not JSON"]),
        ("gsm8k", "", ["no example"]),
        ("trivia_qa", '{"Data": [{"Question": "q", "Answer": {}}]}', ["row 0", "expected a text"]),
        ("trivia_qa", '{"Date": []}', ["a list, or one under 'Data'"]),
        ("natural_questions_open", '{"question": "q", "answer": "a"}\n', ["expected a list of texts"]),
        ("mbpp", json.dumps({**mbpp_rows([11])[0], "test_list": "x"}), ["expected a list of texts"]),
        ("wmt14_en_de", "one column\n", [":1", "en<TAB>de", "1 columns"]),
    ],
)
def test_a_file_in_another_layout_is_named(name, content, words, tmp_path):
    path = tmp_path / {"trivia_qa": "x.json", "wmt14_en_de": "x.tsv"}.get(name, "x.jsonl")
    path.write_text(content)
    with pytest.raises(ConfigError) as error:
        registry.prompts(Task(name=name, path=str(path), shots=0))
    assert str(path) in str(error.value)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_what_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match="no file"):
        registry.prompts(Task(name="gsm8k", path=str(tmp_path / "x.jsonl"), shots=0))
    with pytest.raises(ConfigError, match=r"task\.path: missing; give mbpp\.jsonl"):
        registry.prompts(Task(name="mbpp"))
    with pytest.raises(ConfigError, match="one split by itself"):
        registry.prompts(Task(name="gsm8k", path=write("gsm8k", tmp_path), split="train", shots=0))
    (tmp_path / "a.en").write_text("one\ntwo\n")
    (tmp_path / "a.de").write_text("eins\n")
    with pytest.raises(ConfigError, match=r"2 lines and its \.de 1"):
        registry.prompts(Task(name="wmt14_en_de", path=str(tmp_path / "a.en"), shots=0))


def test_lengths_and_stops_follow_the_view():
    assert registry.defaults(Task(name="wmt14_en_de", view="encdec"), False) == {
        "max_new_tokens": 80,
        "stop": [],
    }
    assert registry.defaults(Task(name="gsm8k"), False) == {"max_new_tokens": 256, "stop": ["\nQuestion:"]}
    assert registry.defaults(Task(name="gsm8k"), True) == {"max_new_tokens": 256, "stop": []}
    assert registry.get("xsum").lengths == (1024, 64)
    assert registry.get("cnn_dailymail").lengths == (2048, 128)


@pytest.mark.parametrize("name", registry.TASKS)
def test_the_made_up_example_has_the_layout(name):
    item = registry.made_up(registry.get(name))
    assert item.question or item.context
