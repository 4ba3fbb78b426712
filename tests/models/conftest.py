"""The reference that parity tests compare with; without it they skip."""

import pytest


@pytest.fixture(scope="module")
def torch():
    torch = pytest.importorskip("torch", reason="parity needs torch (extra [parity])")
    torch.set_num_threads(1)  # models this small only wait for their threads
    return torch


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers", reason="parity needs transformers (extra [parity])")
