"""The tasks as seqio has them, and the names and layouts of TensorFlow Datasets. No network."""

import functools
import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest
from published import write

from spec_cascades.checks import ConfigError
from spec_cascades.tasks import registry
from spec_cascades.tasks.settings import Task

seqio = pytest.importorskip("seqio", reason="seqio tasks need the extra [data]")
tfds = pytest.importorskip("tensorflow_datasets", reason="seqio tasks need the extra [data]")
seqio_tasks = pytest.importorskip("spec_cascades.tasks.seqio_tasks", reason="needs the extra [data]")

ON_TFDS = [name for name, data in registry.TASKS.items() if data.tfds]


@pytest.fixture(scope="module")
def vocabulary():
    """A toy vocabulary: of what a test asks, every text has pieces in it."""
    model = Path(seqio.__file__).parent / "test_data" / "sentencepiece" / "sentencepiece.model"
    return seqio.SentencePieceVocabulary(str(model))


def registered():
    """Whether every task and mixture is in seqio's registries."""
    names = [f"spec_cascades_{name}{view}" for name in registry.TASKS for view in ("", "_few_shot")]
    return {*names} <= {*seqio.TaskRegistry.names()} and {*seqio_tasks.MIXTURES} <= {
        *seqio.MixtureRegistry.names()
    }


def test_importing_registers_every_task_and_mixture():
    assert registered()
    code = (
        "import seqio, spec_cascades.tasks\n"
        "assert len([n for n in seqio.TaskRegistry.names() if n.startswith('spec_cascades_')]) == "
        f"{2 * len(registry.TASKS)}\n"
        f"assert set({sorted(seqio_tasks.MIXTURES)}) <= set(seqio.MixtureRegistry.names())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_without_seqio_the_import_stays_light():
    code = "import sys, spec_cascades.tasks; sys.exit('seqio' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def dataset(task, split, lengths=None):
    return list(task.get_dataset(lengths, split=split, shuffle=False).as_numpy_iterator())


@pytest.mark.parametrize("view", seqio_tasks.VIEWS)
@pytest.mark.parametrize("name", registry.TASKS)
def test_a_task_gives_the_prompts_and_references_of_its_view(name, view, vocabulary, tmp_path):
    data, path = registry.get(name), write(name, tmp_path)
    train = write(name, tmp_path, "train") if data.train and name != "mbpp" else None
    task = seqio_tasks.register(name, view, path, train, vocabulary)
    rows = dataset(task, data.split)
    prompts, items = registry.prompts(Task(name=name, view=view, path=path, shots_path=train))
    assert [r["inputs_pretokenized"].decode() for r in rows] == [p.text for p in prompts]
    assert [r["targets_pretokenized"].decode() for r in rows] == [i.target for i in items]
    post = lambda r, text, **more: task.postprocess_fn(text, example=r, **more)
    references = [post(r, r["targets_pretokenized"].decode(), is_target=True) for r in rows]
    assert references == [i.reference for i in items]
    assert bool(task.metric_fns) == (data.metric not in ("pass@1", "none"))
    for metric in task.metric_fns:
        right = metric(
            references, [post(r, f" {i.target}", is_target=False) for r, i in zip(rows, items, strict=True)]
        )
        assert right == {name: pytest.approx(100) for name in right}
        assert data.metric in right
    if train:
        shown = dataset(task, data.train)[0]["inputs_pretokenized"].decode()
        assert shown == registry.prompts(Task(name=name, view=view, path=train, shots=0))[0][0].text


def test_trimming_takes_the_end_of_the_context(vocabulary, tmp_path):
    task = seqio_tasks.register("xsum", path=write("xsum", tmp_path), vocabulary=vocabulary)
    whole, short = dataset(task, "validation")[0], dataset(task, "validation", {"inputs": 9, "targets": 3})[0]
    assert len(whole["inputs"]) > 9
    assert short["inputs"].tolist() == [*whole["inputs"][:8].tolist(), vocabulary.eos_id]
    assert (short["inputs"].size, short["targets"].size) == (9, 3)
    assert seqio_tasks.sequence_length("xsum") == {"inputs": 1024, "targets": 64}


def test_mixtures_hold_the_tasks_as_registered_last(vocabulary, tmp_path):
    lengths, apart = {"inputs": 64, "targets": 16}, set()
    for name in seqio_tasks.MIXTURES["spec_cascades_summarisation"]:
        task = seqio_tasks.register(name, path=write(name, tmp_path), vocabulary=vocabulary)
        apart |= {row["inputs"].tobytes() for row in dataset(task, "validation", lengths)}
    mixture = seqio.get_mixture_or_task("spec_cascades_summarisation")
    rows = mixture.get_dataset(lengths, split="validation", shuffle=False, num_epochs=None, seed=0)
    drawn = itertools.islice(rows.as_numpy_iterator(), 60)
    assert {row["inputs"].tobytes() for row in drawn} == apart
    assert len(apart) == 2  # one a task: the toy vocabulary has no digits, which tell their examples apart


def test_what_seqio_caches_is_text_not_yet_tokenised(vocabulary, tmp_path):
    task = seqio_tasks.register("xsum", path=write("xsum", tmp_path), vocabulary=vocabulary)
    assert task.supports_caching
    before = task.preprocess_precache(task.source.get_dataset("validation", shuffle=False))
    assert set(before.element_spec) == {"inputs", "targets", "reference"}


@pytest.mark.parametrize("name", ON_TFDS)
def test_tfds_has_the_builder_at_that_version(name):
    reference, _, version = registry.get(name).tfds.rpartition(":")
    builder, _, config = reference.partition("/")
    cls = tfds.builder_cls(builder)
    configs = {c.name: c for c in cls.BUILDER_CONFIGS}
    assert not config or config in configs
    own = getattr(configs.get(config), "version", None) or cls.VERSION
    assert str(own) == version


@pytest.mark.parametrize("name", ["gsm8k", "natural_questions_open", "squad_v2", "web_questions"])
def test_what_tfds_makes_of_the_published_file_reads_alike(name, tmp_path, monkeypatch):
    """TFDS prepares our file with its own reader, in a folder of its own, as if it had downloaded it."""
    data, path = registry.get(name), write(name, tmp_path)
    if name == "web_questions":
        Path(path).write_text(json.dumps(json.loads(Path(path).read_text())[1:]))
    prepared = functools.partial(tfds.builder, data_dir=str(tmp_path / "tfds"))
    cls = tfds.builder_cls(data.tfds.partition("/")[0].partition(":")[0])
    splits = lambda self, manager: {data.split: self._generate_examples(path)}
    monkeypatch.setattr(cls, "_split_generators", splits)
    monkeypatch.setattr(tfds, "builder", prepared)
    found = registry.items(data, None, None)
    assert sorted(found) == sorted(registry.items(data, path, None))
    with pytest.raises(ConfigError, match=r"task\.split: 'dev' is not one of"):
        registry.items(data, None, "dev")


def test_data_that_are_nowhere_are_named():
    with pytest.raises(ConfigError, match=r"NAME|task\.name"):
        seqio_tasks.register("gsm9k")
