"""Convolutions: windows of an image times a filter, of any size; the same bits whoever computes them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.lower.building import compiled, lowered, toolchain
from tests.lower.columns import Kernels, assert_bits_do_not_depend_on_threads, assert_right, inputs_of, kernels_of
from tests.lower.comparison import same_bits
from tf_stitch.ir.body import Body, BodyBuilder
from tf_stitch.ir.graph import Node
from tf_stitch.ir.types import ONE, DType, TensorType, shape_of
from tf_stitch.lower.cpu import Driver
from tf_stitch.lower.kernel import Load, Place, statements
from tf_stitch.lower.products import multiplies_well
from tf_stitch.ops import FUNCTIONS, OPS, REDUCERS
from tf_stitch.ops.opdef import Operands
from tf_stitch.ops.padding import padded

Sides = tuple[int, int]
DEPTHWISE = "DepthwiseConv2dNative"


def builder() -> BodyBuilder:
    return BodyBuilder(FUNCTIONS, REDUCERS)


def f32(*dims: int | str) -> TensorType:
    return TensorType(DType.F32, shape_of(*dims))


def convolved(
    b: BodyBuilder, x: int, w: int, op: str = "Conv2D", *, stride: int = 1, dilation: int = 1, padding: str = "SAME"
) -> int:
    """Of an image with a filter, [height, width, channels, filters]."""
    attributes = {"strides": [1, stride, stride, 1], "dilations": [1, dilation, dilation, 1], "padding": padding}
    node = Node("node", op, (), (), attributes=attributes)
    found = OPS[op].expand(b, Operands(node, (x, w), (None, None), (None, None)))
    assert isinstance(found, int)
    return found


def plain(
    channels: int,
    filters: int,
    sides: Sides = (3, 3),
    op: str = "Conv2D",
    *,
    image: Sides = (9, 14),
    batch: int | str = "B",
    dtype: DType = DType.F32,
    stride: int = 1,
    dilation: int = 1,
    padding: str = "SAME",
) -> Body:
    """relu(conv(x, w) + b)"""
    b = builder()
    shapes = (batch, *image, channels), (*sides, channels, filters), (1,)
    x, w, bias = (b.input(TensorType(dtype, shape_of(*s))) for s in shapes)
    y = convolved(b, x, w, op, stride=stride, dilation=dilation, padding=padding)
    return b.finish([b.apply("relu", b.apply("add", y, bias))])


def depthwise(channels: int, sides: Sides = (3, 3), *, stride: int = 1, padding: str = "SAME") -> Body:
    return plain(channels, 1, sides, DEPTHWISE, stride=stride, padding=padding)


def inverted_residual(channels: int, wide: int, *, batch: int | str = "B") -> Body:
    """x + project(depthwise(expand(x))): what expands it stores into the middle of what the depthwise one reads."""
    b = builder()
    types = f32(batch, 7, 10, channels), f32(1, 1, channels, wide), f32(3, 3, wide, 1), f32(1, 1, wide, channels)
    x, expand, deep, project = (b.input(t) for t in types)
    y = b.apply("relu", convolved(b, x, expand))
    y = b.apply("relu", convolved(b, y, deep, DEPTHWISE))
    return b.finish([b.apply("add", x, convolved(b, y, project))])


def two_of_one_image() -> Body:
    """Filters of two sizes over one image, side by side."""
    b = builder()
    x, v, w = b.input(f32("B", 6, 6, 8)), b.input(f32(3, 3, 8, 16)), b.input(f32(5, 5, 8, 16))
    return b.finish([b.concat([convolved(b, x, v), convolved(b, x, w)], 3)])


def padded_before_it_is_turned() -> Body:
    """A signal, padded and then given its channel: what only moves a concatenation lies where that does."""
    b = builder()
    x, w = b.input(f32("B", 1, 50)), b.input(f32(1, 4, 1, 6))
    signal = b.transpose(padded(b, x, [(0, 0), (0, 0), (3, 3)]), (0, 2, 1))
    batch, length, channels = b.shape(signal)
    return b.finish([convolved(b, b.reshape(signal, (batch, ONE, length, channels)), w, padding="VALID")])


def much_follows() -> Body:
    """A GELU and a sigmoid: more than is printed for each row of a group."""
    b = builder()
    x, w = b.input(f32("B", 8, 8, 4)), b.input(f32(3, 3, 4, 24))
    y = convolved(b, x, w)
    gelu = b.apply("mul", y, b.apply("add", b.apply("erf", b.apply("mul", y, b.constant(0.7071, DType.F32))), y))
    smooth = b.apply("mul", b.apply("sigmoid", gelu), b.apply("tanh", y))
    for n in range(1, 6):
        smooth = b.apply("add", b.apply("mul", smooth, gelu), b.constant(n, DType.F32))
    return b.finish([smooth, gelu])


def a_chain(height: int = 6, width: int = 9) -> Body:
    """Five, one after another."""
    b = builder()
    x = b.input(f32("B", height, width, 8))
    for _ in range(5):
        x = b.apply("relu", convolved(b, x, b.input(f32(3, 3, 8, 8))))
    return b.finish([x])


BODIES: dict[str, Body] = {
    **{f"filters_{n}": plain(3, n) for n in (2, 7, 16, 20, 33, 70)},
    "filters_300": plain(2, 300, image=(3, 5)),
    "one_filter": plain(9, 1),
    "strided": plain(5, 12, stride=2),
    "dilated": plain(4, 24, dilation=2, padding="VALID", image=(9, 17)),
    "dilated_same": plain(3, 8, dilation=3),
    "one_row": plain(6, 9, (1, 5)),
    "one_column": plain(6, 9, (4, 1), padding="VALID"),
    "points_strided": plain(6, 9, (1, 1), stride=2),
    "f64": plain(5, 11, dtype=DType.F64),
    "deep_filters": plain(70, 40, image=(4, 4)),  # more weights than L1 holds
    **{f"depthwise_{n}": depthwise(n) for n in (3, 16, 24, 48, 70, 130, 300)},
    "depthwise_strided": depthwise(40, stride=2),
    "depthwise_5x5": depthwise(24, (5, 5), padding="VALID"),
    "inverted_residual": inverted_residual(8, 24),
    "inverted_residual_wide": inverted_residual(20, 130, batch=2),
    "two_of_one_image": two_of_one_image(),
    "padded_before_it_is_turned": padded_before_it_is_turned(),
    "much_follows": much_follows(),
    "a_chain": a_chain(),
}
SIZES = [{"B": b} for b in (0, 1, 3)]


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    return kernels_of(BODIES)


@pytest.mark.parametrize("name", BODIES)
def test_any_image_and_filter(name: str, kernels: Kernels) -> None:
    made, kernel = kernels[name]
    assert all(map(multiplies_well, made.kernel.nests))
    assert (Driver.PRODUCTS in [s.driver for s in made.schedules]) == (name != "one_filter")
    assert_right(made, kernel, BODIES[name], SIZES)


@pytest.mark.parametrize("name", BODIES)
def test_the_bits_do_not_depend_on_who_computes_them(name: str, kernels: Kernels) -> None:
    assert_bits_do_not_depend_on_threads(kernels[name][1], BODIES[name], SIZES)


@pytest.mark.parametrize("name", ["strided", "depthwise_48", "inverted_residual"])
def test_an_image_has_the_bits_that_it_has_alone(name: str, kernels: Kernels) -> None:
    _, kernel = kernels[name]
    image, *weights = inputs_of(BODIES[name], {"B": 3})
    assert image is not None
    together = kernel([image, *weights])
    for n in range(3):
        for mine, theirs in zip(kernel([image[n : n + 1], *weights]), together, strict=True):
            assert same_bits(mine[0], theirs[n])


@pytest.mark.parametrize("baseline", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_for_every_kind_of_vector(baseline: str) -> None:
    if not toolchain().target.features >= toolchain(baseline).target.features:
        pytest.skip(f"this CPU is no {baseline}")
    bodies = [BODIES[n] for n in ("filters_20", "strided", "depthwise_70", "inverted_residual", "one_filter")]
    made = [lowered(body, target=toolchain(baseline).target) for body in bodies]
    for body, one, kernel in zip(bodies, made, compiled(made, baseline), strict=True):
        assert_right(one, kernel, body, [{"B": 2}])


def test_what_is_computed_is_not_copied_into_its_padding() -> None:
    """Nests: what expands, a border's two, the depthwise one, what projects. None loads without computing."""
    made = lowered(BODIES["inverted_residual"])
    reads = [any(isinstance(s, Load) for s in statements(nest)) for nest in made.kernel.nests]
    assert reads == [True, False, False, True, True]
    assert all(nest.reductions for nest, read in zip(made.kernel.nests, reads, strict=True) if read)


def test_an_image_of_nothing_but_padding() -> None:
    """Each sum has one product, however large the filter is."""
    body = plain(3, 5, (5, 5), image=(1, 1), batch=2)
    made = lowered(body)
    assert_right(made, compiled([made])[0], body, [{}])


def test_a_border_is_zeros_whatever_is_beside_it() -> None:
    """Inside the padding nothing of what was in that memory before shows: NaNs here, in the tests' scratch."""
    body = depthwise(16)
    made = lowered(body)
    x, w, bias = inputs_of(body, {"B": 1})
    assert not np.isnan(compiled([made])[0]([x, w, bias])[0]).any()
    assert [b.place for b in made.kernel.scratch] == [Place.SCRATCH]
