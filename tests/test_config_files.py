"""Every configuration that ships: it loads, and the paper's say what the paper did."""

from pathlib import Path

import pytest

from spec_cascades import config
from spec_cascades.audit.settings import Audit
from spec_cascades.config import expand
from spec_cascades.distill.settings import Distill
from spec_cascades.planning.settings import Plan
from spec_cascades.replay.settings import Replay
from spec_cascades.reproduce import Experiment, columns
from spec_cascades.simulate.settings import Simulate
from spec_cascades.train.settings import Train
from spec_cascades.tuning.settings import Tune

CONFIGS = Path(__file__).parents[1] / "configs"


def schema_of(path):
    folders = {
        **{"paper": Experiment, "embedded": Experiment, "distill": Distill, "train": Train},
        "plan": Plan,
    }
    own = {
        CONFIGS / "smollm2.yaml": config.Generate,
        CONFIGS / "checks" / "audit.yaml": Audit,
        CONFIGS / "checks" / "replay.yaml": Replay,
        CONFIGS / "checks" / "tune.yaml": Tune,
        CONFIGS / "simulate" / "embedded.yaml": Simulate,
        CONFIGS / "simulate" / "fleet.yaml": Simulate,
    }
    return own.get(path) or folders.get(path.parent.name, config.Sweep)


FILES = sorted(p for p in CONFIGS.rglob("*") if p.suffix in (".yaml", ".gin"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(CONFIGS)))
def test_every_file_loads_and_a_gin_file_is_its_twin(path):
    if path.suffix == ".gin":
        pytest.importorskip("gin", reason="gin files need gin-config")
    loaded = config.load(schema_of(path), path)
    if path.suffix == ".gin":
        assert loaded == config.load(schema_of(path), path.with_suffix(".yaml"))


def test_every_file_of_the_paper_has_a_twin_that_runs_here():
    names = lambda folder: {p.stem for p in (CONFIGS / folder).glob("*.yaml")}
    assert names("paper") == names("embedded")
    t5 = {p.stem for p in (CONFIGS / "paper").glob("*.yaml") if "Gemma" not in p.read_text()}
    assert t5 == {p.stem for p in (CONFIGS / "paper").glob("*.gin")}


def test_the_files_state_what_the_paper_did():
    table2 = config.load(Experiment, CONFIGS / "paper" / "table2.yaml")
    found = columns(table2)
    for own in (column.sweep for column in found):
        assert (own.base.temperature, own.base.gamma, own.base.batch_size) == (1.0, 5, 1)
        assert (own.task.limit, own.repeats, own.task.view) == (500, 3, "encdec")
    lengths = {c.sweep.task.name: c.sweep.base.max_new_tokens for c in found}
    assert lengths == {"wmt14_en_de": 80, "xsum": 64, "cnn_dailymail": 128}
    targets = [c.sweep.models.target.rpartition("-")[2] for c in found]
    assert targets == ["large", "xl"] * 3
    rules = {(p.decoding.method, p.decoding.rule) for p in expand(found[0].sweep)}
    for rule in ("lossless", "lossy", "bild", "chow", "diff", "opt", "v1", "v2", "v3"):
        assert ("speculative", rule) in rules
    assert {"target", "drafter", "sequence", "token", "oracle"} <= {method for method, _ in rules}
