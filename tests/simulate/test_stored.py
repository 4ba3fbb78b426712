"""The simulation against times that were measured, once, and are kept in docs/records/simulate."""

from dataclasses import replace
from pathlib import Path

import pytest

from spec_cascades import config, simulate
from spec_cascades.simulate import costs, curves, traces
from spec_cascades.simulate.settings import Simulate

HERE = Path(__file__).parents[2]
STORED = HERE / "docs" / "records" / "simulate"
WITHIN = 0.1


def test_one_request_at_a_time_agrees_with_the_stored_measurements():
    """Each method, in the mean and in the median answer."""
    table = costs.read(STORED / "call_times.jsonl")
    sweep, found = traces.read(STORED / "measured", [])
    methods = {trace.decoding.method for trace in found}
    assert methods == {"target", "speculative", "token", "sequence"}
    assert len(found) >= 6
    assert {"dtype": sweep.models.dtype}.items() <= table.record["models"].items()
    asked = Simulate(run="", call_times="", output="", rates=[1.0])
    for trace in found:
        row = curves.agreement(asked, trace, table)
        assert row["answers"] >= 60
        assert row["mean_ratio"] == pytest.approx(1, abs=WITHIN), trace.name
        assert row["median_ratio"] == pytest.approx(1, abs=WITHIN), trace.name


@pytest.mark.parametrize("name", ["embedded", "fleet"])
def test_the_shipped_configurations_fit_the_stored_measurements(name, monkeypatch):
    monkeypatch.chdir(HERE)
    asked = config.load(Simulate, f"configs/simulate/{name}.yaml")
    short = replace(asked, servers=min(asked.servers, 50), requests=200, rates=asked.rates[:1])
    assert len(simulate.run(short).rows) == 2 * len(simulate.run(short).methods)
