"""Examples for evaluation: source and reference from TSV or JSON lines. Imports no jax and no seqio."""

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from spec_cascades.config import EMBEDDED_TASK, ConfigError, Task
from spec_cascades.tasks.settings import taken

EMBEDDED = {EMBEDDED_TASK: Path(__file__).parents[1] / "embedded" / "en_de_everyday.tsv"}


class Example(NamedTuple):
    """One source text, as the model reads it, and its reference."""

    source: str
    reference: str


def read(task: Task) -> list[Example]:
    """The examples of a task: prefix added, `join` pairs to one, those that `taken` leaves.

    Raises ConfigError naming the file and the line of a malformed pair, or when there is nothing to read.
    """
    path = _locate(task.path)
    parse = _json_line if path.suffix == ".jsonl" else _tsv_line
    pairs = [parse(line, f"{path}:{n}") for n, line in enumerate(_lines(path), 1) if line.strip()]
    joined = [_join(pairs[i : i + task.join]) for i in range(0, len(pairs) - task.join + 1, task.join)]
    if not joined:
        raise ConfigError(
            f"task.path: {path} holds {len(pairs)} pairs, too few for one example of {task.join}"
        )
    return [Example(task.prefix + e.source, e.reference) for e in taken(task, joined)]


def fingerprint(examples: list[Example]) -> str:
    """sha256 over sources and references: equal iff two runs answer the same questions."""
    return hashlib.sha256(json.dumps(examples, ensure_ascii=False).encode()).hexdigest()


def _locate(ref: str) -> Path:
    if ref in EMBEDDED:
        return EMBEDDED[ref]
    if ref.startswith("embedded:"):
        raise ConfigError(f"task.path: {ref!r} is not one of {', '.join(EMBEDDED)}")
    if not Path(ref).is_file():
        raise ConfigError(f"task.path: no file {ref!r}; give a .tsv or .jsonl file or {', '.join(EMBEDDED)}")
    return Path(ref)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8: {error}") from None


def _tsv_line(line: str, where: str) -> Example:
    columns = line.rstrip("\r").split("\t")
    if len(columns) != 2 or not all(c.strip() for c in columns):
        raise ConfigError(
            f"{where}: expected source<TAB>reference, found {len(columns)} columns in {line[:60]!r}"
        )
    return Example(columns[0].strip(), columns[1].strip())


def _json_line(line: str, where: str) -> Example:
    return Example(*_strings(line, where, "input", "target"))


def _strings(line: str, where: str, *keys: str) -> list[str]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{where}: not JSON: {error}") from None
    if not (isinstance(row, dict) and all(isinstance(row.get(key), str) for key in keys)):
        raise ConfigError(f"{where}: expected a string under {' and '.join(keys)} in {line[:60]!r}")
    return [row[key] for key in keys]


def _join(pairs: list[Example]) -> Example:
    return Example(" ".join(p.source for p in pairs), " ".join(p.reference for p in pairs))


class Prompt(NamedTuple):
    """A prompt, and how its decoding differs from that of the others."""

    text: str
    decoding: dict[str, Any]


def read_prompts(path: Path) -> list[Prompt]:
    """Prompts of a file, one a line, or 'input' and, if given, 'decoding' of a .jsonl; blank lines go."""
    if not path.is_file():
        raise ConfigError(f"no file {str(path)!r}")
    lines = [(n, line) for n, line in enumerate(_lines(path), 1) if line.strip()]
    if path.suffix != ".jsonl":
        return [Prompt(line.rstrip("\r"), {}) for _, line in lines]
    return [_prompt(line, f"{path}:{n}") for n, line in lines]


def _prompt(line: str, where: str) -> Prompt:
    (text,) = _strings(line, where, "input")
    changes = json.loads(line).get("decoding") or {}
    if not isinstance(changes, dict):
        raise ConfigError(f"{where}: decoding {changes!r} is not a mapping of keys to values")
    return Prompt(text, changes)
