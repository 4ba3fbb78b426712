"""Held-out prompts as JSON lines: python scripts/spec_bench_prompts.py spec_bench.jsonl > prompts.jsonl

Takes the first turn of even lines (configs/distill/smollm2.yaml trains on the odd ones) that are no eighth
line (what was tuned was tuned on these), of at most `--words` words; `--limit` of them spread over the file.
With `--answers answers.jsonl`, the output of `spec-cascades generate --jsonl` on those prompts, each row also
gets that answer as its target: BLEU then says how much of the target model's own text a method keeps.
"""

import argparse
import json
import sys
from pathlib import Path


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text("utf-8").strip().split("\n")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", type=Path)
    parser.add_argument("--limit", type=int, default=24)
    parser.add_argument("--words", type=int, default=60)
    parser.add_argument("--answers", type=Path)
    a = parser.parse_args()
    rows = [row for n, row in enumerate(lines(a.path)) if n % 2 == 0 and n % 8]
    prompts = [row["turns"][0].replace("\n", " ") for row in rows]
    short = [prompt for prompt in prompts if len(prompt.split()) <= a.words]
    chosen = [short[i * len(short) // a.limit] for i in range(min(a.limit, len(short)))]
    answers = {row["input"]: row["text"] for row in lines(a.answers)} if a.answers else {}
    for prompt in chosen:
        row = {"input": prompt} | ({"target": answers[prompt]} if a.answers else {})
        sys.stdout.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
