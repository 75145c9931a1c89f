"""Nanoseconds in the cost model: against sums by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tf_stitch.ir.body import Body, BodyBuilder
from tf_stitch.ir.types import DType, TensorType, shape_of
from tf_stitch.ops import FUNCTIONS, REDUCERS
from tf_stitch.plan import cost
from tf_stitch.plan.groups import plan_groups
from tf_stitch.plan.target import Target

TARGET = Target.baseline("x86-64-v3")
ROWS, WIDTH = 2048, 512
COUNT = ROWS * WIDTH
VALUE = 4 * COUNT / TARGET.bytes_per_ns
HEAVY = COUNT * TARGET.heavy_ns


def f32(*dims: int) -> TensorType:
    return TensorType(DType.F32, shape_of(*dims))


def softmax() -> Body:
    """Two nodes: a scaling and a softmax, which evaluates two HEAVY functions: exp and a division."""
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x = b.input(f32(ROWS, WIDTH))
    b.origin = "scale"
    y = b.apply("add", x, x)
    b.origin = "softmax"
    parts = b.apply("exp", b.apply("sub", y, b.reduce("max", y, [1], keep_dims=True)))
    return b.finish([b.apply("div", parts, b.reduce("sum", parts, [1], keep_dims=True))])


def parallel(work: float) -> float:
    return work / TARGET.threads + TARGET.join_ns


def test_apart_is_a_dispatch_and_a_loop_for_each_node() -> None:
    expected = 2 * TARGET.op_ns + parallel(2 * VALUE) + parallel(2 * VALUE + 2 * HEAVY)
    assert cost.apart_ns(softmax(), TARGET) == pytest.approx(expected)


def test_stitched_is_one_dispatch_and_a_loop_for_each_group() -> None:
    expected = TARGET.launch_ns + parallel(2 * VALUE + 2 * HEAVY)
    assert cost.stitched_ns(plan_groups(softmax()), TARGET) == pytest.approx(expected)


def test_what_two_groups_read_is_read_twice() -> None:
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x = b.input(f32(ROWS, WIDTH))
    plan = plan_groups(b.finish([b.reduce("sum", x, [1]), b.reduce("sum", x, [0, 1])]))
    assert [cost.moved_by(plan, g).at() for g in plan.groups] == [4 * COUNT + 4 * ROWS, 4 * COUNT + 4]


def test_what_crosses_is_written_and_read() -> None:
    """rsqrt over [C], before a broadcast over all rows, has a group of its own."""
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x, scale = b.input(f32(ROWS, WIDTH)), b.input(f32(WIDTH))
    plan = plan_groups(b.finish([b.apply("mul", x, b.apply("rsqrt", scale))]))
    assert [cost.moved_by(plan, g).at() for g in plan.groups] == [2 * 4 * WIDTH, 2 * 4 * COUNT + 4 * WIDTH]
    assert [cost.evaluated_by(plan, g).at() for g in plan.groups] == [WIDTH, 0]


def test_a_rows_scalar_is_evaluated_once_a_row() -> None:
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x = b.input(f32(ROWS, WIDTH))
    plan = plan_groups(b.finish([b.apply("mul", x, b.apply("rsqrt", b.reduce("sum", x, [1], keep_dims=True)))]))
    assert [cost.evaluated_by(plan, g).at() for g in plan.groups] == [ROWS]


def test_what_is_stored_in_two_places_is_written_twice() -> None:
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    y = b.apply("neg", b.input(f32(ROWS, WIDTH)))
    (group,) = (plan := plan_groups(b.finish([y, y]))).groups
    assert cost.moved_by(plan, group).at() == 3 * 4 * COUNT


@given(st.lists(st.floats(0, 1e7), min_size=2, max_size=4))
def test_one_loop_is_never_dearer_than_several_that_share_its_work(works: list[float]) -> None:
    assert cost.loop_ns(sum(works), TARGET) <= sum(cost.loop_ns(work, TARGET) for work in works) * (1 + 1e-9)


def test_a_small_loop_stays_in_the_calling_thread() -> None:
    assert cost.loop_ns(100.0, TARGET) == 100.0
    assert cost.loop_ns(1e6, TARGET) == parallel(1e6)
