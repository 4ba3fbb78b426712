"""Prompts to distil a chat model's drafter on: python scripts/distill_prompts.py DATA > prompts.jsonl

DATA is a folder with gsm8k_train.jsonl, nq_open_dev.jsonl, webquestions_test.json, mbpp.jsonl,
tatoeba_en_de_train.tsv and spec_bench.jsonl as published. Of spec_bench only odd lines are taken, and
whatever equals an even line's prompt is left out: those are for evaluation. One JSON line a prompt, with its
kind, in a seeded order; the chat prompts are put together from the frames and topics below.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

COUNTS = {"math": 2400, "qa": 2800, "translation": 1800, "code": 700, "chat": 2600}
"""Prompts of each kind; spec_bench's odd lines come on top."""

FRAMES = """Explain {} to a ten-year-old.
Write a short poem about {}.
What are the main advantages and disadvantages of {}?
Give me five interesting facts about {}.
Write a blog post of two paragraphs about {}.
How would you describe {} to someone who has never heard of it?
Draft a polite email to a colleague about {}.
Tell me a short story in which {} plays an important part.
What is the history of {}?
Why does {} matter today?
List three common misunderstandings about {} and correct them.
Write an outline for a talk about {}.
You are a museum guide. Tell the visitors about {}.
Pretend you are an old sailor and give me your opinion on {}.
Act as a patient teacher and answer a pupil who asks: "What is {}?"
What questions should a journalist ask an expert on {}?
Compare {} with what people did a hundred years ago.
Write a dialogue between two friends who disagree about {}.
Suggest three experiments or activities that help children understand {}.
Summarize what is known about {} in three sentences.
How has {} changed over the last fifty years?
Write a headline and an opening paragraph for an article about {}.
What would happen if {} disappeared tomorrow?
Give step-by-step advice to a beginner who wants to learn about {}.
Is {} good or bad for society? Give reasons for both sides.
Write a product description inspired by {}.
Describe the role of {} in the economy.
Which famous people are connected with {}, and how?
Write a speech of one minute that praises {}.
What are the scientific principles behind {}?"""

TOPICS = """the water cycle|photosynthesis|black holes|the French Revolution|electric cars|tea|chess|gravity
vaccines|the Roman Empire|climate change|bicycles|the printing press|volcanoes|jazz music|machine learning
the stock market|inflation|recycling|the human heart|dreams|whales|bridges|the internet|solar panels|coffee
public libraries|earthquakes|the Olympic Games|DNA|the Moon|rainforests|bread|Shakespeare|robots|democracy
remote work|social media|antibiotics|the Silk Road|honey bees|glaciers|the piano|chocolate|marathon running
nuclear power|ancient Egypt|sleep|tides|the Great Wall of China|supply and demand|meditation|penguins|maps
the telescope|opera|mushrooms|trains|gardening|insurance|quantum computers|lighthouses|the immune system|rice
renewable energy|friendship|desert animals|the Renaissance|video games|microscopes|rainbows|wool|paper money
school uniforms|city parks|street food|the Industrial Revolution|hurricanes|dinosaurs|batteries|submarines
plastic waste|the brain|mountain climbing|cheese|satellites|poetry|the periodic table|magnetism
public transport|philosophy|fairy tales|hand-written letters|elephants|airplanes|the violin|lightning
time zones|working in teams"""

CODE = """Write a Python function that {}.
Write a JavaScript function that {}.
How can I write a program in C++ that {}?
Explain with an example how a program {}."""

TASKS = """reverses a string|counts the words in a text file|checks whether a number is prime
sorts a list of names
finds the largest element of a list|computes the factorial of a number|removes duplicates from a list
merges two sorted lists|converts Celsius to Fahrenheit|checks whether a word is a palindrome
reads a CSV file and prints a column|computes the greatest common divisor of two numbers
finds the second smallest number|counts vowels in a sentence|generates a random password
prints the first n Fibonacci numbers|searches a sorted list by halving it|groups words by their first letter
flattens a nested list|rotates a matrix by ninety degrees|computes the average of a list
validates an email address|transposes a matrix|finds the longest common prefix of some words"""


def items(text: str) -> list[str]:
    return [item for line in text.splitlines() for item in line.split("|")]


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text("utf-8").strip().split("\n")]


def question(text: str) -> str:
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith("?") else "?")


def german(path: Path, rng: np.random.Generator) -> Iterator[str]:
    """Prompts over one to four joined sentences, as a user would paste them."""
    sentences = [line.split("\t")[1] for line in path.read_text("utf-8").strip().split("\n")]
    sentences = [s for s in sentences if len(s.split()) >= 4]
    order, at = rng.permutation(len(sentences)), 0
    while at + 4 <= len(order):
        n = int(rng.integers(1, 5))
        yield "Translate German to English: " + " ".join(sentences[i] for i in order[at : at + n])
        at += n


def gather(data: Path, rng: np.random.Generator) -> dict[str, list[str]]:
    """All candidates by kind."""
    rows = lambda name: read(data / name)
    web = json.loads((data / "webquestions_test.json").read_text("utf-8"))
    code = [frame.format(task) for frame in CODE.splitlines() for task in items(TASKS)]
    return {
        "math": [row["question"] for row in rows("gsm8k_train.jsonl")],
        "qa": [question(row["question"]) for row in rows("nq_open_dev.jsonl")]
        + [question(row["qText"]) for row in web],
        "translation": list(german(data / "tatoeba_en_de_train.tsv", rng)),
        "code": code + [row["text"] for row in rows("mbpp.jsonl")],
        "chat": [frame.format(topic) for frame in FRAMES.splitlines() for topic in items(TOPICS)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    data = parser.parse_args().data
    bench = [row["turns"] for row in read(data / "spec_bench.jsonl")]
    held_out = {turn.strip().lower() for turns in bench[::2] for turn in turns}
    rng = np.random.default_rng(0)
    chosen = [("spec_bench", turns[0]) for turns in bench[1::2]]
    for kind, texts in gather(data, rng).items():
        fresh = sorted({text for text in texts if text.strip().lower() not in held_out})
        picked = rng.permutation(len(fresh))[: COUNTS[kind]]
        chosen += [(kind, fresh[i]) for i in picked]
    for i in rng.permutation(len(chosen)):
        kind, text = chosen[i]
        sys.stdout.write(json.dumps({"kind": kind, "prompt": text}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
