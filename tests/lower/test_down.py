"""Reductions down columns: every width, length and dtype, and the same bits however the work is shared out."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from tests.lower.building import compiled, lowered
from tests.lower.columns import (
    Kernels,
    assert_bits_do_not_depend_on_threads,
    assert_right,
    inputs_of,
    kernels_of,
)
from tests.lower.comparison import same_bits
from tests.lower.compiled import Host
from tf_stitch.ir.body import Body, BodyBuilder
from tf_stitch.ir.types import DType, TensorType, shape_of
from tf_stitch.lower.cpu import Driver
from tf_stitch.ops import FUNCTIONS, REDUCERS

FLOATS = (DType.F32, DType.F64, DType.F16, DType.BF16)


def builder() -> BodyBuilder:
    return BodyBuilder(FUNCTIONS, REDUCERS)


def column_sums(dtype: DType) -> Body:
    b = builder()
    x = b.input(TensorType(dtype, shape_of("N", "C")))
    return b.finish([b.reduce("sum", b.widen(x), [0])])


def normalised() -> Body:
    """Batch normalisation in training: two reductions, the second of what the first has given, and all elements."""
    b = builder()
    x = b.input(TensorType(DType.F32, shape_of("N", "C")))
    scale = b.input(TensorType(DType.F32, shape_of("C")))
    count = b.extent(b.shape(x)[0], DType.F32)
    mean = b.apply("div", b.reduce("sum", x, [0], keep_dims=True), count)
    centred = b.apply("sub", x, mean)
    variance = b.apply("div", b.reduce("sum", b.apply("square", centred), [0], keep_dims=True), count)
    root = b.apply("rsqrt", b.apply("add", variance, b.constant(1e-3, DType.F32)))
    return b.finish([b.apply("mul", b.apply("mul", centred, root), scale), mean, variance])


def middle() -> Body:
    """A softmax over the middle axis."""
    b = builder()
    x = b.input(TensorType(DType.F32, shape_of("B", "N", "C")))
    e = b.apply("exp", b.apply("sub", x, b.reduce("max", x, [1], keep_dims=True)))
    return b.finish([b.apply("div", e, b.reduce("sum", e, [1], keep_dims=True))])


def all_reducers(dtype: DType) -> Body:
    b = builder()
    x = b.input(TensorType(dtype, shape_of("N", "C")))
    low, high = b.reduce("min", x, [0], keep_dims=True), b.reduce("max", x, [0])
    above = b.reduce("all", b.apply("greater_equal", x, low), [0])
    return b.finish([low, high, b.reduce("sum", x, [0]), above, b.reduce("any", b.apply("greater", x, low), [0])])


def layer_gradient(length: int | str) -> Body:
    """Of a layer norm without its offset: dx goes by rows, and what is summed over rows needs each row's statistics."""
    b = builder()
    x = b.input(TensorType(DType.F32, shape_of("N", length)))
    dy = b.input(TensorType(DType.F32, shape_of("N", length)))
    count = b.extent(b.shape(x)[1], DType.F32)
    mean = b.apply("div", b.reduce("sum", x, [1], keep_dims=True), count)
    centred = b.apply("sub", x, mean)
    variance = b.apply("div", b.reduce("sum", b.apply("square", centred), [1], keep_dims=True), count)
    root = b.apply("rsqrt", b.apply("add", variance, b.constant(1e-3, DType.F32)))
    dot = b.apply("div", b.reduce("sum", b.apply("mul", dy, centred), [1], keep_dims=True), count)
    dx = b.apply("mul", b.apply("sub", dy, b.apply("mul", centred, dot)), root)
    scale_gradient = b.reduce("sum", b.apply("mul", dy, b.apply("mul", centred, root)), [0])
    return b.finish([dx, scale_gradient, b.reduce("sum", dy, [0])])


BODIES = {
    **{f"sums_{dtype.value}": column_sums(dtype) for dtype in (*FLOATS, DType.I32, DType.I64)},
    "normalised": normalised(),
    "middle": middle(),
    "layer_gradient": layer_gradient("C"),
    "layer_gradient_48": layer_gradient(48),
    **{f"all_{dtype.value}": all_reducers(dtype) for dtype in (DType.F32, DType.I32)},
}
SIZES = [
    {"N": n, "C": c, "B": 2}
    for n, c in (
        (0, 5), (1, 1), (5, 0), (1, 64), (15, 3), (17, 15), (255, 16), (257, 17), (600, 33), (4097, 64), (40, 1023),
        (33, 1025), (70, 2100), (19, 4100), (3, 9001),
    )
]  # fmt: skip


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    return kernels_of(BODIES)


@pytest.mark.parametrize("name", BODIES)
def test_columns_of_any_width_and_length(name: str, kernels: Kernels) -> None:
    made, kernel = kernels[name]
    assert Driver.DOWN in [s.driver for s in made.schedules]
    assert_right(made, kernel, BODIES[name], SIZES)


@pytest.mark.parametrize("name", BODIES)
def test_the_bits_do_not_depend_on_who_computes_them(name: str, kernels: Kernels) -> None:
    assert_bits_do_not_depend_on_threads(kernels[name][1], BODIES[name], SIZES)


def test_few_columns_are_split_into_blocks_of_rows(kernels: Kernels) -> None:
    made, kernel = kernels["normalised"]
    inputs = inputs_of(BODIES["normalised"], {"N": 1000, "C": 48})
    whole, split = Host(threads=1, order="forward"), Host(threads=4, order="forward")
    kernel(inputs, whole)
    kernel(inputs, split)
    assert whole.loops == [1]
    assert split.loops == [8, 8, 8]  # blocks of 128 rows: two sums and the elements
    assert len(made.kernel.nests) == 1


def test_row_by_row_from_memory_gives_the_bits_that_column_by_column_in_the_cache_does() -> None:
    made = lowered(normalised())
    text, cuts = re.subn(r"(cut\(down, .*), 8\);", r"\1, 0);", made.source.text)
    assert cuts > 0, "8 bytes pass through memory for each element"
    kernel, cached = compiled([made, replace(made, source=replace(made.source, text=text))])
    for sizes in ({"N": 3100, "C": 1030}, {"N": 70_000, "C": 48}):  # more than 24 MiB
        inputs = inputs_of(normalised(), sizes)
        for mine, theirs in zip(kernel(inputs), cached(inputs), strict=True):
            assert same_bits(mine, theirs)


def test_a_column_of_many_terms_loses_nothing(kernels: Kernels) -> None:
    _, kernel = kernels["sums_f32"]
    x = np.full((1_000_000, 3), np.float32(0.1))
    exact = np.sum(x.astype(np.float64), axis=0)
    (found,) = kernel([x])
    assert np.max(np.abs(found - exact)) <= 2e-6 * exact[0]


def test_a_value_of_each_row_does_not_turn_columns_into_rows() -> None:
    """The gradient of a scale: sums over rows of what each row's own mean is taken from."""
    b = builder()
    x = b.input(TensorType(DType.F32, shape_of("N", "C")))
    means = b.input(TensorType(DType.F32, shape_of("N", 1)))
    made = lowered(b.finish([b.reduce("sum", b.apply("mul", x, b.apply("sub", x, means)), [0])]))
    assert [s.driver for s in made.schedules] == [Driver.DOWN]


def test_columns_follow_the_rows_that_are_still_in_the_cache(kernels: Kernels) -> None:
    made, kernel = kernels["layer_gradient_48"]
    assert [(s.driver, s.joined) for s in made.schedules] == [(Driver.ROWS, False), (Driver.DOWN, True)]
    host = Host(threads=4, order="forward")
    kernel(inputs_of(BODIES["layer_gradient_48"], {"N": 1000}), host)
    assert host.loops == [8]  # blocks of 128 rows, and no other loop


def test_rows_that_may_be_split_are_joined_unless_they_are(kernels: Kernels) -> None:
    made, kernel = kernels["layer_gradient"]
    assert [(s.driver, s.joined) for s in made.schedules] == [(Driver.ROWS_OR_SPLIT, False), (Driver.DOWN, True)]
    many, few = Host(threads=4, order="forward"), Host(threads=4, order="forward")
    kernel(inputs_of(BODIES["layer_gradient"], {"N": 1000, "C": 48}), many)
    kernel(inputs_of(BODIES["layer_gradient"], {"N": 2, "C": 20_000}), few)
    assert len(many.loops) == 1
    assert len(few.loops) == 1 + len(made.kernel.nests[0].sweeps)


def test_columns_that_need_all_rows_first_are_not_joined() -> None:
    """The statistics are of the columns: the second sweep would come too early."""
    b = builder()
    x = b.input(TensorType(DType.F32, shape_of("N", 64)))
    largest = b.reduce("max", b.reduce("max", x, [1], keep_dims=True), [0], keep_dims=True)
    made = lowered(b.finish([b.reduce("sum", b.apply("sub", x, largest), [0])]))
    assert not [s for s in made.schedules if s.joined]
