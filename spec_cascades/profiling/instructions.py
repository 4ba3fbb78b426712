"""The HLO that a trace carries: from an instruction's name to the operation it was made for. Imports no jax.

A trace (XSpace of TensorFlow's profiler) names the instructions that ran, and holds the programs they belong
to as HLO protos beside them; `jax.profiler.ProfileData` shows the former only. These are the few fields of
the public schemas `xplane.proto`, `hlo.proto` and `xla_data.proto` that lead from one to the other.
"""

from collections.abc import Iterator

Field = tuple[int, int | bytes]

PLANES, PLANE_NAME, EVENT_METADATA, STAT_METADATA = 1, 2, 4, 5
KEY, VALUE = 1, 2
METADATA_NAME, METADATA_STATS = 2, 5
STAT_ID, STAT_BYTES = 1, 6
MODULE, COMPUTATIONS, INSTRUCTIONS = 1, 3, 2
COMPUTATION_ID = 5
INSTRUCTION_NAME, INSTRUCTION_METADATA, OP_NAME, CALLED = 1, 7, 2, 38

PROGRAMS = "/host:metadata"
PROTO = "Hlo Proto"


def origins(space: bytes) -> dict[str, dict[str, str]]:
    """Of every program of a serialized XSpace, as 'module(id)': instruction name to op_name ("" for none).

    An op_name is the path of scopes to the operation, 'jit(run)/while/body/draft/dot_general'; of a fusion it
    is that of its root. Raises ValueError for bytes that are no protocol buffer.
    """
    planes = [dict_of(plane) for plane in all_of(space, PLANES)]
    found = {}
    for plane in planes:
        if plane.get(PLANE_NAME, [b""])[0].decode() != PROGRAMS:
            continue
        kinds = {i: one(kind, METADATA_NAME) for i, kind in entries(plane, STAT_METADATA)}
        for _, event in entries(plane, EVENT_METADATA):
            for stat in all_of(event, METADATA_STATS):
                told = dict_of(stat)
                if kinds.get(told.get(STAT_ID, [0])[0]) == PROTO.encode():
                    found[one(event, METADATA_NAME).decode()] = _instructions(told[STAT_BYTES][0])
    return found


def _instructions(hlo: bytes) -> dict[str, str]:
    """A fusion that was left without an op_name has that of the last instruction in it that has one."""
    each, inside = [], {}
    for computation in all_of(one(hlo, MODULE), COMPUTATIONS):
        told = dict_of(computation)
        found = [dict_of(i) for i in told.get(INSTRUCTIONS, [])]
        each += found
        inside[told.get(COMPUTATION_ID, [0])[0]] = next((o for i in reversed(found) if (o := _own(i))), "")
    called = lambda i: next((o for n in _called(i) if (o := inside.get(n, ""))), "")
    return {i[INSTRUCTION_NAME][-1].decode(): _own(i) or called(i) for i in each}


def _own(instruction: dict[int, list]) -> str:
    return one(instruction.get(INSTRUCTION_METADATA, [b""])[-1], OP_NAME).decode()


def _called(instruction: dict[int, list]) -> Iterator[int]:
    """Ids of the computations that an instruction calls: numbers apart, or packed in one field."""
    for value in instruction.get(CALLED, []):
        at = 0
        while isinstance(value, bytes) and at < len(value):
            number, at = _varint(value, at)
            yield number
        if isinstance(value, int):
            yield value


# ------------------------------------------------------------------------------------------
# The wire format of protocol buffers


def entries(message: dict[int, list], field: int) -> Iterator[tuple[int, bytes]]:
    """The items of a map from integers to messages."""
    for entry in message.get(field, []):
        told = dict_of(entry)
        yield told.get(KEY, [0])[0], told.get(VALUE, [b""])[0]


def dict_of(message: bytes) -> dict[int, list]:
    """Every field's values in order."""
    found: dict[int, list] = {}
    for number, value in fields(message):
        found.setdefault(number, []).append(value)
    return found


def all_of(message: bytes, field: int) -> list:
    return [value for number, value in fields(message) if number == field]


def one(message: bytes, field: int) -> bytes:
    """The last value of a field of bytes; b"" where it is absent."""
    return next(reversed(all_of(message, field)), b"")


def fields(message: bytes) -> Iterator[Field]:
    """(number, value): an integer, or the bytes of a string, a message or a fixed-width number."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield number, value
            continue
        if kind not in (1, 2, 5):
            raise ValueError(f"wire type {kind} at byte {at}: not a protocol buffer of this kind")
        size, at = _varint(message, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
        if at + size > len(message):
            raise ValueError(f"a field of {size} bytes at byte {at} of {len(message)}: cut short")
        yield number, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message):
        byte = message[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at
    raise ValueError(f"a number at byte {at} of {len(message)}: cut short")
