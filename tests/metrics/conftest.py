import pytest
from shared_data import folder


@pytest.fixture(scope="session")
def data():
    """The folder of real data sets; tests that need it are skipped where it is absent."""
    return folder()
