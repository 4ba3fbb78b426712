"""A run folder: the configuration it belongs to, and an append-only log of finished work.

OUT/config.yaml names the run; OUT/examples.jsonl gains one line per finished batch, on disk before the next
begins. A process may die at any moment: what a line says is done stays done, and a torn last line never was.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import MISSING, fields
from pathlib import Path
from typing import IO, Any

import yaml

from spec_cascades.config import ConfigError, Decoding, Models, plain
from spec_cascades.tasks.settings import Task

EXAMPLES, RECORDS, CONFIG = "examples.jsonl", "records.jsonl", "config.yaml"
SECTIONS = {"models": Models, "base": Decoding, "decoding": Decoding, "drawn": Decoding, "task": Task}
"""Sections of a configuration whose keys have defaults, by name."""


class Log:
    """Appends JSON lines durably; `lines` are those found at opening and those added since."""

    def __init__(self, file: IO[bytes], lines: list[dict[str, Any]]) -> None:
        self._file = file
        self.lines = lines

    def append(self, line: dict[str, Any]) -> None:
        """Writes one line and returns once it is on disk."""
        data = json.dumps(plain(line), ensure_ascii=False, allow_nan=False)
        self._file.write(data.encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.lines.append(json.loads(data))


@contextmanager
def opened(folder: Path, config: dict[str, Any]) -> Iterator[Log]:
    """The log of a run folder, made for `config` or left by an earlier run of the very same one.

    Raises ConfigError, touching nothing, when the folder belongs to another configuration, is in use by
    another process, or holds a damaged line other than the last.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _claim(folder, plain(config))
    with open(folder / EXAMPLES, "a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"output: another process is writing to {folder}") from None
        yield Log(file, _recover(file, folder / EXAMPLES))


def _claim(folder: Path, config: dict[str, Any]) -> None:
    path = folder / CONFIG
    if not path.exists():
        if (folder / EXAMPLES).exists():
            raise ConfigError(f"output: {folder} holds {EXAMPLES} but no {CONFIG}; give another folder")
        return write_atomically(path, yaml.safe_dump(config, sort_keys=False, allow_unicode=True))
    stored = yaml.safe_load(path.read_text(encoding="utf-8"))
    different = sorted(_differences(_grown(stored, config), config))
    if different:
        raise ConfigError(
            f"output: {folder} belongs to another configuration (it differs in {', '.join(different)}); "
            "give another folder, or the configuration it was begun with"
        )


def _grown(stored: dict[str, Any], asked: dict[str, Any]) -> dict[str, Any]:
    """A stored configuration with the keys that were added to the schema since, at their defaults."""
    grown = {}
    for key, section in SECTIONS.items():
        if isinstance(stored.get(key), dict) and isinstance(asked.get(key), dict):
            known = {name: value for name, value in _defaults(section).items() if name in asked[key]}
            grown[key] = plain(known) | stored[key]
    return stored | grown


def _defaults(section: type) -> dict[str, Any]:
    made = [(f.name, f.default, f.default_factory) for f in fields(section)]
    own = {name: value if factory is MISSING else factory() for name, value, factory in made}
    return {name: value for name, value in own.items() if value is not MISSING}


def _differences(a: Any, b: Any, where: str = "") -> Iterator[str]:
    if isinstance(a, dict) and isinstance(b, dict):
        for key in a.keys() | b.keys():
            yield from _differences(a.get(key), b.get(key), f"{where}.{key}" if where else str(key))
    elif a != b:
        yield where


def _recover(file: IO[bytes], path: Path) -> list[dict[str, Any]]:
    """The whole lines of the log; a torn last one is cut off."""
    file.seek(0)
    whole = _whole(file.read())
    lines = list(_parse(whole, path))
    file.truncate(len(whole))
    return lines


def _whole(data: bytes) -> bytes:
    """Without a torn last line."""
    return data[: data.rfind(b"\n") + 1]


def _parse(data: bytes, path: Path) -> Iterator[dict[str, Any]]:
    for n, line in enumerate(data.split(b"\n")[:-1], 1):
        try:
            yield json.loads(line)
        except ValueError as error:
            raise ConfigError(f"{path}:{n}: damaged line ({error}); mend or remove it to go on") from None


def read_lines(folder: Path) -> list[dict[str, Any]]:
    """The whole lines of a run folder's log, which may still grow. Raises ConfigError when there is none."""
    path = folder / EXAMPLES
    if not path.is_file():
        raise ConfigError(f"no log at {str(path)!r}: nothing of this run is done")
    return list(_parse(_whole(path.read_bytes()), path))


def store(folder: Path, config: dict[str, Any], lines: list[dict[str, Any]]) -> None:
    """A run folder of work that was done elsewhere, as if it had been done in it.

    Raises ConfigError, touching nothing, where the folder holds another run, or other work.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _claim(folder, plain(config))
    text = "".join(json.dumps(plain(x), ensure_ascii=False, allow_nan=False) + "\n" for x in lines)
    path = folder / EXAMPLES
    if path.exists() and path.read_text(encoding="utf-8") != text:
        raise ConfigError(f"output: {folder} holds work of its own; give another folder")
    write_atomically(path, text)


def write_atomically(path: Path, data: str | bytes) -> None:
    """The whole of it (text as UTF-8) or what was there before, never a part; on disk on return."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".part")
    with open(beside, "wb") as file:
        file.write(data.encode() if isinstance(data, str) else data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


def write_records(path: Path, records: list[dict[str, Any]]) -> None:
    """One JSON line a record, the file replaced as a whole."""
    lines = [json.dumps(plain(record), ensure_ascii=False, allow_nan=False) for record in records]
    write_atomically(path, "\n".join(lines) + "\n")


def read_records(path: Path) -> list[dict[str, Any]]:
    """The records of a file, or of a run folder. Raises ConfigError when there are none to read."""
    file = path / RECORDS if path.is_dir() else path
    if not file.is_file():
        raise ConfigError(f"no records at {str(file)!r}; give a run folder or a {RECORDS} file")
    records = list(_parse(file.read_bytes().rstrip(b"\n") + b"\n", file))
    for n, record in enumerate(records, 1):
        if not (isinstance(record, dict) and {"name", "decoding", "quality"} <= record.keys()):
            raise ConfigError(f"{file}:{n}: not a record of this program (no name, decoding and quality)")
    return records
