"""How plans, kernels and graphs are written: the layer norm of the documentation, line by line."""

from __future__ import annotations

import textwrap

import pytest

from tests.report import by_hand
from tf_stitch.debug.graph_text import print_clustering, print_graph, print_rewritten
from tf_stitch.ir.body import BodyBuilder
from tf_stitch.ir.types import DType, TensorType, shape_of
from tf_stitch.lower.common import lower
from tf_stitch.lower.cpu import schedule
from tf_stitch.lower.printer import print_kernel, print_schedules
from tf_stitch.ops import FUNCTIONS, REDUCERS
from tf_stitch.plan.groups import plan_groups
from tf_stitch.plan.plan import StitchPlan
from tf_stitch.plan.printer import print_plan
from tf_stitch.plan.target import Target


@pytest.fixture
def layer_norm() -> StitchPlan:
    """(x - mean(x)) * rsqrt(variance(x)) * gamma over f32[B, 768]."""
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x, gamma = (b.input(TensorType(DType.F32, shape_of(*dims))) for dims in (("B", 768), (768,)))
    count = b.constant(768, DType.F32)
    b.origin = "mean"
    mean = b.apply("div", b.reduce("sum", x, [1], keep_dims=True), count)
    b.origin = "centred"
    centred = b.apply("sub", x, mean)
    b.origin = "variance"
    variance = b.apply("div", b.reduce("sum", b.apply("square", centred), [1], keep_dims=True), count)
    b.origin = "scale"
    scale = b.apply("rsqrt", variance)
    b.origin = "normal"
    normal = b.apply("mul", centred, scale)
    b.origin = "y"
    return plan_groups(b.finish([b.apply("mul", normal, gamma)]))


def golden(text: str) -> str:
    return textwrap.dedent(text).lstrip("\n")


def test_plan(layer_norm):
    assert print_plan(layer_norm) == golden(
        """
        group 0: for a0 < B, for each a1 < 768; dominant %3, sub-dominant %10 %17
          %0[a0, a1]   input 0          f32[B, 768]  load
          %1[a1]       input 1          f32[768]     load
          %2[]         constant 768.0   f32[]
          %3[a0, 0]    sum %0 over (1)  f32[B, 1]    regional            mean
          %4[0, 0]     reshape %2       f32[1, 1]    regional            mean
          %5[a0, 0]    broadcast %4     f32[B, 1]    regional            mean
          %6[a0, 0]    div %3 %5        f32[B, 1]    regional            mean
          %7[a0, a1]   broadcast %6     f32[B, 768]  local               centred
          %8[a0, a1]   sub %0 %7        f32[B, 768]  local               centred
          %9[a0, a1]   square %8        f32[B, 768]  local               variance
          %10[a0, 0]   sum %9 over (1)  f32[B, 1]    regional            variance
          %11[a0, 0]   div %10 %5       f32[B, 1]    regional            variance
          %12[a0, 0]   rsqrt %11        f32[B, 1]    regional            scale
          %13[a0, a1]  broadcast %12    f32[B, 768]  local               normal
          %14[a0, a1]  mul %8 %13       f32[B, 768]  local               normal
          %15[0, a1]   reshape %1       f32[1, 768]  local               y
          %16[a0, a1]  broadcast %15    f32[B, 768]  local               y
          %17[a0, a1]  mul %14 %16      f32[B, 768]  independent, store  y

        scratch: none
        """
    )


def test_kernel(layer_norm):
    kernel, schedules = schedule(lower(layer_norm, "layer_norm"), Target.baseline("x86-64-v3"))
    assert print_kernel(kernel) == golden(
        """
        kernel layer_norm
          input 0: f32[B, 768]
          input 1: f32[768]
          output 0: f32[B, 768]
          B = dim 0 of input 0
          guard: dim 1 of input 0 is 768
          guard: dim 0 of input 1 is 768
          output 0 may take the buffer of input 0

        nest 0: for B, for each 768
          sweep 0, for each element
            v_in = load input v_in[768, 1] : f32
            sum(mean) <- v_in
          sweep 1, for each row
            mean = result of sum(mean) : f32
            v = 768.0 : f32
            mean_2 = div mean v : f32
          sweep 1, for each element
            v_in = load input v_in[768, 1] : f32
            centred = sub v_in mean_2 : f32
            variance = square centred : f32
            sum(variance_2) <- variance
          sweep 2, for each row
            mean = result of sum(mean) : f32
            v = 768.0 : f32
            mean_2 = div mean v : f32
            variance_2 = result of sum(variance_2) : f32
            variance_3 = div variance_2 v : f32
            scale = rsqrt variance_3 : f32
          sweep 2, for each element
            v_in = load input v_in[768, 1] : f32
            centred = sub v_in mean_2 : f32
            normal = mul centred scale : f32
            v_in_2 = load input v_in_2[0, 1] : f32
            y = mul normal v_in_2 : f32
            store output y_out[768, 1] <- y
        """
    )
    assert print_schedules(schedules).startswith("nest 0 runs rows: ")


def test_graph():
    graph = by_hand.layer_norm()
    lines = print_graph(graph).splitlines()
    assert lines[0] == "graph serve"
    assert "epsilon = Const() {dtype=f32, value=0.001} : f32[]" in lines
    assert "mean = Mean(product:0, axis:0) {T=f32, Tidx=i32, keep_dims=True} : f32[batch, 1]" in lines
    assert lines[-1] == "return y:0"


def test_clusters_and_rejections():
    seen = {}
    (made,) = by_hand.stitched(by_hand.layer_norm(), observer=seen.__setitem__)
    text = print_clustering(made.graph, seen["clustering"])
    assert text.startswith("cluster y\n  mean: Mean\n")
    assert "  output y:0: f32[batch, 64]\n" in text
    assert "product: MatMul is not stitched: NOT_PROFITABLE" in text


def test_rewritten():
    (made,) = by_hand.stitched(by_hand.layer_norm())
    text = print_rewritten(made)
    assert "stitch/y = StitchOp(product:0, gamma:0)" in text
    assert text.endswith("return stitch/y:0\n")
    assert "Rsqrt" not in text
