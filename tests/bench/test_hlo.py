from bench.hlo import kernels

PROGRAM = """\
HloModule jit_f, is_scheduled=true, entry_computation_layout={(f32[4,8]{1,0})->f32[4,8]{1,0}}

%fused_computation (param_0: f32[4,8]) -> f32[4,8] {
  %param_0 = f32[4,8]{1,0} parameter(0)
  ROOT %exp = f32[4,8]{1,0} exponential(%param_0)
}

%parallel (p: f32[4,8]) -> f32[4,8] {
  %p = f32[4,8]{1,0} parameter(0)
  ROOT %inner = f32[4,8]{1,0} fusion(%p), kind=kLoop, calls=%fused_computation
}

%body (state: (s32[], f32[4,8])) -> (s32[], f32[4,8]) {
  %state = (s32[], f32[4,8]{1,0}) parameter(0)
  %x = f32[4,8]{1,0} get-tuple-element(%state), index=1
  %y = f32[4,8]{1,0} fusion(%x), kind=kLoop, calls=%fused_computation
  ROOT %next = (s32[], f32[4,8]{1,0}) tuple(%x, %y)
}

%condition (state.1: (s32[], f32[4,8])) -> pred[] {
  %state.1 = (s32[], f32[4,8]{1,0}) parameter(0)
  ROOT %less = pred[] compare(%state.1, %state.1), direction=LT
}

ENTRY %main (arg: f32[4,8]) -> f32[4,8] {
  %arg = f32[4,8]{1,0} parameter(0), parameter_replication={false}
  %zero = f32[] constant(0)
  %a = f32[4,8]{1,0} fusion(%arg), kind=kLoop, calls=%fused_computation, metadata={op_name="a(b)"}
  %both = (f32[4,8]{1,0}, /*index=1*/f32[4,8]{1,0}) fusion(%a), kind=kLoop, calls=%fused_computation
  %view = f32[32]{0} bitcast(%a)
  %product = f32[4,4]{1,0} dot(%a, %a), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  %shared = f32[4,8]{1,0} call(%a), to_apply=%parallel
  %loop = (s32[], f32[4,8]{1,0}) while(%both), condition=%condition, body=%body
  ROOT %last = f32[4,8]{1,0} get-tuple-element(%loop), index=1
}
"""


def test_counts_what_runs():
    # a, both, dot; the fusion inside the call; the fusion and the compare of the loop
    assert kernels(PROGRAM) == 6


def test_nothing_in_nothing():
    assert kernels("") == 0
