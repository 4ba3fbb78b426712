"""Where the real data sets lie that some tests read: SPEC_CASCADES_DATA, or a folder beside the project."""

import os
from pathlib import Path

import pytest


def folder() -> Path:
    """The folder; the test is skipped where there is none."""
    found = Path(os.environ.get("SPEC_CASCADES_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not found.is_dir():
        pytest.skip("no real data sets: set SPEC_CASCADES_DATA to a folder that holds them")
    return found
