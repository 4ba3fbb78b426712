"""Writes the tables of README.md, the documents and the model card: python scripts/readme.py [--check]

A block lies between `<!-- name -->` and `<!-- end name -->`. With --check nothing is written, and a block
that differs from its records is an error (exit 1), which a test runs.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from spec_cascades.replay import table as priced
from spec_cascades.report import sheets, summary, table
from spec_cascades.report.sheets import Sheet
from spec_cascades.reproduce import running

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "docs" / "records"
CARD = {
    "tatoeba": "Tatoeba test, single sentences",
    "tatoeba-joined": "Tatoeba test, three sentences joined",
    "multi30k": "Multi30k test2016",
    "tatoeba-plain": "Tatoeba test, single sentences; the drafter trained without a teacher",
}


def read(path: Path) -> list[dict[str, Any]]:
    """The records of a JSON-lines file, none if it is absent."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def quickstart() -> str:
    """The summary and tables of the quickstart's sweep."""
    records = read(RECORDS / "quickstart" / "records.jsonl")
    lines = "\n\n".join(summary.lines(records))
    plot = "![quality against time per answer](docs/records/quickstart/report.png)"
    return f"{lines}\n\n{plot}\n\n{table.markdown(records)}"


SPEED = {
    "speed": "the everyday texts",
    "speed_joined": "four sentences of Tatoeba's test set",
    "smollm2": "SmolLM2-135M-Instruct, chat prompts; BLEU is agreement with the target's greedy text",
}
SMOLLM2 = {
    "smollm2": "greedy, `copy:embedded:smollm2-drafter`",
    "smollm2_plain": "the same without copying: `embedded:smollm2-drafter`",
    "smollm2_sampled": "temperature 1, `copy:embedded:smollm2-drafter`",
}


def speed() -> str:
    """What the speed sweeps show, a line each."""
    lines = []
    for name, title in SPEED.items():
        records = read(RECORDS / name / "records.jsonl")
        length = next(r["answer_tokens"] for r in records if r["decoding"]["method"] == "target")
        lines.append(f"* {title} ({length:.0f} tokens an answer). {summary.lines(records)[0]}")
    return "\n".join(lines)


def speed_tables() -> str:
    """The tables of the speed sweeps."""
    tables = {title: table.markdown(read(RECORDS / name / "records.jsonl")) for name, title in SPEED.items()}
    return "\n".join(f"## {title[0].upper()}{title[1:]}\n\n{text}" for title, text in tables.items())


def scores() -> str:
    """The model card's tables, one a test set."""
    parts = [
        f"**{title}**\n\n{table.markdown(records)}"
        for name, title in CARD.items()
        if (records := read(RECORDS / "card" / f"{name}.jsonl"))
    ]
    return "\n".join(parts)


EMBEDDED = {
    "table2": "Table 2",
    "figure3": "Fig. 3 (gamma 1)",
    "gamma3": "Appendix: gamma 3",
    "gamma7": "Appendix: gamma 7",
    "temperature0": "Appendix: greedy",
    "temperature01": "Appendix: temperature 0.1",
    "temperature05": "Appendix: temperature 0.5",
    "top_p": "Appendix: top-p 0.9",
    "gemma_9b": "Appendix to Fig. 3",
}
"""Folders of docs/records/embedded and what they show."""


def reproduced() -> str:
    """Of every experiment on the embedded pair with records: its table or what it shows, and figures."""
    parts = []
    for name, title in EMBEDDED.items():
        folder = RECORDS / "embedded" / name
        if records := read(folder / "records.jsonl"):
            parts += [f"### {title}", *_shown(folder, records)]
    return "\n\n".join(parts)


def _shown(folder: Path, records: list[dict[str, Any]]) -> list[str]:
    numbers = folder / running.NUMBERS
    if numbers.exists():
        told = [running.table2(running.read_numbers(numbers))]
    else:
        panels = running.by_panel(records).items()
        told = [f"* {panel}. {' '.join(summary.lines(group))}" for panel, group in panels]
    place = f"records/embedded/{folder.name}"
    return ["\n".join(told), *(f"![{p.stem}]({place}/{p.name})" for p in sorted(folder.glob("*.png")))]


REPLAYED = {"sampled": "Temperature 1, six texts of each sentence", "greedy": "Greedy"}


def replayed() -> str:
    """The priced points of both stores, beside what was measured."""
    rows = lambda name: [priced.cells(record) for record in read(RECORDS / "replay" / f"{name}.jsonl")]
    found = (Sheet(name, title, priced.HEADINGS, rows(name)) for name, title in REPLAYED.items())
    return "\n".join(map(sheets.markdown, found))


def smollm2() -> str:
    """The SmolLM2 drafter's tables."""
    return "\n".join(
        f"**{title}**\n\n{table.markdown(read(RECORDS / name / 'records.jsonl'))}"
        for name, title in SMOLLM2.items()
    )


BLOCKS = {
    "README.md": {"quickstart": quickstart, "speed": speed},
    "docs/speed.md": {"tables": speed_tables},
    "docs/results.md": {"reproduced": reproduced, "replay": replayed},
    "spec_cascades/embedded/README.md": {"scores": scores},
    "spec_cascades/embedded/smollm2-drafter/README.md": {"scores": smollm2},
}


def filled(text: str, blocks: dict[str, Any]) -> str:
    """The document with each block made anew."""
    for name, make in blocks.items():
        found = re.search(rf"<!-- {name} -->\n(.*?)<!-- end {name} -->", text, re.DOTALL)
        if not found:
            raise ValueError(f"no block <!-- {name} --> ... <!-- end {name} -->")
        text = f"{text[: found.start(1)]}{make()}\n{text[found.end(1) :]}"
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = []
    for name, blocks in BLOCKS.items():
        path = ROOT / name
        old = path.read_text(encoding="utf-8")
        new = filled(old, blocks)
        if new != old:
            stale.append(name)
            if not check:
                path.write_text(new, encoding="utf-8")
    if check and stale:
        print(
            f"tables that differ from their records: {', '.join(stale)}; run scripts/readme.py",
            file=sys.stderr,
        )
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
