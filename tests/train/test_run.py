"""`spec-cascades train` as a user runs it: what it writes, what it refuses, and a kill in the middle."""

import json
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from copying import settings

from spec_cascades.train import runfolder
from spec_cascades.train.settings import Data, Teacher

COMMAND = [sys.executable, "-m", "spec_cascades.cli", "train"]


def rows(out):
    return [json.loads(line) for line in (Path(out) / "log.jsonl").read_text().splitlines()]


def checkpoints_in(out):
    return sorted(int(p.name) for p in (Path(out) / "checkpoints").glob("*") if p.name.isdecimal())


def state_of(out, step):
    """The arrays of a checkpoint, by their paths."""
    import orbax.checkpoint as ocp

    with ocp.CheckpointManager(Path(out).absolute() / "checkpoints") as manager:
        tree = manager.restore(step, args=ocp.args.StandardRestore())
    return {jax.tree_util.keystr(k): np.asarray(x) for k, x in jax.tree_util.tree_leaves_with_path(tree)}


def test_the_loss_falls_on_a_copying_task(finished):
    given, _ = finished
    found = rows(given.out)
    assert [row["step"] for row in found] == list(range(0, 301, 5))
    assert found[-1]["dev_nll"] < 0.6 * found[0]["dev_nll"]
    assert found[-1]["loss"] < 0.6 * found[1]["loss"]
    assert checkpoints_in(given.out) == [250, 300]


def greedy(loaded, texts, steps):
    """The likeliest continuation of every prompt, up to its end symbol."""
    rows = [loaded.tokenizer.encode(text) for text in texts]
    tokens = np.zeros((len(rows), max(map(len, rows))), np.int32)
    for i, row in enumerate(rows):
        tokens[i, : len(row)] = row
    lengths = jnp.array([len(row) for row in rows])
    last, cache = jax.jit(loaded.lm.prefill, static_argnums=3)(loaded.params, tokens, lengths, steps)
    extend, answer = jax.jit(loaded.lm.extend), []
    for _ in range(steps):
        logits, cache = extend(loaded.params, last[:, None], cache)
        last = jnp.argmax(logits[:, 0], axis=-1).astype(jnp.int32)
        answer.append(last)
    return np.stack(answer, axis=1)


def test_the_exported_folder_loads_and_decodes(finished):
    """Not only loads: its greedy answers end, and copy the prompt far more often than chance would."""
    from spec_cascades import checkpoints
    from spec_cascades.tasks.translation import read_pairs

    given, export = finished
    loaded = checkpoints.load(export, "float32")
    prompts = [source for source, _ in read_pairs(given.data.train)][:16]
    answers = greedy(loaded, prompts, 16)
    assert np.mean((answers == loaded.tokenizer.eos).any(axis=1)) > 0.7
    words = lambda text: set(text.split())
    pairs = zip(map(loaded.tokenizer.decode, answers), prompts, strict=True)
    shared = [len(words(answer) & words(prompt)) / len(words(prompt)) for answer, prompt in pairs]
    # Three words of ten overlap by chance in three of ten.
    assert np.mean(shared) > 0.45


def test_a_finished_run_exports_again_without_a_step(finished, write, tmp_path):
    from spec_cascades import checkpoints, train

    given, export = finished
    shutil.copytree(given.out, tmp_path / "copy")
    again = train.run(write(replace(given, out=str(tmp_path / "copy"))))
    assert rows(tmp_path / "copy") == rows(given.out)
    pairs = (checkpoints.load(folder, "float32").params for folder in (export, again))
    jax.tree.map(np.testing.assert_array_equal, *pairs)


def test_a_teacher_of_other_ids_is_refused(finished, write, tmp_path):
    from spec_cascades import checkpoints, tokenizers, train
    from spec_cascades.train import vocabulary

    given, export = finished
    other = tmp_path / "other.model"
    vocabulary.build(other, given.data.train, given.data.pieces + 1)
    assert tokenizers.SentencePiece(other, 0).size == given.data.pieces + 1
    student = replace(
        given,
        out=str(tmp_path / "out"),
        teacher=Teacher(export),
        data=replace(given.data, vocabulary=str(other)),
    )
    with pytest.raises(ValueError, match="tokenizers differ"):
        train.run(write(student))
    bare = tmp_path / "bare"
    loaded = checkpoints.load(export, "float32")
    checkpoints.save(bare, loaded.config, loaded.params, "float32")
    with pytest.raises(ValueError, match="of its own vocabulary"):
        train.run(write(replace(student, teacher=Teacher(str(bare)))))


def test_a_student_learns_from_an_export(finished, write, tmp_path):
    from spec_cascades import train

    given, export = finished
    student = replace(
        given, out=str(tmp_path / "out"), teacher=Teacher(export), steps=40, eval_every=10, save_every=40
    )
    train.run(write(student))
    acceptance = [row["dev_acceptance"] for row in rows(student.out)]
    assert 0 < acceptance[0] < acceptance[-1] < 1


def test_training_goes_on_from_given_weights(finished, write, tmp_path):
    from spec_cascades import train
    from spec_cascades.config import ConfigError

    given, export = finished
    further = replace(given, start=export, out=str(tmp_path / "out"), steps=20, warmup=2, peak_lr=1e-3)
    train.run(write(further))
    before, after = rows(given.out)[-1], rows(further.out)
    # The exported weights are bfloat16.
    assert after[0]["dev_nll"] == pytest.approx(before["dev_nll"], rel=0.02)
    assert after[-1]["dev_nll"] != after[0]["dev_nll"]
    wider = replace(
        further, out=str(tmp_path / "wider"), model=replace(given.model, d_ff=given.model.d_ff + 8)
    )
    with pytest.raises(
        ConfigError, match=f"model.d_ff: {wider.model.d_ff}, and that of start.*{given.model.d_ff}"
    ):
        train.run(write(wider))


@pytest.mark.slow
def test_a_killed_run_goes_on_as_if_nothing_had_happened(finished, write, tmp_path):
    """Killed between two checkpoints, a run repeats the lost steps: same weights, same log."""
    given, _ = finished
    mine = replace(given, out=str(tmp_path / "out"))
    command = [*COMMAND, str(write(mine))]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 300
        while not (
            Path(mine.out, "log.jsonl").exists() and rows(mine.out)[-1:] and rows(mine.out)[-1]["step"] >= 120
        ):
            assert process.poll() is None, process.stderr.read().decode()
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert 100 <= checkpoints_in(mine.out)[-1] < given.steps
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "loss" in done.stderr
    ours, expected = (state_of(run.out, given.steps) for run in (mine, given))
    assert ours.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_array_equal(ours[key], value, err_msg=key)
    steps = [row["step"] for row in rows(mine.out)]
    assert steps == [row["step"] for row in rows(given.out)]
    assert [r["dev_nll"] for r in rows(mine.out)] == [r["dev_nll"] for r in rows(given.out)]


def refusal(code, arguments):
    """The one line that the command prints as it exits with 2, after `code` has run in its process."""
    text = f"import sys; {code}; from spec_cascades import cli; sys.exit(cli.main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", text, "train", *map(str, arguments)], capture_output=True, text=True
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    return done.stderr


def local(tmp_path):
    """Settings over two small files, with nothing trained."""
    files = [tmp_path / name for name in ("train.tsv", "dev.tsv", "spiece.model")]
    for path in files[:2]:
        path.write_text("one\tone\n")
    return settings(tmp_path / "out", Data(*map(str, files)))


def test_without_the_data_extra_the_command_names_it(write, tmp_path):
    line = refusal("sys.modules['seqio'] = None", [write(local(tmp_path))])
    assert "seqio" in line
    assert "pip install 'spec-cascades[data]'" in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("key", ["train", "dev"])
def test_a_missing_data_file_is_named(write, tmp_path, key):
    pytest.importorskip("seqio", reason="the extra [data] is asked for first")
    line = refusal("pass", [write(local(tmp_path)), f"data.{key}={tmp_path}/absent.tsv"])
    assert f"data.{key}" in line
    assert "absent.tsv" in line


def test_a_resume_with_another_model_is_refused(write, tmp_path):
    pytest.importorskip("seqio", reason="the extra [data] is asked for first")
    given = local(tmp_path)
    runfolder.claim(given)
    (tmp_path / "out" / "checkpoints" / "20").mkdir(parents=True)
    line = refusal("pass", [write(given), "model.heads=4", "dropout=0.5"])
    assert "model.heads was 2 and is 4" in line
    assert "dropout was 0.1 and is 0.5" in line
