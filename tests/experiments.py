"""An experiment for tests, small and on the embedded task."""

from spec_cascades import config
from spec_cascades.reproduce import Experiment

EVERYDAY = "embedded:en-de-everyday"
POINTS = [
    {"method": "target"},
    {"method": "drafter"},
    {"rule": "lossless"},
    {"rule": "v3", "alpha": [0.2, 0.8]},
    {"method": "target", "min_p": 0.5},
]


def given(tmp_path, **changes):
    """What a file of an experiment says."""
    return {
        "title": "A table",
        "kind": "table2",
        "output": str(tmp_path / "out"),
        "task": {"path": EVERYDAY, "limit": 8},
        "base": {"temperature": 1.0},
        "points": POINTS,
        "columns": [{"name": "one"}, {"name": "Two, joined", "task": {"join": 2, "limit": 6}}],
    } | changes


def experiment(tmp_path, **changes):
    return config.build(Experiment, given(tmp_path, **changes))
