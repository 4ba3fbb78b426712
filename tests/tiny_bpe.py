"""A tiny byte-level BPE with single digits, two control tokens and one added word, trained here."""

import json
from functools import cache

TEXT = [
    "a small model drafts and a large one defers to nobody while the cat looks at two grey birds",
    "Der Vogel sieht 1024 Züge, 365 Tage; don't they'll 🐦🐦 日本",
]
SPECIAL = ["<|end|>", "<|start|>"]
WORD = "<word>"
TEMPLATE = (
    "{% for m in messages %}{{ '<|start|>' + m['role'] + '\n' + m['content'] + '<|end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>assistant\n' }}{% endif %}"
)


@cache
def trained():
    """The library's own tokenizer, which must not be changed."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    model = Tokenizer(models.BPE())
    digits = pre_tokenizers.Digits(individual_digits=True)
    model.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    model.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    model.train_from_iterator(
        TEXT * 3,
        trainers.BpeTrainer(
            vocab_size=330, initial_alphabet=alphabet, special_tokens=SPECIAL, show_progress=False
        ),
    )
    model.add_tokens([AddedToken(WORD, normalized=False)])
    return model


def copy():
    """The same as a new object."""
    from tokenizers import Tokenizer

    return Tokenizer.from_str(trained().to_str())


def metadata():
    """It as a GGUF file describes it."""
    bpe = json.loads(trained().to_str())["model"]
    size = trained().get_vocab_size()
    kinds = {WORD: 4} | dict.fromkeys(SPECIAL, 3)
    tokens = [trained().id_to_token(i) for i in range(size)]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [kinds.get(token, 1) for token in tokens],
        "tokenizer.ggml.merges": [m if isinstance(m, str) else " ".join(m) for m in bpe["merges"]],
        "tokenizer.ggml.eos_token_id": 0,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": TEMPLATE,
    }


def write_folder(folder, **settings):
    """tokenizer.json and tokenizer_config.json in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    trained().save(str(folder / "tokenizer.json"))
    given = {"eos_token": SPECIAL[0], "bos_token": {"content": SPECIAL[1]}, "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(given | settings))
    return folder
