"""`inspect` and `convert`: what is told of a model and of a pair, and the commands as processes."""

import importlib.util
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import pytest
from safetensors.numpy import load_file

from spec_cascades import Decoding, Engine, inspecting
from spec_cascades.checkpoints import load, orbax, peek, save
from spec_cascades.models import llama, t5
from spec_cascades.tokenizers import SentencePiece

PAIR = ("embedded:en-de-target", "embedded:en-de-drafter")
SPIECE = Path(importlib.util.find_spec("spec_cascades").origin).parent / "embedded" / "spiece.model"

if not SPIECE.is_file():
    pytest.skip("the embedded models are not in this checkout", allow_module_level=True)


def cli(*arguments):
    command = [sys.executable, "-m", "spec_cascades.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(scope="module")
def padded(tmp_path_factory):
    """The embedded drafter with 64 more rows in its table, as a folder with the same tokenizer."""
    folder = tmp_path_factory.mktemp("padded")
    loaded = load(PAIR[1], "float32")
    table = loaded.params["token_embedder"]["embedding"]
    more = jax.random.normal(jax.random.key(0), (64, table.shape[1])) * 50
    params = loaded.params | {"token_embedder": {"embedding": jax.numpy.concatenate([table, more])}}
    save(folder, replace(loaded.config, embeddings=len(table) + 64), params, "float32")
    (folder / "spiece.model").write_bytes(SPIECE.read_bytes())
    return str(folder)


def test_facts_need_no_weights(monkeypatch):
    header = peek(PAIR[0])
    loaded = load(PAIR[0])
    leaves = jax.tree.leaves(loaded.params)
    assert header.parameters == sum(x.size for x in leaves)
    assert header.stored == {"bfloat16": 2 * header.parameters}
    assert header.config == loaded.config
    assert header.lm == loaded.lm
    facts = inspecting.facts(header)
    assert facts["family"] == "t5"
    assert "d_model 256" in facts["sizes"]
    assert "decoder_layers 8" in facts["sizes"]
    assert facts["parameters"] == f"{header.parameters:,}"
    assert facts["in the file"] == f"bfloat16 {2 * header.parameters / 1e6:.1f} MB"
    assert facts["vocabulary"] == "4,096 pieces, 4,096 rows"
    assert header.tokenizer.fingerprint.startswith(facts["tokenizer"])
    assert facts["special ids"] == "bos none, eos 1, pad 0"
    assert facts["FLOPs per token"] == f"{header.lm.flops_per_token():,}"


def test_facts_of_a_model_without_tokenizer(tmp_path):
    sizes = dict(vocab=30, embeddings=32, d_model=8, d_ff=8, layers=1, heads=2, kv_heads=1, head_dim=4)
    config = llama.Config(**sizes, bos=1, eos=(2, 5), pad=None)
    orbax.save(tmp_path, config, llama.init(jax.random.key(0), config), "float32")
    facts = inspecting.facts(peek(str(tmp_path)))
    assert facts["vocabulary"] == "30 ids, 32 rows"
    assert facts["tokenizer"] == "none beside the weights"
    assert facts["special ids"] == "bos 1, eos 2 5, pad none"


def test_a_pair_that_fits():
    target, drafter = (peek(ref) for ref in PAIR)
    assert inspecting.obstacle(drafter, target) is None
    assert "costs 0.125 of a target's FLOPs" in inspecting.verdict(drafter, target)
    assert "wide" not in inspecting.verdict(drafter, target)


def test_pairs_that_do_not_fit():
    target, drafter = (peek(ref) for ref in PAIR)
    bare = drafter._replace(tokenizer=None)
    assert "drafter has no tokenizer" in inspecting.obstacle(bare, target)
    assert "target has no tokenizer" in inspecting.obstacle(drafter, bare)
    other = drafter._replace(tokenizer=SentencePiece(SPIECE, extra_ids=3))
    assert "id 4096 is '<extra_id_2>' to the drafter" in inspecting.obstacle(other, target)
    config = llama.Config(vocab=4096, embeddings=4096, d_model=8, d_ff=8, layers=1, heads=1, kv_heads=1)
    decoder = drafter._replace(config=config, lm=llama.Llama(config))
    assert "with an encoder" in inspecting.obstacle(decoder, target)
    assert inspecting.verdict(decoder, target).startswith("not to be used together: one of them")


def test_tables_padded_apart_are_reconciled(padded):
    """The padded twin drafts as the drafter does: rows beyond the tokenizer's ids are worth nothing."""
    twin, plain = peek(padded), peek(PAIR[1])
    assert (twin.lm.vocab, plain.lm.vocab) == (4160, 4096)
    assert "4,160 and 4,096 wide" in inspecting.verdict(twin, peek(PAIR[0]))
    texts = ["Where is my book?", "The train is late."]
    decoding = Decoding(rule="lossless", gamma=3)
    ours = Engine(PAIR[0], padded, "float32").run(texts, decoding).answers
    wanted = Engine(*PAIR, "float32").run(texts, decoding).answers
    assert ours == wanted
    assert sum(sum(a.accepted) for a in ours) > 0
    other_way = Engine(padded, PAIR[1], "float32").run(texts, decoding).answers
    alone = Engine(padded, None, "float32").run(texts, replace(decoding, method="target")).answers
    assert [a.tokens for a in other_way] == [a.tokens for a in alone]
    # The same weights on both sides: every draft must stand.
    assert all(a.judged == a.accepted for a in other_way)


def test_inspect_as_a_command(padded):
    done = cli("inspect", *PAIR)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for word in ("target", "drafter", "9,839,360", "1,377,536", "bfloat16 19.7 MB", "may be used together"):
        assert word in done.stdout
    done = cli("inspect", padded)
    assert done.returncode == 0, done.stderr
    assert "4,096 pieces, 4,160 rows" in done.stdout
    assert "together" not in done.stdout


def test_convert_as_a_command(tmp_path):
    done = cli("convert", PAIR[1], tmp_path / "o", "--to", "orbax")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{tmp_path / 'o'}\n", "")
    assert (tmp_path / "o" / "spiece.model").read_bytes() == SPIECE.read_bytes()
    assert cli("convert", tmp_path / "o", tmp_path / "s").returncode == 0
    original = SPIECE.parent / "en-de-drafter" / "model.safetensors"
    before, after = load_file(original), load_file(tmp_path / "s" / "model.safetensors")
    assert {k: v.tobytes() for k, v in before.items()} == {k: v.tobytes() for k, v in after.items()}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["inspect", "nowhere"], ["'nowhere'", "no such file", "kaggle://"]),
        (["inspect", PAIR[0], "embedded:fr"], ["'fr' is not one of", "en-de-drafter"]),
        (["inspect", "s3://b/x"], ["unknown scheme 's3'"]),
        (["convert", PAIR[0], "OUT", "--to", "gguf"], ["'gguf' is not one of"]),
        (["convert", PAIR[0], "OUT", "--dtype", "float16"], ["'float16' is not one of"]),
        (["convert", PAIR[0], "FULL"], ["already there and not empty"]),
    ],
)
def test_bad_input_is_one_line_and_2(tmp_path, arguments, words):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("mine")
    places = {"OUT": tmp_path / "out", "FULL": tmp_path / "full"}
    done = cli(*(places.get(a, a) for a in arguments))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    for word in words:
        assert word in done.stderr
    assert not (tmp_path / "out").exists()


def test_the_module_is_light():
    heavy = "{'jax', 'numpy', 'rich'} & set(sys.modules)"
    code = f"import sys; from spec_cascades import inspecting; sys.exit(bool({heavy}))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_t5_configs_say_how_they_read():
    """`obstacle` tells encoder-decoders by this field."""
    assert hasattr(t5.Config(), "encoder_layers")
    assert not hasattr(llama.Config(), "encoder_layers")
