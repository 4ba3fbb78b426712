"""Prompts and answers as packed rows: read, answered by the target where nobody else did, cut to length."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spec_cascades import runlog
from spec_cascades.config import ConfigError, Decoding
from spec_cascades.distill.settings import Distill, Source
from spec_cascades.progress import progress


class Text(NamedTuple):
    """A prompt as the model reads it, and an answer or None."""

    prompt: str
    answer: str | None


class Example(NamedTuple):
    """Ids of a prompt and of its answer, the end symbol included."""

    prompt: list[int]
    answer: list[int]


class Rows(NamedTuple):
    """Packed rows, [n, t]: segments count 1, 2, ... and 0 is padding.

    weights: 1 where the token after this one belongs to an answer, which is where a drafter is asked;
    prompt_weight where it belongs to a prompt.
    """

    tokens: np.ndarray
    segments: np.ndarray
    weights: np.ndarray


def read(source: Source) -> list[Text]:
    """The texts of a source; ConfigError names the file and the line without the wanted key."""
    path = Path(source.path)
    if not path.is_file():
        raise ConfigError(f"no file {source.path!r}")
    texts = []
    for number, line in enumerate(path.read_text("utf-8").split("\n"), 1):
        if (number - 1) % source.every == source.offset and line.strip():
            row, where = json.loads(line), f"{path}:{number}"
            answer = None if source.answer is None else _field(row, source.answer, where)
            texts.append(Text(_field(row, source.prompt, where), answer))
    if not texts:
        raise ConfigError(f"{path}: no line left of it (every {source.every}, offset {source.offset})")
    return texts[: source.limit]


def _field(row: Any, key: str, where: str) -> str:
    value = row.get(key) if isinstance(row, dict) else None
    value = value[0] if isinstance(value, list) and value else value
    if not isinstance(value, str):
        keys = ", ".join(row) if isinstance(row, dict) else type(row).__name__
        raise ConfigError(f"{where}: no text under {key!r} (keys: {keys})")
    return value


def examples(settings: Distill, key: str, engine: Any) -> list[Example]:
    """The examples of settings.sources or settings.dev; what the target answered is kept in out/answers."""
    made: list[Example] = []
    for number, source in enumerate(settings.texts(key)):
        texts = read(source)
        if source.answer is None:
            folder = Path(settings.out) / "answers" / f"{key}-{number}"
            answers = _answered(settings, source, texts, engine, folder)
        else:
            answers = [_answer_ids(engine.tokenizer, t.answer) for t in texts]
        made += [Example(engine.encode(t.prompt), a) for t, a in zip(texts, answers, strict=True)]
    return made


def _answer_ids(tokenizer: Any, text: str) -> list[int]:
    """An answer as it follows a prompt: without the BOS a text of its own would have, with the end symbol."""
    ids = tokenizer.encode(text)
    return [*(ids[1:] if ids[:1] == [tokenizer.bos] else ids), tokenizer.eos]


def _answered(
    settings: Distill, source: Source, texts: list[Text], engine: Any, folder: Path
) -> list[list[int]]:
    """The target's answers, logged in `folder` batch by batch: a killed run goes on where it was."""
    # Long and short prompts in one batch would all cost what the longest costs.
    order = sorted(range(len(texts)), key=lambda i: (len(texts[i].prompt), i))
    decoding = Decoding(
        method="target",
        temperature=settings.temperature if source.temperature is None else source.temperature,
        max_new_tokens=settings.max_new_tokens,
        batch_size=settings.batch_size,
        seed=settings.seed,
    )
    # What the answers depend on, and no more: a key that Decoding gains must not make them another run's.
    drawn_by = ("temperature", "max_new_tokens", "batch_size", "seed")
    belongs = {"target": settings.target, "source": asdict(source)}
    belongs["decoding"] = {key: getattr(decoding, key) for key in drawn_by}
    with runlog.opened(folder, belongs) as log:
        done = len(log.lines)
        with progress("the target answers", len(texts), done) as advance:
            for first in range(done, len(order), settings.batch_size):
                some = order[first : first + settings.batch_size]
                drawn = replace(decoding, seed=settings.seed + first)
                batch = engine.run([texts[i].prompt for i in some], drawn)
                for i, answer in zip(some, batch.answers, strict=True):
                    log.append({"text": i, "ids": answer.tokens})
                advance(len(some))
        held = {row["text"]: row["ids"] for row in log.lines}
    return [held[i] for i in range(len(texts))]


def pack(
    items: list[Example], length: int, seed: int, prompt_weight: float = 0.0, most: int | None = None
) -> Rows:
    """Rows of `length` tokens filled with whole examples in `seed`'s order, each cut to one row at most.

    A prompt that fills a row leaves no answer to learn from and is left out; ValueError where none is left.
    most: so many rows are kept, a random share of the examples.
    """
    items = [item for item in items if len(item.prompt) < length]
    if not items:
        raise ValueError(f"no example with a prompt of fewer than {length} tokens (length)")
    rows: list[list[tuple[list[int], int]]] = [[]]
    room = length
    for i in np.random.default_rng(seed).permutation(len(items)):
        prompt, answer = items[i]
        ids = (prompt + answer)[:length]
        if len(ids) > room:
            rows.append([])
            room = length
        rows[-1].append((ids, len(prompt)))
        room -= len(ids)
    shape = (len(rows), length)
    packed = Rows(np.zeros(shape, np.int32), np.zeros(shape, np.int32), np.zeros(shape, np.float32))
    for r, row in enumerate(rows):
        at = 0
        for number, (ids, prompt) in enumerate(row, 1):
            end = at + len(ids)
            packed.tokens[r, at:end] = ids
            packed.segments[r, at:end] = number
            packed.weights[r, at : at + prompt - 1] = prompt_weight
            packed.weights[r, at + prompt - 1 : end - 1] = 1
            at = end
    return Rows(*(x[:most] for x in packed))
