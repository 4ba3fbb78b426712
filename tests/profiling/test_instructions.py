"""The few fields of protocol buffers that lead from an instruction to the scope it was written in."""

import pytest

from spec_cascades.profiling import instructions


def varint(n):
    return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + varint(n >> 7)


def put(field, value):
    if isinstance(value, int):
        return varint(field << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(value)) + value


def program(name, ops):
    each = b"".join(put(2, put(1, op) + put(7, put(2, origin))) for op, origin in ops.items())
    hlo = put(1, put(1, "jit_run") + put(3, put(1, "main") + each))
    event = put(2, name) + put(5, put(1, 300) + put(6, hlo)) + put(5, put(1, 4) + put(6, b"other"))
    return put(4, put(1, 9) + put(2, event))


OPS = {"dot.1": "jit(run)/while/body/draft/dot_general", "copy": ""}
KINDS = put(5, put(1, 300) + put(2, put(2, "Hlo Proto"))) + put(5, put(1, 4) + put(2, put(2, "program_id")))
SPACE = put(1, put(2, "/host:CPU")) + put(
    1, put(2, "/host:metadata") + program("jit_run(18)", OPS) + program("jit_run(20)", {"x": "y"}) + KINDS
)


def test_the_origin_of_every_instruction_of_every_program():
    assert instructions.origins(SPACE) == {"jit_run(18)": OPS, "jit_run(20)": {"x": "y"}}


@pytest.mark.parametrize("called", [put(38, 128) + put(38, 77), put(38, varint(77) + varint(128))])
def test_a_fusion_without_an_origin_has_that_of_the_last_in_it(called):
    """Ids apart as well as packed, small as well as large."""
    instruction = lambda name, origin="": put(2, put(1, name) + (put(7, put(2, origin)) if origin else b""))
    fused = instruction("a", "jit(run)/draft/mul") + instruction("b", "jit(run)/draft/add") + instruction("c")
    main = put(2, put(1, "fusion") + called) + instruction("copy")
    module = put(3, put(1, "fused") + put(5, 128) + fused) + put(3, put(1, "main") + put(5, 3) + main)
    found = instructions._instructions(put(1, module))
    assert found["fusion"] == "jit(run)/draft/add"
    assert found["copy"] == ""


def test_programs_are_read_from_their_own_plane_only():
    assert instructions.origins(SPACE.replace(b"/host:metadata", b"/host:metadatb")) == {}


def test_numbers_of_every_width_are_passed_over():
    fixed = varint(9 << 3 | 1) + bytes(8) + varint(10 << 3 | 5) + bytes(4) + put(11, 1 << 40)
    assert list(instructions.fields(fixed)) == [(9, bytes(8)), (10, bytes(4)), (11, 1 << 40)]


@pytest.mark.parametrize(
    ("message", "words"), [(SPACE[:-1], "cut short"), (b"\xff", "cut short"), (b"\x0b", "wire type 3")]
)
def test_other_bytes_are_an_error(message, words):
    with pytest.raises(ValueError, match=words):
        list(instructions.fields(message))
