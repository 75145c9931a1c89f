"""Rows of short pieces, read down the columns of all of them: the same answers, whatever the groups' width."""

from __future__ import annotations

import pytest

from tests.lower.building import compiled, lowered
from tests.lower.columns import (
    Kernels,
    assert_bits_do_not_depend_on_threads,
    assert_right,
    inputs_of,
    kernels_of,
)
from tests.lower.comparison import assert_near, same_bits
from tf_stitch.ir.body import Body, BodyBuilder
from tf_stitch.ir.types import Dim, DType, TensorType, shape_of
from tf_stitch.lower.cpu import Driver
from tf_stitch.ops import FUNCTIONS, REDUCERS
from tf_stitch.runtime.reference import evaluate

GROUPS = 6


def builder() -> BodyBuilder:
    return BodyBuilder(FUNCTIONS, REDUCERS)


def group_norm(width: int, dtype: DType = DType.F32) -> Body:
    """A residual, its sum normalised in groups of `width` channels, and the groups' statistics."""
    b = builder()
    channels = GROUPS * width
    image = shape_of("B", "N", channels)
    grouped = (*image[:2], Dim(GROUPS), Dim(width))
    x = b.reshape(b.input(TensorType(dtype, image)), grouped)
    residual = b.reshape(b.input(TensorType(dtype, image)), grouped)
    t = b.widen(b.apply("add", x, residual))
    scale = b.widen(b.input(TensorType(dtype, shape_of(channels))))
    count = b.apply("mul", b.extent(image[1], DType.F32), b.constant(width, DType.F32))
    mean = b.apply("div", b.reduce("sum", t, [1, 3], keep_dims=True), count)
    centred = b.apply("sub", t, mean)
    variance = b.apply("div", b.reduce("sum", b.apply("square", centred), [1, 3], keep_dims=True), count)
    root = b.apply("rsqrt", b.apply("add", variance, b.constant(1e-3, DType.F32)))
    y = b.apply("mul", b.reshape(b.apply("mul", centred, root), image), scale)
    return b.finish([b.convert(y, dtype), mean, root])


def backwards(width: int) -> Body:
    """Group norm's gradient: what forward has left of each group is read."""
    b = builder()
    image = shape_of("B", "N", GROUPS * width)
    grouped = (*image[:2], Dim(GROUPS), Dim(width))
    x = b.reshape(b.input(TensorType(DType.F32, image)), grouped)
    dy = b.reshape(b.input(TensorType(DType.F32, image)), grouped)
    mean = b.input(TensorType(DType.F32, (image[0], Dim(1), Dim(GROUPS), Dim(1))))
    root = b.input(TensorType(DType.F32, (image[0], Dim(1), Dim(GROUPS), Dim(1))))
    centred = b.apply("mul", b.apply("sub", x, mean), root)
    dot = b.reduce("sum", b.apply("mul", dy, centred), [1, 3], keep_dims=True)
    dx = b.apply("mul", b.apply("sub", dy, b.apply("mul", centred, dot)), root)
    return b.finish([b.reshape(dx, image)])


def extremes(dtype: DType, width: int) -> Body:
    b = builder()
    x = b.input(TensorType(dtype, shape_of("N", GROUPS, width)))
    low = b.reduce("min", x, [0, 2], keep_dims=True)
    return b.finish([low, b.reduce("max", x, [0, 2]), b.reduce("any", b.apply("greater", x, low), [0, 2])])


BODIES = {
    **{f"group_norm_{width}": group_norm(width) for width in (9, 10, 16, 31)},
    "group_norm_bf16": group_norm(16, DType.BF16),
    "group_norm_f16": group_norm(10, DType.F16),
    "backwards": backwards(12),
    **{f"extremes_{dtype.value}": extremes(dtype, 9) for dtype in (DType.F32, DType.I32)},
}
SIZES = [{"B": b, "N": n} for b, n in ((0, 3), (1, 0), (1, 1), (3, 17), (2, 600), (1, 4097))]


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    return kernels_of(BODIES)


@pytest.mark.parametrize("name", BODIES)
def test_groups_of_any_width_and_length(name: str, kernels: Kernels) -> None:
    made, kernel = kernels[name]
    assert [s.driver for s in made.schedules] == [Driver.DOWN]
    assert made.schedules[0].bundle > 1
    assert_right(made, kernel, BODIES[name], SIZES)


@pytest.mark.parametrize("name", BODIES)
def test_the_bits_do_not_depend_on_who_computes_them(name: str, kernels: Kernels) -> None:
    assert_bits_do_not_depend_on_threads(kernels[name][1], BODIES[name], SIZES)


def test_a_sample_has_the_bits_that_it_has_alone(kernels: Kernels) -> None:
    _, kernel = kernels["group_norm_16"]
    x, residual, scale = inputs_of(BODIES["group_norm_16"], {"B": 5, "N": 300})
    assert x is not None
    assert residual is not None
    together = kernel([x, residual, scale])
    alone = kernel([x[3:4], residual[3:4], scale])
    for mine, theirs in zip(alone, together, strict=True):
        assert same_bits(mine[0], theirs[3])


def test_pieces_of_two_lines_of_memory_go_by_rows() -> None:
    made = lowered(group_norm(32))
    assert [(s.driver, s.bundle) for s in made.schedules] == [(Driver.ROWS, 1)]


def test_what_is_dear_to_compute_again_keeps_its_tile() -> None:
    """A softmax over a group: its exponentials are read twice."""
    b = builder()
    x = b.input(TensorType(DType.F32, shape_of("N", GROUPS, 12)))
    e = b.apply("exp", b.apply("sub", x, b.reduce("max", x, [0, 2], keep_dims=True)))
    made = lowered(b.finish([b.apply("div", e, b.reduce("sum", e, [0, 2], keep_dims=True))]))
    assert [(s.driver, s.bundle) for s in made.schedules] == [(Driver.ROWS, 1)]
    assert made.kernel.nests[0].tiles


def test_pieces_that_do_not_lie_side_by_side_go_by_rows() -> None:
    """A parameter for each place in a group: neighbouring groups share it."""
    b = builder()
    x = b.input(TensorType(DType.F32, shape_of("N", GROUPS, 12)))
    weights = b.input(TensorType(DType.F32, shape_of(12)))
    made = lowered(b.finish([b.reduce("sum", b.apply("mul", x, weights), [0, 2])]))
    assert [(s.driver, s.bundle) for s in made.schedules] == [(Driver.ROWS, 1)]


def test_one_tensor_with_a_value_for_each_channel_and_the_same_for_each_group_goes_by_rows() -> None:
    """Columns and bundles of it are equally far apart."""
    width = 9
    b = builder()
    x = b.input(TensorType(DType.F32, shape_of("N", GROUPS, width)))
    weights = b.input(TensorType(DType.F32, shape_of(GROUPS * width)))
    of_channels = b.reshape(weights, shape_of(1, GROUPS, width))
    of_groups = b.reshape(b.slice(weights, [0], shape_of(GROUPS)), shape_of(1, GROUPS, 1))
    body = b.finish([b.reduce("sum", b.apply("mul", b.apply("mul", x, of_channels), of_groups), [0, 2])])
    made = lowered(body)
    assert [s.bundle for s in made.schedules] == [1]
    (kernel,) = compiled([made])
    inputs = inputs_of(body, {"N": 40})
    assert_near(kernel(inputs)[0], evaluate(body, inputs, {"N": 40})[0], ulps=64, what="sums", least=1.0)
