"""Sharded loading: over eight devices the same bits as whole, and no more read than is needed."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from spec_cascades.checkpoints import leaves

HERE = Path(__file__).parent
LAYOUTS = ("first", "last", "both", "eight")


def environment(devices):
    """This process's, with the tests' own modules to import and so many virtual CPU devices."""
    path = os.pathsep.join([str(HERE), str(HERE.parent), *filter(None, sys.path)])
    return os.environ | {"PYTHONPATH": path, "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}


@pytest.fixture(scope="module")
def eight(tmp_path_factory):
    """What `placed.py` saw in a process with eight devices."""
    command = [sys.executable, str(HERE / "placed.py"), str(tmp_path_factory.mktemp("placed"))]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(8))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_form_is_the_same_bits_as_whole(eight, layout):
    assert eight["devices"] == 8
    assert len(eight["seen"]) > 20
    for form, layouts in eight["seen"].items():
        seen = layouts[layout]
        assert seen["leaves"] > 5, form
        assert (seen["differ"], seen["elsewhere"]) == ([], []), form
        assert seen["divided"] > seen["leaves"] // 3, f"{form}: nothing was tried"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_several_devices_hold_is_read_once(eight, layout):
    """Every layout but the second repeats its parts on other devices, and all of them the norms."""
    forms = {
        form: layouts[layout] for form, layouts in eight["seen"].items() if form.startswith("safetensors")
    }
    assert len(forms) == 5
    for form, seen in forms.items():
        # Some parts here are of a head's numbers, which are cut out of the whole head.
        most = {"first": 1, "last": 4, "both": 4, "eight": 8}[layout]
        # The untied head of one is compared with the table first.
        compared = 2 * 4 * 32 * 12 if form == "safetensors llama" else 0
        assert seen["stored"] <= seen["read"] - compared <= most * seen["stored"], form
        if form in ("safetensors llama", "safetensors t5"):
            assert seen["read"] - compared == seen["stored"]


def test_another_dtype_is_cast_part_by_part(eight):
    assert eight["bfloat16"] == {"same": True, "dtypes": ["bfloat16"]}


def test_a_layout_that_does_not_divide_is_named_before_anything_is_read(eight):
    assert "final_norm/scale of shape (12,)" in eight["refused"]["said"]
    assert eight["refused"]["read"] == 0


def test_a_process_reads_its_own_share(tmp_path):
    """Two processes, four devices each, hold half of every leaf, and neither reads the other half."""
    for i, seen in enumerate(sharing(tmp_path)):
        assert (seen["process"], seen["devices"], seen["own"]) == (i, 8, 4)
        assert seen["differ"] == []
        assert seen["elsewhere"] == 4 * seen["leaves"], "nothing is with the other"
        assert seen["read"] == seen["stored"] // 2
        assert seen["largest"] == seen["stored_largest"] // 8


def sharing(folder):
    """What each of two connected processes saw."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    command = [sys.executable, str(HERE / "sharing.py"), address, str(folder)]
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(4))
    started = [subprocess.Popen([*command, str(i)], **pipes) for i in range(2)]
    said = [process.communicate() for process in started]
    assert [process.returncode for process in started] == [0, 0], said
    return [json.loads(out.splitlines()[-1]) for out, _ in said]


@pytest.mark.parametrize(("apart", "joined"), [
    ((3, 4), (12,)), ((3, 4, 5), (12, 5)), ((5, 3, 4), (5, 12)), ((1, 4, 5), (4, 5)), ((3, 1), (3,)),
    ((2, 3), (2, 3)), ((2, 3, 2), (12,)),
])  # fmt: skip
def test_parts_of_joined_axes_and_back(apart, joined):
    """Every part of either shape is found within what covers it."""
    value = np.arange(np.prod(apart)).reshape(apart)
    other = value.reshape(joined)
    for index in parts(apart):
        cover, block, inside = leaves.joined_cover(index, apart, joined)
        np.testing.assert_array_equal(other[cover].reshape(block)[inside], value[index])
    for index in parts(joined):
        cover, block, inside = leaves.apart_cover(index, apart, joined)
        np.testing.assert_array_equal(value[cover].reshape(block)[inside], other[index])


def parts(shape):
    """Every part of an array but the empty ones."""
    if not shape:
        return [()]
    own = [slice(i, j) for i in range(shape[0]) for j in range(i + 1, shape[0] + 1)]
    return [(first, *rest) for first in own for rest in parts(shape[1:])]
