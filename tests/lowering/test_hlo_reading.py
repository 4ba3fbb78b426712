"""What is read off HLO text: loops within loops, what is exchanged, what is copied."""

import pytest

from spec_cascades.lowering import hlo

TEXT = """HloModule jit_run

%layers (p: (s32[], bf16[3,2,4])) -> (s32[], bf16[3,2,4]) {
  %p = (s32[], bf16[3,2,4]) parameter(0)
  %ar = (f32[2,8]{1,0}, f32[2,8]{1,0}) all-reduce-start(%x), to_apply=%add
  %done = f32[2,8]{1,0} all-reduce-done(%ar)
  %f = bf16[2,4]{1,0} fusion(%p), kind=kLoop, calls=%inner
}

%fewer (q: (s32[], bf16[3,2,4])) -> pred[] {
  %c = s32[] constant(6)
  %i = s32[] get-tuple-element(%q), index=0
  ROOT %lt = pred[] compare(%i, %c), direction=LT
}

%inner (r: bf16[3,2,4]) -> bf16[2,4] {
  %t = bf16[4,2,3]{2,1,0} transpose(%r), dimensions={2,1,0}
}

%step (s: (s32[], bf16[3,2,4])) -> (s32[], bf16[3,2,4]) {
  %w = (s32[], bf16[3,2,4]) while(%s), condition=%fewer, body=%layers
  %g = f32[2,5,64]{2,1,0} all-gather(%y), dimensions={2}
}

%more (u: (s32[], bf16[3,2,4])) -> pred[] {
  ROOT %any = pred[] and(%a, %b)
}

%add (a: f32[], b: f32[]) -> f32[] {
  ROOT %sum = f32[] add(%a, %b)
}

ENTRY %main (z: bf16[3,2,4]) -> bf16[3,2,4] {
  %cp = bf16[3,2,4]{2,1,0} copy(%z)
  %all = (s32[], bf16[3,2,4]) while(%k), condition=%more, body=%step
}
"""


@pytest.fixture(scope="module")
def read():
    return hlo.inside_loops(TEXT)


def test_loops_are_walked_with_what_they_call(read):
    lines, loops = read
    assert loops == 2
    assert any("transpose(" in line.text for line in lines)
    assert not any("copy(%z)" in line.text for line in lines)


def test_what_is_exchanged_is_counted_once_and_by_layer(read):
    assert hlo.collectives(read[0]) == [
        hlo.Collective("all-reduce", "f32[2,8]", 64, 6),
        hlo.Collective("all-gather", "f32[2,5,64]", 2560, 1),
    ]


def test_what_runs_once_a_call_is_apart():
    assert len(hlo.copies(hlo.entry(TEXT), [(2, 3, 4)])) == 1


def test_a_copy_in_another_order_of_axes_is_found(read):
    assert len(hlo.copies(read[0], [(2, 3, 4)])) == 1
    assert hlo.copies(read[0], [(2, 5, 64), (2, 4)]) == []
