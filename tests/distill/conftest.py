"""A tiny llama-like target with a tokenizer and a chat template, and texts to distil it on."""

import json
import random

import jax
import pytest
import yaml

from spec_cascades import checkpoints
from spec_cascades.models import llama

WORDS = "the a dog cat sees hears runs sleeps and then now here red blue".split()
TEMPLATE = "{% for m in messages %}<s>{{ m['content'] }}</s>{% endfor %}<s>"


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    """JSON lines: training prompts with answers, and prompts alone."""
    folder, rng = tmp_path_factory.mktemp("texts"), random.Random(0)
    say = lambda n: " ".join(rng.choices(WORDS, k=n))
    answered = [{"question": say(4), "answer": say(9)} for _ in range(24)]
    asked = [{"turns": [say(5), "more"]} for _ in range(6)]
    for name, rows in (("answered", answered), ("asked", asked)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture(scope="session")
def target(tmp_path_factory):
    """A folder with random weights in Hugging Face's layout and a word-level tokenizer.json."""
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

    folder = tmp_path_factory.mktemp("target")
    vocab = {word: i for i, word in enumerate(["<s>", "</s>", "<unk>", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in ("<s>", "</s>")])
    sizes = dict(d_model=32, d_ff=48, layers=3, heads=4, kv_heads=2, head_dim=8)
    rows = len(vocab) + 3
    config = llama.Config(vocab=rows, embeddings=rows, **sizes, eos=(1,))
    params = llama.init(jax.random.key(3), config)
    # Loud layers and a sharp head: a target that prefers something, and not what its first layer does.
    params["embedder"]["embedding"] = 4 * params["embedder"]["embedding"]
    for i in range(config.layers):
        mlp = params[f"layers_{i}"]["mlp"]
        mlp["down"]["kernel"] = 12 * mlp["down"]["kernel"]
    checkpoints.save(folder, config, params, "float32")
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"eos_token": "</s>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture
def config(tmp_path, texts, target):
    """Writes a small run's YAML, changed as asked, and returns its path."""

    def _config(**changes):
        given = {
            "out": str(tmp_path / "run"),
            "target": str(target),
            "dtype": "float32",
            "sources": [
                {"path": str(texts / "answered.jsonl"), "prompt": "question", "answer": "answer"},
                {"path": str(texts / "asked.jsonl"), "prompt": "turns"},
            ],
            "dev": [
                {"path": str(texts / "answered.jsonl"), "prompt": "question", "answer": "answer", "every": 4}
            ],
            "drafter": {"layers": 1, "vocabulary": 16},
            **{"max_new_tokens": 8, "batch_size": 4, "length": 32, "top": 6, "steps": 40, "rows": 4},
            **{"warmup": 4, "peak_lr": 1e-2, "eval_every": 20, "save_every": 20},
        }
        path = tmp_path / "distill.yaml"
        path.write_text(yaml.safe_dump(given | changes))
        return path

    return _config
