"""tokenizer.json and GGUF's BPE: text to ids and back, BOS once, chat templates, several end symbols."""

import json

import pytest
import tiny_bpe
from tiny_bpe import SPECIAL, TEXT, WORD, copy, metadata, trained, write_folder

from spec_cascades.tokenizers import Fast, check_compatible, from_gguf, read_folder
from spec_cascades.tokenizers.fast import SPLITS, _pre_tokenizer

END, START = 0, 1
TEXTS = [*TEXT, "", " ", "x  y\n\n\tz", "12 345", "né 🐦 日", f"a{WORD}b", "<|start|>user<|end|>"]
MESSAGES = [{"role": "user", "content": "two birds"}]
ASKED = "<|start|>user\ntwo birds<|end|>\n<|start|>assistant\n"


def with_post_processor(*, bos=True, eos=False):
    from tokenizers import processors

    model = copy()
    single = "<|start|> $A" * bos + "$A" * (not bos) + " <|end|>" * eos
    model.post_processor = processors.TemplateProcessing(
        single=single, special_tokens=[(piece, i) for i, piece in enumerate(SPECIAL)]
    )
    return model


def saved(folder, model, **settings):
    write_folder(folder, **settings)
    model.save(str(folder / "tokenizer.json"))
    return folder


@pytest.mark.parametrize("text", TEXTS)
def test_a_gguf_files_tokenizer_is_the_one_it_describes(text):
    tok = from_gguf(metadata())
    assert tok.encode(text) == trained().encode(text, add_special_tokens=False).ids
    plain = text.replace("<|start|>", "").replace("<|end|>", "")
    assert tok.decode(i for i in tok.encode(text) if i != END) == plain


def test_digits_are_split_singly():
    tok = from_gguf(metadata())
    assert [tok.pieces[i] for i in tok.encode("1024")] == ["1", "0", "2", "4"]
    # Before merging: a corpus of single digits leaves no merge to prevent.
    cut = _pre_tokenizer(SPLITS["smollm"]).pre_tokenize_str("a 1024b")
    assert [piece for piece, _ in cut] == ["a", "Ġ", "1", "0", "2", "4", "b"]
    assert len(tok.encode(" small")) < 6, "and words are merged"


def test_special_ids_of_gguf():
    tok = from_gguf(metadata() | {"tokenizer.ggml.eot_token_id": 5, "tokenizer.ggml.padding_token_id": 3})
    assert (tok.eos, tok.stops, tok.pad, tok.bos) == (END, (END, 5), 3, None)
    assert from_gguf(metadata()).pad == END
    assert tok.size == trained().get_vocab_size() == len(tok.pieces)


@pytest.mark.parametrize(("key", "value", "match"), [
    ("model", "llama", r"model 'llama' is not one of \['gpt2'\]"),
    ("pre", "qwen2", r"pre 'qwen2' is not one of \['gpt-2', 'llama-bpe', 'smollm'\]"),
    ("merges", None, r"lacks tokenizer\.ggml\.merges"),
    ("eos_token_id", 10**6, r"special ids \[1000000\] lie beyond"),
])  # fmt: skip
def test_gguf_tokenizers_that_cannot_be_rebuilt(key, value, match):
    keys = metadata() | {f"tokenizer.ggml.{key}": value}
    with pytest.raises(ValueError, match=match):
        from_gguf({k: v for k, v in keys.items() if v is not None})


def test_llama_3_splits_as_published():
    """Its pattern keeps up to three digits together and a bare word's leading punctuation with it."""
    cut = _pre_tokenizer(SPLITS["llama-bpe"]).pre_tokenize_str("I'LL pay $1234,\n(now)  ok")
    assert [piece for piece, _ in cut] == [
        "I",
        "'LL",
        "Ġpay",
        "Ġ$",
        "123",
        "4",
        ",Ċ",
        "(now",
        ")",
        "Ġ",
        "Ġok",
    ]
    keys = {k: v for k, v in metadata().items() if k != "tokenizer.ggml.add_bos_token"}
    assert from_gguf(keys | {"tokenizer.ggml.pre": "llama-bpe"}).encode("a")[0] == START


def test_a_folder_and_a_gguf_file_of_one_model_are_compatible(tmp_path):
    check_compatible(read_folder(write_folder(tmp_path)), from_gguf(metadata()))


def test_special_ids_are_compared(tmp_path):
    other = read_folder(write_folder(tmp_path, eos_token=SPECIAL[1]))
    with pytest.raises(ValueError, match="special ids: eos 0 and 1"):
        check_compatible(from_gguf(metadata()), other)


def test_bos_stands_once(tmp_path):
    tok = read_folder(saved(tmp_path, with_post_processor()))
    assert tok.bos == START
    assert tok.encode("birds")[0] == START
    for text in ("birds", "<|start|>birds", ""):
        assert tok.encode(text).count(START) == 1
    assert tok.encode(tok.chat(MESSAGES))[:2] != [START, START]
    assert tok.encode("<|start|>birds") == tok.encode("birds")


def test_the_configs_word_on_bos_is_followed(tmp_path):
    silent = read_folder(saved(tmp_path / "a", with_post_processor(), add_bos_token=False))
    assert START not in silent.encode("birds")
    asked = read_folder(write_folder(tmp_path / "b", add_bos_token=True))
    assert asked.encode("birds") == [START, *silent.encode("birds")]


def test_an_appended_eos_is_kept(tmp_path):
    tok = read_folder(saved(tmp_path, with_post_processor(bos=False, eos=True)))
    assert tok.encode("birds")[-1] == END
    assert tok.bos is None
    assert tok.decode(tok.encode("birds")) == "birds"


def test_decoding_stops_at_any_end_symbol(tmp_path):
    ids = trained().encode("two birds").ids
    tok = read_folder(write_folder(tmp_path), stops=[END, ids[-1]])
    assert tok.stops == (END, ids[-1])
    assert tok.decode([*ids[:-1], END, *ids]) == tok.decode(ids) == "two birds"[: len(tok.decode(ids))]
    assert tok.decode([START, *ids[:2], -1, 10**6]) == tok.decode(ids[:2])


def test_tokens_without_a_row_are_refused(tmp_path):
    plain = trained().get_vocab_size() - 1
    tok = read_folder(write_folder(tmp_path), rows=plain)
    assert tok.size == plain
    with pytest.raises(ValueError, match=f"does not know the token '{WORD}'"):
        tok.encode(f"a{WORD}")
    with pytest.raises(ValueError, match="the model's table 100 rows"):
        read_folder(tmp_path, rows=100)


def test_chat_templates(tmp_path):
    assert read_folder(write_folder(tmp_path)).chat(MESSAGES) == ASKED
    named = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": tiny_bpe.TEMPLATE}]
    assert read_folder(write_folder(tmp_path, chat_template=named)).chat(MESSAGES) == ASKED
    (tmp_path / "chat_template.jinja").write_text("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}")
    # bos_token is empty: this tokenizer adds none.
    assert read_folder(tmp_path).chat(MESSAGES) == "two birds<|end|>"


@pytest.mark.parametrize(("template", "match"), [
    (None, "no chat template"),
    ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
    ("{{ messages", "refuses the messages"),
    ("{{ messages.__class__.__mro__ }}", "refuses the messages"),
    ("{% set x = messages.append(1) %}", "refuses the messages"),
])  # fmt: skip
def test_templates_that_refuse_or_misbehave(template, match):
    with pytest.raises(ValueError, match=match):
        Fast(copy(), [END], template=template).chat(MESSAGES)


def test_folders_that_cannot_be_read(tmp_path):
    write_folder(tmp_path, eos_token=None)
    with pytest.raises(ValueError, match=r"tokenizer\.json: the tokenizer does not say which token ends"):
        read_folder(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(ValueError, match=r"tokenizer_config\.json cannot be read"):
        read_folder(tmp_path)
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": 1}))
    with pytest.raises(ValueError, match=r"tokenizer\.json cannot be read"):
        read_folder(tmp_path)
