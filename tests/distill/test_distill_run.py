"""A whole distillation of a tiny target: it learns, resumes, and its drafter decodes exactly."""

import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_cascades import checkpoints, distill
from spec_cascades.config import ConfigError, Decoding
from spec_cascades.distill import corpus, labels
from spec_cascades.engine import Engine
from spec_cascades.models import llama


@pytest.fixture(scope="module")
def _done():
    return {}


@pytest.fixture
def exported(_done, config, tmp_path_factory):
    """A finished run's folder, made once."""
    if "run" not in _done:
        folder = tmp_path_factory.mktemp("distilled")
        distill.run(config(out=str(folder / "run")))
        _done["run"] = folder / "run"
    return _done["run"] / "export"


def rows_of(export):
    return [json.loads(line) for line in (export.parent / "log.jsonl").read_text().splitlines()]


def test_the_drafter_learns_and_says_so(exported):
    log = rows_of(exported)
    assert [row["step"] for row in log] == [0, 20, 40]
    assert log[-1]["dev_loss"] < 0.7 * log[0]["dev_loss"]
    assert log[-1]["dev_acceptance"] > log[0]["dev_acceptance"] + 0.05
    assert 0 <= log[-1]["dev_greedy_acceptance"] <= 1


def test_the_target_answers_what_nobody_did(exported, target):
    answers = exported.parent / "answers"
    lines = (answers / "sources-1" / "examples.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["text"] for line in lines) == list(range(6))
    engine = Engine(str(target), None, "float32", chat=True)
    asked = corpus.read(distill_settings(exported).texts("sources")[1])
    for row in map(json.loads, lines):
        decoding = Decoding(method="target", max_new_tokens=8)
        (answer,) = engine.run([asked[row["text"]].prompt], decoding).answers
        assert row["ids"] == answer.tokens


def test_labels_are_the_targets_own(exported, target):
    loaded = checkpoints.load(str(target), "float32")
    first = min((exported.parent / "labels" / "sources").glob("*.npz"))
    with np.load(first) as held:
        ids, log_p = held["ids"], held["log_p"]
    assert ids.shape == (labels.CHUNK, 32, 6)
    settings = distill_settings(exported)
    rows = corpus.pack(
        corpus.examples(settings, "sources", Engine(str(target), None, "float32", chat=True)), 32, 0
    )
    tokens, segments = jnp.asarray(rows.tokens[:4]), jnp.asarray(rows.segments[:4])
    logits = llama.forward(loaded.params, loaded.config, tokens, segments)
    expected = np.sort(np.asarray(jax.nn.log_softmax(logits)), axis=-1)[..., ::-1][..., :6]
    real = rows.segments[:4] > 0
    np.testing.assert_allclose(log_p[real], expected[real], atol=0.01)
    best = np.argmax(np.asarray(logits), axis=-1)
    np.testing.assert_array_equal(ids[real][:, 0], best[real])


def distill_settings(export):
    from spec_cascades import config as configs
    from spec_cascades.distill.settings import Distill

    return configs.load(Distill, export.parent / "config.yaml")


def test_a_killed_run_goes_on_and_ends_alike(exported, config, tmp_path):
    again = tmp_path / "run"
    shutil.copytree(exported.parent, again)
    shutil.rmtree(again / "export")
    shutil.rmtree(again / "checkpoints" / "40")
    max((again / "labels" / "sources").glob("*.npz")).unlink()
    answers = again / "answers" / "sources-1" / "examples.jsonl"
    answers.write_bytes(answers.read_bytes()[:-7])
    (again / "config.yaml").write_text(
        (again / "config.yaml").read_text().replace(str(exported.parent), str(again))
    )
    export = distill.run(config(out=str(again)))
    assert [row["step"] for row in rows_of(Path(export))] == [0, 20, 40]
    ours, first = (
        jax.tree.leaves(checkpoints.load(str(path), "float32").params) for path in (export, exported)
    )
    for a, b in zip(ours, first, strict=True):
        np.testing.assert_array_equal(a, b)


def test_labels_of_other_texts_are_not_taken(exported, target, tmp_path):
    loaded = checkpoints.load(str(target), "float32")
    rows = corpus.pack([corpus.Example([5, 6], [7, 8, 1])], 8, 0)
    other = corpus.pack([corpus.Example([5, 6], [9, 8, 1])], 8, 0)
    label = lambda rows, top, dtype: labels.label(
        llama.forward, loaded.params, loaded.config, rows, top, tmp_path, dtype
    )
    first = label(rows, 3, "a")
    np.testing.assert_array_equal(label(rows, 3, "a").ids, first.ids)
    assert len(list(tmp_path.glob("*.npz"))) == 1
    for given in ((other, 3, "a"), (rows, 4, "a"), (rows, 3, "b")):
        label(*given)
    assert len(list(tmp_path.glob("*.npz"))) == 4


def test_other_settings_do_not_go_on_with_a_run(exported, config):
    with pytest.raises(ConfigError, match=r"peak_lr was 0\.01 and is 0\.5"):
        distill.run(config(out=str(exported.parent), peak_lr=0.5))


def test_the_drafter_holds_its_trunk_alone(exported):
    from safetensors import safe_open

    with safe_open(exported / "model.safetensors", "numpy") as file:
        names = set(file.keys())
    assert "ids" in names
    assert not any(name.startswith(("embedder", "logits_dense", "layers_1")) for name in names)


@pytest.mark.parametrize("rule", ["lossless", "v3"])
def test_the_pair_decodes_exactly(exported, target, rule):
    """Greedy lossless answers are the target's own, though the drafter knows only 16 ids."""
    engine = Engine(str(target), str(exported), "float32", chat=True)
    texts = ["the dog runs", "a cat sees the red dog"]
    decode = lambda **given: engine.run(texts, Decoding(max_new_tokens=12, **given)).answers
    alone, pair = decode(method="target"), decode(rule=rule, alpha=0.0, gamma=3)
    assert [a.tokens for a in pair] == [a.tokens for a in alone]
    assert sum(sum(a.judged) for a in pair) > 0


def test_the_drafter_scores_its_ids_only(exported, target):
    drafter = checkpoints.load(str(exported), "float32")
    whole = checkpoints.load(str(target), "float32")
    assert drafter.lm.vocab == whole.lm.vocab
    tokens = jnp.asarray([[0, 4, 5, 6]])
    last, cache = drafter.lm.prefill(drafter.params, tokens, jnp.asarray([4]), 8)
    logits, _ = drafter.lm.extend(drafter.params, last[:, None], cache)
    finite = np.isfinite(np.asarray(logits[0, 0]))
    assert finite.sum() == 16
    ids = np.asarray(drafter.params["place"]) < 16
    np.testing.assert_array_equal(finite, ids)


@pytest.mark.parametrize(
    ("drafter", "words"),
    [
        ({"layers": 9}, ["drafter.layers 9", "the target has 3"]),
        ({"layers": 1, "d_ff": 8}, ["drafter.d_ff", "own trunk"]),
        ({"trunk": "last"}, ["'last'", "first, own"]),
    ],
)
def test_bad_drafters_are_named(config, drafter, words):
    with pytest.raises(ValueError, match=".*".join(words)):
        distill.run(config(drafter=drafter))


def test_a_drafter_goes_on_from_another_with_its_ids(exported, config, tmp_path):
    export = distill.run(config(start=str(exported), out=str(tmp_path / "on"), steps=20))
    before, after = rows_of(exported)[-1], rows_of(Path(export))
    # The exported weights are bfloat16.
    assert after[0]["dev_loss"] == pytest.approx(before["dev_loss"], rel=0.05)
    assert after[-1]["dev_loss"] < before["dev_loss"]
    ids = [np.asarray(checkpoints.load(str(x), "float32").params["place"]) for x in (exported, export)]
    np.testing.assert_array_equal(*ids)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"drafter": {"layers": 2, "vocabulary": 16}}, ["drafter: ", "layers=1", "cannot change"]),
        ({"target": "elsewhere"}, ["drafts for", "the target is elsewhere"]),
        ({"start": "here"}, ["start: ", "no distilled drafter"]),
    ],
)
def test_a_start_that_does_not_fit_is_refused(exported, target, config, tmp_path, change, words):
    given = {"start": str(exported)} | change
    given["start"] = str(target) if given["start"] == "here" else given["start"]
    with pytest.raises(ConfigError, match=".*".join(words)):
        distill.run(config(**given))


@pytest.mark.parametrize("drafter", [{"trunk": "own", "d_ff": 20, "vocabulary": None}, {"vocabulary": None}])
def test_own_trunks_and_whole_vocabularies(config, drafter, target):
    export = distill.run(config(drafter={"layers": 1, **drafter}, steps=12, eval_every=12))
    log = rows_of(Path(export))
    assert log[-1]["dev_loss"] < log[0]["dev_loss"]
    engine = Engine(str(target), export, "float32", chat=True)
    decode = lambda **given: engine.run(["the dog"], Decoding(max_new_tokens=9, **given)).answers
    assert decode(method="target")[0].tokens == decode(rule="lossless", gamma=2)[0].tokens
