"""One import of seqio and one short run, shared by the tests that need them."""

from dataclasses import asdict

import pytest
import yaml
from copying import LENGTH, PIECES, settings, write_tsv

from spec_cascades.train.settings import Data


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """Training and dev files, and the place of a vocabulary that nobody has built yet."""
    folder = tmp_path_factory.mktemp("copying")
    train, dev = write_tsv(folder / "train.tsv", 700, 0), write_tsv(folder / "dev.tsv", 11, 1)
    return Data(str(train), str(dev), str(folder / "spiece.model"), PIECES, 2, LENGTH, LENGTH)


@pytest.fixture(scope="session")
def task(data):
    """The files as a seqio task."""
    pytest.importorskip("seqio", reason="training data needs the extra [data]")
    from pathlib import Path

    from spec_cascades.tasks import translation
    from spec_cascades.train import vocabulary

    if not Path(data.vocabulary).exists():
        vocabulary.build(Path(data.vocabulary), data.train, data.pieces)
    return translation.register("copying", {"train": data.train, "dev": data.dev}, data.vocabulary, data.join)


@pytest.fixture
def write(tmp_path):
    """Writes settings as YAML and returns the file's path."""

    def _write(given):
        path = tmp_path / "train.yaml"
        path.write_text(yaml.safe_dump(asdict(given)), encoding="utf-8")
        return path

    return _write


@pytest.fixture(scope="session")
def finished(data, task, tmp_path_factory):
    """A run that nobody interrupted, as (settings, the exported folder)."""
    from spec_cascades import train

    folder = tmp_path_factory.mktemp("run")
    given = settings(folder / "out", data, steps=300, save_every=50, eval_every=5, dropout=0.1, peak_lr=4e-2)
    path = folder / "train.yaml"
    path.write_text(yaml.safe_dump(asdict(given)), encoding="utf-8")
    return given, train.run(path)
