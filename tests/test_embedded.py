"""The pair in the package: it loads, it speaks, and speculation with it is what it claims to be."""

import re
from pathlib import Path

import pytest

from spec_cascades import Decoding, Engine
from spec_cascades.checkpoints import EMBEDDED, load
from spec_cascades.config import EMBEDDED_TASK, Task
from spec_cascades.tasks.examples import read

PAIR = ("embedded:en-de-target", "embedded:en-de-drafter")


@pytest.fixture(scope="module")
def engine():
    return Engine(*PAIR, dtype="float32")


@pytest.fixture(scope="module")
def sources():
    return [example.source for example in read(Task(path=EMBEDDED_TASK, limit=130))][::13]


def test_size_of_what_is_shipped():
    size = lambda folder: sum(
        f.stat().st_size for f in folder.rglob("*") if f.suffix in (".safetensors", ".model", ".json")
    )
    delta = size(EMBEDDED / "smollm2-drafter")
    assert 0 < delta <= 16e6
    assert size(EMBEDDED) - delta <= 24e6


def test_the_drafter_costs_a_sixth_at_most(engine):
    flops = engine.flops_per_token()
    assert flops["target"] >= 6 * flops["drafter"]
    assert engine.model("drafter").config.decoder_layers == 1


def test_both_know_the_same_ids():
    target, drafter = (load(ref, "bfloat16") for ref in PAIR)
    assert target.tokenizer.fingerprint == drafter.tokenizer.fingerprint
    assert target.config.vocab == target.tokenizer.size == drafter.config.vocab


@pytest.mark.parametrize("gamma", [1, 3, 5])
def test_greedy_speculation_writes_what_the_target_writes(engine, sources, gamma):
    alone = engine.run(sources, Decoding(method="target"))
    drafted = engine.run(sources, Decoding(rule="lossless", gamma=gamma))
    assert [a.tokens for a in drafted.answers] == [a.tokens for a in alone.answers]
    assert sum(a.target_calls for a in drafted.answers) < sum(a.target_calls for a in alone.answers)


def test_a_row_alone_is_the_row_in_a_batch(engine, sources):
    decoding = Decoding(rule="v3", alpha=0.5, temperature=1.0, seed=7)
    together = engine.run(sources[:4], decoding).answers
    for i, text in enumerate(sources[:4]):
        (alone,) = engine.run([text], Decoding(rule="v3", alpha=0.5, temperature=1.0, seed=7 + i)).answers
        assert alone.tokens == together[i].tokens


def test_the_target_translates(engine):
    (answer,) = engine.run(["Where is my book?"], Decoding(method="target")).answers
    assert "Buch" in answer.text
    assert answer.finish_reason == "eos"


def test_the_readme_example_runs(capsys):
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    assert len(code.strip().splitlines()) <= 12
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out.count("target calls") == 2


@pytest.mark.parity
@pytest.mark.parametrize("ref", PAIR)
def test_transformers_reads_the_weights_alike(ref, sources):
    torch = pytest.importorskip("torch", reason="parity needs torch")
    transformers = pytest.importorskip("transformers", reason="parity needs transformers")
    import jax.numpy as jnp
    import numpy as np

    ours = load(ref, "float32")
    theirs = transformers.T5ForConditionalGeneration.from_pretrained(EMBEDDED / ref.partition(":")[2]).float()
    ids = ours.tokenizer.encode(sources[0])
    heard = [ours.config.start, *ours.tokenizer.encode("Das ist ein Haus.")]
    with torch.no_grad():
        wanted = theirs.eval()(torch.tensor([ids]), decoder_input_ids=torch.tensor([heard])).logits.numpy()
    _, cache = ours.lm.prefill(ours.params, jnp.array([ids]), jnp.array([len(ids)]), 32)
    logits, _ = ours.lm.extend(ours.params, jnp.array([heard]), cache)
    assert np.abs(np.asarray(logits) - wanted).max() < 1e-4 * np.abs(wanted).max()


def test_a_call_reads_the_decoder_and_the_cache(engine, sources):
    batch = engine.run(sources[:2], Decoding(method="target", max_new_tokens=8))
    config = engine.model("target").config
    prompt = -(-max(len(engine.encode(text)) for text in sources[:2]) // 32) * 32
    slots = 2 * config.decoder_layers * 2 * config.heads * config.d_kv * (prompt + 8 + 1 + prompt)
    mask = 2 * prompt
    assert batch.bytes_per_call == {
        "target": 4 * engine.flops_per_token()["target"] / 2 + 4 * slots + mask,
    }


def test_the_first_block_comes_before_the_whole(engine, sources):
    long = max(sources, key=len)
    for decoding in (Decoding(method="target"), Decoding(rule="v3", alpha=0.5)):
        assert 0 < engine.first_block([long], decoding) < engine.run([long], decoding).seconds
    with pytest.raises(ValueError, match="info"):
        engine.first_block([long], Decoding(method="sequence", alpha=0.5))
