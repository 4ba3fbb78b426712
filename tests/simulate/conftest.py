import json

import pytest
from pretend import record

from spec_cascades.simulate import costs


@pytest.fixture
def call_times(tmp_path):
    path = tmp_path / "call_times.jsonl"
    path.write_text(json.dumps(record()) + "\n")
    return path


@pytest.fixture
def table(call_times):
    return costs.read(call_times)
