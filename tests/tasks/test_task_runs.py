"""Tasks through a sweep, with an engine that knows the answers."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import FakeEngine
from published import write

from spec_cascades import merging, report, runlog, sweep
from spec_cascades.config import ConfigError, Decoding, Models, Sweep
from spec_cascades.metrics import scoring
from spec_cascades.tasks import registry
from spec_cascades.tasks.asked import ask
from spec_cascades.tasks.settings import Task

FAKES = Path(__file__).parents[1] / "fakes.py"


class Knowing(FakeEngine):
    """Answers with what the prompt's item shows; the drafter only every other time."""

    def __init__(self, task, chat=False):
        super().__init__("t", "d", "float32")
        prompts, items = registry.prompts(task, chat)
        self.known = {p.text: (n, i.target) for n, (p, i) in enumerate(zip(prompts, items, strict=True))}

    def _answer(self, text, d, seed):
        n, target = self.known[text]
        answer = super()._answer(text, d, seed)
        return answer._replace(text="" if d.method == "drafter" and n % 2 else f" {target}\n")


POINTS = [{"method": "target"}, {"method": "drafter"}, {"rule": "v3", "alpha": 0.5}]


def make(task, tmp_path, points=POINTS, **more):
    return Sweep(task, str(tmp_path / "out"), base=Decoding(temperature=1.0), points=points, **more)


@pytest.mark.parametrize("name", ["gsm8k", "xsum", "squad_v2", "trivia_qa", "web_questions", "cnn_dailymail"])
def test_records_hold_the_metric_and_every_example(name, tmp_path):
    task = Task(name=name, path=write(name, tmp_path), shots=0)
    records = {r["name"]: r for r in sweep.run(make(task, tmp_path, repeats=2), Knowing(task))}
    asked = ask(task)
    target, drafter, v3 = records["target"], records["drafter"], records["v3 alpha=0.5"]
    assert target["quality"]["metric"] == registry.get(name).metric
    assert target["quality"]["score"] == pytest.approx(100)
    half = [0.0 if n % 2 and e.reference != [] else 100.0 for n, e in enumerate(asked.examples)]
    assert drafter["per_example"][asked.metric] == pytest.approx(half)
    assert drafter["quality"]["score"] == pytest.approx(sum(half) / len(half))
    gap = drafter["against_target"]
    assert gap["score_difference"] == pytest.approx(sum(half) / len(half) - 100)
    assert (
        gap["score_difference_interval"][0] <= gap["score_difference"] <= gap["score_difference_interval"][1]
    )
    assert v3["against_target"]["score_difference"] == 0
    assert set(target["quality"]["scores"]) == set(target["per_example"])
    assert target["prompts"] == {
        "view": "few_shot",
        "shots": 0,
        "metric": registry.get(name).metric,
        "cut": registry.get(name).cut,
    }
    assert "truncated" not in target
    assert "rouge-score" in target["quality"].get("signature", "rouge-score")


def test_translation_keeps_the_records_of_pairs_and_adds_counts(tmp_path):
    task = Task(name="wmt14_en_de", path=write("wmt14_en_de", tmp_path), shots=0)
    named = sweep.run(make(task, tmp_path), Knowing(task))[0]
    assert named["quality"]["bleu"] == pytest.approx(100)
    assert len(named["per_example"]["bleu_counts"]) == 2
    (tmp_path / "p.tsv").write_text("a b\tA B\n")
    pairs = sweep.run(make(Task(str(tmp_path / "p.tsv")), tmp_path / "b"), FakeEngine("t", "d", "float32"))[0]
    assert pairs["quality"].keys() == named["quality"].keys()
    assert "per_example" not in pairs
    assert named.keys() - pairs.keys() == {"per_example", "prompts"}


def test_programs_run_only_where_that_is_allowed(tmp_path):
    task = Task(name="mbpp", path=write("mbpp", tmp_path), limit=4)
    config, ran = make(task, tmp_path, repeats=3), []

    def check(pairs):
        ran.extend(pairs)
        return ["return" in program for program, _ in pairs]

    engine = Knowing(task)
    unscored = sweep.run(config, engine)
    assert [r["quality"]["score"] for r in unscored] == [None] * 3
    assert scoring.NOT_RUN == unscored[0]["quality"]["why"]
    assert unscored[1]["against_target"]["score_difference"] is None
    asked = len(engine.asked)
    target, drafter, _ = sweep.run(config, engine, check)
    assert len(engine.asked) == asked, "answers that were kept are not asked for again"
    assert len(ran) == 3 * 3 * 4
    assert target["quality"]["scores"] == {"pass@1": 100, "pass@3": 100}
    assert drafter["quality"]["scores"] == {"pass@1": 50, "pass@3": 50}
    assert drafter["per_example"] == {"pass@1": [100, 0, 100, 0]}


def test_prompts_alone_have_no_score_and_a_report_all_the_same(tmp_path, capsys):
    task = Task(name="spec_bench", path=write("spec_bench", tmp_path))
    records = sweep.run(make(task, tmp_path), Knowing(task))
    assert records[0]["quality"]["why"] == scoring.NO_REFERENCE
    report.show(records)
    shown = capsys.readouterr().out
    assert "no score [95 %]" in shown
    assert "times as fast as the target alone; the data set has no reference answers" in shown
    written = report.write(records, tmp_path / "report")
    assert [p.name for p in written] == ["report.md", "report.csv"]


def test_reports_name_the_metric(tmp_path, capsys):
    task = Task(name="gsm8k", path=write("gsm8k", tmp_path), shots=0)
    records = sweep.run(make(task, tmp_path), Knowing(task))
    report.show(records)
    shown = capsys.readouterr().out
    assert "accuracy [95 %]" in shown
    assert "100.0 [100.0, 100.0]" in shown
    assert "within 1 accuracy of the target" in shown
    assert "BLEU" not in shown
    written = report.write(records, tmp_path / "report")
    assert "BLEU" not in written[0].read_text()
    assert "per_example" not in written[1].read_text()


def test_shards_together_are_the_whole(tmp_path):
    path = write("gsm8k", tmp_path)
    whole_task = Task(name="gsm8k", path=path, shots=0)
    points = [{"method": "target"}]
    engine, whole = Knowing(whole_task), make(whole_task, tmp_path, points, repeats=2)
    sweep.run(whole, engine)
    asked, scores = [], []
    for i in range(5):
        part = Knowing(whole_task)
        config = make(
            Task(name="gsm8k", path=path, shots=0, shard=f"{i}/5"), tmp_path / str(i), points, repeats=2
        )
        (record,) = sweep.run(config, part)
        asked += part.asked[1:]
        scores += record["per_example"]["accuracy"]
        assert record["seeds"]["first"] == 12 * i // 5
    folders = [tmp_path / str(i) / "out" for i in (3, 0, 4, 1, 2)]
    (merged,) = merging.merge(folders, tmp_path / "merged")
    assert runlog.read_records(tmp_path / "merged") == [merged]
    (undivided,) = runlog.read_records(tmp_path / "out")
    timed = ("latency", "compile_seconds", "against_target")
    assert {k: v for k, v in merged.items() if k not in timed} == {
        k: v for k, v in undivided.items() if k not in timed
    }
    assert sorted(asked) == sorted(engine.asked[1:])
    assert len(scores) == 12
    with pytest.raises(ValueError, match=r"task\.shard: 0/13 of 12 examples is empty"):
        ask(Task(name="gsm8k", path=path, shots=0, shard="0/13"))


def test_bleu_of_merged_shards_is_the_corpus_score(tmp_path):
    task = Task(name="wmt14_en_de", path=write("wmt14_en_de", tmp_path), shots=0)
    points = [{"method": "target"}, {"method": "drafter"}]
    whole = sweep.run(make(task, tmp_path, points), Knowing(task))
    folders = [tmp_path / str(i) / "out" for i in range(2)]
    for i, folder in enumerate(folders):
        sweep.run(make(replace(task, shard=f"{i}/2"), folder.parent, points), Knowing(task))
    merged = merging.merge(folders, tmp_path / "merged")
    assert [r["quality"] for r in merged] == [r["quality"] for r in whole]
    assert merged[1]["quality"]["bleu"] < merged[0]["quality"]["bleu"]
    assert merged[1]["against_target"]["name"] == "target"


def test_what_cannot_be_merged_is_refused(tmp_path):
    task = Task(name="gsm8k", path=write("gsm8k", tmp_path), shots=0)
    points = [{"method": "target"}]

    def shard(i, n=2, **more):
        config = make(replace(task, shard=f"{i}/{n}"), tmp_path / f"{i}-{n}-{len(more)}", points, **more)
        sweep.run(config, Knowing(task))
        return Path(config.output)

    first, second, third = shard(0), shard(1), shard(0, 3)
    other = shard(1, repeats=2)
    out = tmp_path / "merged"
    for folders, why in (
        ([], "no shard to merge"),
        ([first], "not all the parts"),
        ([first, first, second], "not all the parts"),
        ([third, second], "not all the parts"),
        ([first, other], "another configuration"),
        ([tmp_path], "no run in"),
    ):
        with pytest.raises(ConfigError, match=why):
            merging.merge(folders, out)
    log = second / runlog.EXAMPLES
    whole = log.read_bytes()
    log.write_bytes(b"\n".join(line for line in whole.split(b"\n") if b'"first": 3' not in line))
    with pytest.raises(ConfigError, match="1 of 6 answers are missing"):
        merging.merge([first, second], out)
    log.unlink()
    with pytest.raises(ConfigError, match="nothing of this run is done"):
        merging.merge([first, second], out)
    assert not out.exists()


def test_long_prompts_are_cut_counted_and_said(tmp_path):
    path = write("xsum", tmp_path)
    task = Task(name="xsum", path=path, view="encdec", max_input_tokens=4)
    engine = FakeEngine("t", "d", "float32")
    engine.encodes = True
    config = make(task, tmp_path, [{"method": "target"}])
    (record,) = sweep.run(config, engine)
    assert {text for text, _ in engine.asked} == {"summarize: Rain  fell.\nIt"}
    assert record["truncated"] == {"limit": 4, "examples": 2, "tokens": 8, "shots": 0, "longest": 8}
    assert sweep.run(config, engine)[0]["truncated"] == record["truncated"]


def test_a_model_takes_the_view_of_its_kind(tmp_path):
    task = Task(name="xsum", path=write("xsum", tmp_path))
    engine = FakeEngine("t", "d", "float32")
    engine.encodes = True
    with pytest.raises(ValueError, match=r"task\.view: 'few_shot'.*has an encoder: set task\.view=encdec"):
        sweep.run(make(task, tmp_path), engine)
    engine.encodes = False
    encoding = Task(name="xsum", path=task.path, view="encdec")
    with pytest.raises(ValueError, match=r"task\.view: 'encdec'.*set task\.view=few_shot"):
        sweep.run(make(encoding, tmp_path / "b"), engine)


def test_the_window_less_the_answer_bounds_a_prompt(tmp_path):
    task = Task(name="xsum", path=write("xsum", tmp_path))
    engine = FakeEngine("t", "d", "float32")
    plain = engine.model

    def narrow(role):
        model = plain(role)
        model.config.context = 20
        return model

    engine.model = narrow
    points = [{"method": "target", "max_new_tokens": 11}]
    (record,) = sweep.run(make(task, tmp_path, points), engine)
    assert record["truncated"]["limit"] == 9
    assert all(text.endswith("\nSummary in one sentence:") for text, _ in engine.asked)
    assert all(len(text.split()) == 9 for text, _ in engine.asked)


def test_cascades_over_whole_answers_do_without_stop_strings(tmp_path):
    task = Task(name="gsm8k", path=write("gsm8k", tmp_path), shots=0)
    asked = ask(task)
    stopping = Decoding(method="sequence", stop=["\nQuestion:"], alpha=0.5)
    assert sweep.settled(stopping, asked).stop == []
    assert sweep.settled(Decoding(stop=["x"], alpha=0.5), asked).stop == ["x"]


def test_chat_is_the_view_of_a_chat_model(tmp_path):
    task = Task(name="gsm8k", path=write("gsm8k", tmp_path))
    config = make(task, tmp_path, [{"method": "target"}], models=Models(chat=True))
    (record,) = sweep.run(config, Knowing(task, chat=True))
    assert record["prompts"]["view"] == "chat"
    assert record["prompts"]["shots"] == 0
    assert record["quality"]["score"] == 100


# ------------------------------------------------------------------------------------------
# As a process


def cli(*arguments, engine=False):
    head = [str(FAKES)] if engine else ["-m", "spec_cascades.cli"]
    return subprocess.run([sys.executable, *head, *map(str, arguments)], capture_output=True, text=True)


def test_evaluate_by_name_alone(tmp_path):
    path = write("squad_v2", tmp_path)
    done = cli("evaluate", "task=squad_v2", f"task.path={path}", f"output={tmp_path / 'out'}", engine=True)
    assert done.returncode == 0, done.stderr
    assert "F1 [95 %]" in done.stdout
    (record,) = runlog.read_records(tmp_path / "out")
    assert record["decoding"]["stop"] == ["\n"]
    assert record["decoding"]["max_new_tokens"] == 32
    assert len(record["per_example"]["em"]) == 2
    done = cli("evaluate", "task=squad", "output=x")
    assert done.returncode == 2
    assert "did you mean 'squad_v2'" in done.stderr


def test_code_is_not_run_unless_that_is_asked_for(tmp_path):
    path = write("mbpp", tmp_path)
    arguments = ["evaluate", "task=mbpp", f"task.path={path}", "task.limit=2", f"output={tmp_path / 'out'}"]
    done = cli(*arguments, engine=True)
    assert done.returncode == 0, done.stderr
    assert "add --allow-code-execution" in done.stderr
    assert runlog.read_records(tmp_path / "out")[0]["quality"]["score"] is None
    done = cli(*arguments, "--allow-code-execution", engine=True)
    if "cannot be run" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    assert runlog.read_records(tmp_path / "out")[0]["quality"]["score"] == 0
    assert "add --allow" not in done.stderr


def test_tasks_are_listed_and_shown(tmp_path):
    done = cli("tasks", "list")
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in registry.TASKS)
    path, train = write("gsm8k", tmp_path), write("gsm8k", tmp_path, "train")
    done = cli("tasks", "show", "gsm8k", "--path", path, "--shots-path", train)
    assert done.returncode == 0, done.stderr
    prompt = registry.prompts(Task(name="gsm8k", path=path, shots_path=train))[0][0].text
    assert prompt in done.stdout
    assert "solve: How many hens,  0?" in done.stdout
    done = cli("tasks", "show", "gsm")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "did you mean 'gsm8k'" in done.stderr


@pytest.mark.parametrize("name", registry.TASKS)
def test_every_task_is_shown_without_a_file(name, capsys):
    from spec_cascades import cli as command

    assert command.main(["tasks", "show", name]) == 0
    shown = capsys.readouterr().out
    assert registry.get(name).few_shot.parts(registry.made_up(registry.get(name))).text in shown
    assert registry.get(name).licence in shown


def test_listing_tasks_imports_no_model():
    code = (
        "import sys; from spec_cascades import cli; cli.main(['tasks', 'show', 'xsum'])\n"
        "heavy = {'jax', 'seqio', 'tensorflow', 'sacrebleu', 'rouge_score'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
