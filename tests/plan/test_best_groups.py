"""The smallest bodies for which the groups are not the best there are; `python -m bench optimality` finds more."""

from __future__ import annotations

import pytest

from tf_stitch.ir.body import Body, BodyBuilder
from tf_stitch.ir.types import DType, TensorType, shape_of
from tf_stitch.ops import FUNCTIONS, REDUCERS
from tf_stitch.plan import cost
from tf_stitch.plan.groups import plan_groups
from tf_stitch.plan.target import Target
from tf_stitch.plan.verify import verify_plan

TARGET = Target.baseline("x86-64-v3")
DEAR = 3  # the step that two loop nests read


@pytest.fixture
def body() -> Body:
    """A value behind three HEAVY functions, summed over its rows and as a whole."""
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x = b.input(TensorType(DType.F32, shape_of(1024, 256)))
    value = b.apply("tanh", b.apply("erf", b.apply("exp", x)))
    assert value == DEAR
    return b.finish([b.reduce("sum", value, [1]), b.reduce("sum", value, [0, 1])])


@pytest.mark.xfail(reason="what is dear is stored where one group repeats it, not where two groups compute it")
def test_a_dear_value_is_computed_once_for_two_loop_nests(body: Body) -> None:
    assert plan_groups(body).scratch == (DEAR,)


def test_a_cut_that_is_asked_for_is_made(body: Body) -> None:
    plan = plan_groups(body, frozenset([DEAR]))
    verify_plan(plan)
    assert plan.scratch == (DEAR,)
    assert cost.stitched_ns(plan, TARGET) < cost.stitched_ns(plan_groups(body), TARGET)


@pytest.mark.xfail(reason="the group that is made for a cut has no inner loop, so no reduction joins it")
def test_a_cut_is_stored_by_a_loop_that_reduces_it(body: Body) -> None:
    assert len(plan_groups(body, frozenset([DEAR])).groups) == 2


def test_anchors_go_where_they_are_told_to() -> None:
    """Two outputs of one size: one group, unless the second is told to take a new one, the last that is offered."""
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x = b.input(TensorType(DType.F32, shape_of(1024, 256)))
    body = b.finish([b.apply("exp", x), b.apply("tanh", x)])
    assert len(plan_groups(body).groups) == 1
    plan = plan_groups(
        body, frozenset(), lambda options, none: max(options, default=none, key=lambda option: option[0])
    )
    verify_plan(plan)
    assert len(plan.groups) == 2
