"""Rows of files in the layouts that data sets are published in. Every error names the file and the line."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spec_cascades.checks import ConfigError
from spec_cascades.tasks.base import Item, Row


def text_of(path: Path) -> str:
    """The text of a file, unpacked where it ends in .gz. Raises ConfigError: absent or not UTF-8."""
    if not path.is_file():
        raise ConfigError(f"task.path: no file {str(path)!r}")
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        return data.decode("utf-8-sig")
    except (UnicodeDecodeError, OSError, EOFError) as error:
        raise ConfigError(f"{path} cannot be read as UTF-8 text: {error}") from None


def lines_of(path: Path) -> list[tuple[str, str]]:
    """("file:number", line) of every line that is not blank; only a newline ends a line."""
    rows = text_of(path).split("\n")
    return [(f"{path}:{n}", line.rstrip("\r")) for n, line in enumerate(rows, 1) if line.strip()]


def jsonl(path: Path) -> list[Row]:
    """One object a line."""
    return [_object(_parsed(line, where), where) for where, line in lines_of(path)]


def tsv(path: Path, *names: str) -> list[Row]:
    """Columns by name."""
    found = []
    for where, line in lines_of(path):
        columns = line.split("\t")
        if len(columns) != len(names) or not all(c.strip() for c in columns):
            expected = "<TAB>".join(names)
            raise ConfigError(f"{where}: expected {expected}, found {len(columns)} columns in {line[:60]!r}")
        found.append(dict(zip(names, (c.strip() for c in columns), strict=True)))
    return found


def json_list(path: Path, key: str | None = None) -> list[Row]:
    """The list that a JSON file holds, or that it holds under a key."""
    whole = _parsed(text_of(path), str(path))
    rows = whole.get(key) if isinstance(whole, dict) else whole
    if not isinstance(rows, list):
        expected = "a list" if key is None else f"a list, or one under {key!r}"
        raise ConfigError(f"{path}: expected {expected}")
    return [_object(row, f"{path}: entry {n}") for n, row in enumerate(rows)]


def by_suffix(path: Path, key: str | None = None) -> list[Row]:
    """Rows of a .jsonl (or .jsonl.gz), or of a .json list."""
    return json_list(path, key) if path.suffix == ".json" else jsonl(path)


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{where}: not JSON: {error}") from None


def _object(value: Any, where: str) -> Row:
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: expected an object, found {str(value)[:60]!r}")
    return value


def items(rows: list[Row], item: Callable[[Row], Item], where: str, layout: str) -> list[Item]:
    """Every row as an example. Raises ConfigError naming the row that has not the layout."""
    found = []
    for n, row in enumerate(rows):
        try:
            found.append(item(row))
        except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
            raise ConfigError(f"{where}: row {n} is not {layout}: {type(error).__name__} {error}") from None
    return found


def strings(value: Any) -> list[str]:
    """A list of texts, checked. Raises TypeError for anything else."""
    listed = list(value) if not isinstance(value, str) else None
    if listed is None or not all(isinstance(x, str) for x in listed):
        raise TypeError(f"expected a list of texts, found {str(value)[:60]!r}")
    return listed


def text(value: Any) -> str:
    """A text, checked. Raises TypeError for anything else."""
    if not isinstance(value, str):
        raise TypeError(f"expected a text, found {str(value)[:60]!r}")
    return value
