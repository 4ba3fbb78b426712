import importlib.util

import pytest
from shared_data import folder


@pytest.fixture(scope="session")
def data():
    """The folder of real data sets; tests that need it are skipped where it is absent."""
    return folder()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    """A test that asks for ROUGE where its package is not installed is skipped, whatever the task."""
    try:
        return (yield)
    except ModuleNotFoundError as error:
        if "rouge-score" not in str(error) or importlib.util.find_spec("rouge_score") is not None:
            raise
        pytest.skip(str(error))
