"""Launches of a program whose HLO is written here: each kind once, and a loop of three turns."""

from __future__ import annotations

import pytest

from bench import kernel_hlo
from bench.kernel_rule import Kind, kernels

PROGRAM = """\
HloModule jit_f, is_scheduled=true, entry_computation_layout={(f32[4,8]{1,0})->f32[4,8]{1,0}}

%elementwise (param_0: f32[4,8]) -> f32[4,8] {
  %param_0 = f32[4,8]{1,0} parameter(0)
  ROOT %exp = f32[4,8]{1,0} exponential(%param_0), metadata={op_name="a(b)"}
}

%product (param_1: f32[4,8], param_2: f32[8,8]) -> f32[4,8] {
  %param_1 = f32[4,8]{1,0} parameter(0)
  %param_2 = f32[8,8]{1,0} parameter(1)
  %dot.1 = f32[4,8]{1,0} dot(%param_1, %param_2), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %add.1 = f32[4,8]{1,0} add(%dot.1, %param_1)
}

%counter (param_3: s32[]) -> s32[] {
  %param_3 = s32[] parameter(0)
  ROOT %add.2 = s32[] add(%param_3, %param_3)
}

%body (state: (s32[], f32[4,8])) -> (s32[], f32[4,8]) {
  %state = (s32[], f32[4,8]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %x = f32[4,8]{1,0} get-tuple-element(%state), index=1
  %next_i = s32[] fusion(%i), kind=kLoop, calls=%counter
  %next_x = f32[4,8]{1,0} fusion(%x), kind=kLoop, calls=%elementwise
  ROOT %next = (s32[], f32[4,8]{1,0}) tuple(%next_i, %next_x)
}

%condition (state.1: (s32[], f32[4,8])) -> pred[] {
  %state.1 = (s32[], f32[4,8]{1,0}) parameter(0)
  %i.1 = s32[] get-tuple-element(%state.1), index=0
  ROOT %less = pred[] compare(%i.1, %i.1), direction=LT
}

%whole_loop (start: (s32[], f32[4,8])) -> (s32[], f32[4,8]) {
  %start = (s32[], f32[4,8]{1,0}) parameter(0)
  ROOT %inner = (s32[], f32[4,8]{1,0}) while(%start), condition=%condition, body=%body
}

ENTRY %main (arg: f32[4,8], w: f32[8,8]) -> f32[4,8] {
  %arg = f32[4,8]{1,0} parameter(0), parameter_replication={false}
  %w = f32[8,8]{1,0} parameter(1)
  %zero = s32[] constant(0)
  %a = f32[4,8]{1,0} fusion(%arg), kind=kLoop, calls=%elementwise, metadata={op_name="a(b)"}
  %p = f32[4,8]{1,0} fusion(%a, %w), kind=kOutput, calls=%product
  %view = f32[32]{0} bitcast(%p)
  %sum = f32[] reduce(%view, %zero), dimensions={0}, to_apply=%counter
  %moved = f32[4,8]{1,0} copy(%p)
  %small = s32[] copy(%zero)
  %first = (s32[], f32[4,8]{1,0}) tuple(%small, %moved)
  %loop = (s32[], f32[4,8]{1,0}) while(%first), condition=%condition, body=%body
  %one = (s32[], f32[4,8]{1,0}) call(%loop), to_apply=%whole_loop, frontend_attributes={xla_cpu_small_call="true"}
  ROOT %last = f32[4,8]{1,0} get-tuple-element(%one), index=1
}
"""
TRACED = {"a": 1, "p": 1, "sum": 1, "moved": 1, "small": 1, "loop": 1, "next_i": 3, "next_x": 3, "less": 4, "one": 1}


def test_each_launch_has_its_kind():
    kinds = {launch.name: launch.kind for launch in kernel_hlo.launches(PROGRAM, TRACED)}
    assert kinds == {
        "a": Kind.MEMORY,
        "p": Kind.COMPUTE,  # a product, with an addition fused into it
        "sum": Kind.MEMORY,  # its result is small, what it reads is not
        "moved": Kind.MEMORY,
        "small": Kind.SMALL,
        "loop": Kind.VIEW,  # what it launches is counted
        "next_i": Kind.SMALL,
        "next_x": Kind.MEMORY,
        "less": Kind.SMALL,
        "one": Kind.MEMORY,  # a loop that XLA compiles to one kernel
    }


def test_a_loop_counts_by_turns():
    assert kernels(kernel_hlo.launches(PROGRAM, TRACED)) == 4 + 3


def test_what_was_launched_must_be_in_the_text():
    with pytest.raises(ValueError, match=r"fusion\.7 was launched"):
        kernel_hlo.launches(PROGRAM, {"fusion.7": 1})
