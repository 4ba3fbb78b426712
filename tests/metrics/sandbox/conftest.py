"""Programs at every level of the sandbox that this machine has."""

import pytest
from jails import SHORT, refused

from spec_cascades.metrics import sandbox


@pytest.fixture(params=sandbox.LEVELS)
def run(request):
    """Programs at one level; at "strong" ones also what audit hooks cannot hold."""
    if why := refused(request.param):
        pytest.skip(why)

    def run(program, limits=SHORT, assertions=""):
        return sandbox._run([program, assertions], limits, request.param)

    run.level = request.param
    return run


@pytest.fixture
def forking(run):
    if run.level != "namespaces":
        pytest.skip("no child processes at this level")
    return run


@pytest.fixture
def strong(run):
    if run.level == "hooks":
        pytest.skip("said to be open by available()")
    return run
