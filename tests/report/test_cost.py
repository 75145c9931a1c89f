"""Bytes moved, apart and stitched."""

from __future__ import annotations

import pytest

from tf_stitch.ir.body import BodyBuilder
from tf_stitch.ir.types import Dim, DType, TensorType, shape_of
from tf_stitch.ops import FUNCTIONS, REDUCERS
from tf_stitch.plan import cost
from tf_stitch.plan.groups import plan_groups


@pytest.fixture
def build():
    return BodyBuilder(FUNCTIONS, REDUCERS)


def vector(*dims, dtype=DType.F32):
    return TensorType(dtype, shape_of(*dims))


def test_a_chain_moves_its_ends_when_stitched(build):
    x, g = build.input(vector("B", 8)), build.input(vector(8))
    build.origin = "exp"
    y = build.apply("exp", x)
    build.origin = "mul"
    y = build.apply("mul", y, g)
    body = build.finish([y])
    assert str(cost.apart(body)) == f"{4 * 4 * 8}*B + {4 * 8}"
    assert str(cost.stitched(plan_groups(body))) == f"{2 * 4 * 8}*B + {4 * 8}"


def test_a_broadcast_is_read_small(build):
    x, s = build.input(vector("B", 8)), build.input(vector("B", 1))
    build.origin = "add"
    first = build.apply("add", x, s)
    build.origin = "sub"  # shares the broadcast step of s with the node in front
    second = build.apply("sub", x, s)
    body = build.finish([first, second])
    assert str(cost.by_node(body)["sub"]) == f"{(8 + 1 + 8) * 4}*B"


def test_views_and_constants_move_nothing(build):
    x = build.input(vector(4, 6))
    build.origin = "reshape"
    flat = build.reshape(x, shape_of(24))
    build.origin = "double"
    y = build.apply("mul", flat, build.constant(2.0, DType.F32))
    body = build.finish([y])
    assert cost.by_node(body) == {"double": cost.Bytes((Dim(2 * 24 * 4),))}


def test_f16_is_read_as_f16(build):
    x = build.input(vector(32, dtype=DType.F16))
    build.origin = "exp"
    y = build.apply("exp", x)
    build.origin = "log"
    z = build.apply("log", x)
    body = build.finish([y, z])
    assert cost.apart(body).at() == 4 * 32 * 2


def test_scratch_goes_to_memory_and_back(build):
    x = build.input(vector("B", 64))
    build.origin = "mean"
    m = build.reduce("sum", x, [1], keep_dims=True)
    build.origin = "max"  # over the other axis: another loop nest
    y = build.reduce("max", build.apply("sub", x, m), [0])
    plan = plan_groups(build.finish([y]))
    scratch = sum(plan.body.steps[s].type.size.evaluate({"B": 3}) for s in plan.scratch)
    ends = 3 * 64 + 64
    assert cost.stitched(plan).at({"B": 3}) == 4 * (ends + 2 * scratch)


def test_unknown_dims_count_as_one():
    assert cost.UNKNOWN_DIM == 1
    count = cost.Bytes.of([Dim(8, ("B",)), Dim(4, ("B",)), Dim(3), Dim(2, ("B", "S"))])
    assert str(count) == "2*B*S + 12*B + 3"
    assert count.at() == 17
    assert count.at({"B": 10, "S": 2}) == 40 + 120 + 3
    assert str(cost.Bytes()) == "0"
