"""Places along an axis as numbers: in every kind of loop, and moved as any value is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.lower.building import compiled, lowered
from tests.lower.comparison import same_bits
from tests.lower.compiled import Host
from tf_stitch.ir.body import Body, BodyBuilder
from tf_stitch.ir.types import ONE, Dim, DType, TensorType, shape_of
from tf_stitch.ir.verify import verify_body
from tf_stitch.lower import interp
from tf_stitch.lower.cpu import Driver
from tf_stitch.ops import FUNCTIONS, REDUCERS
from tf_stitch.runtime.reference import evaluate

Build = Callable[[BodyBuilder], list[int]]
N, B, C = (Dim.symbol(name) for name in "NBC")


def i32(*dims: int | str) -> TensorType:
    return TensorType(DType.I32, shape_of(*dims))


def f32(*dims: int | str) -> TensorType:
    return TensorType(DType.F32, shape_of(*dims))


def alone(b: BodyBuilder) -> list[int]:
    return [b.apply("neg", b.iota(N, DType.I64)), b.input(f32("N"))]


def one_hot(b: BodyBuilder) -> list[int]:
    indices = b.reshape(b.input(i32("B")), (B, ONE))
    return [b.convert(b.apply("equal", indices, b.iota(Dim(37), DType.I32)), DType.F32)]


def both_axes(b: BodyBuilder) -> list[int]:
    """A causal mask: it is neither rows nor columns alone that are counted."""
    rows, columns = b.reshape(b.iota(B, DType.I32), (B, ONE)), b.iota(N, DType.I32)
    return [
        b.apply("select", b.apply("less_equal", columns, rows), b.input(f32("B", "N")), b.constant(-1e9, DType.F32))
    ]


def moved(b: BodyBuilder) -> list[int]:
    """Reversed, cut, transposed and folded into other dims."""
    x = b.slice(b.iota(Dim(24), DType.I32), (23,), (Dim(24),), (-1,))
    x = b.transpose(b.reshape(x, (Dim(4), Dim(6))), (1, 0))
    return [b.apply("add", b.broadcast(x, (B, Dim(6), Dim(4))), b.input(i32("B", 1, 4)))]


def in_a_row(b: BodyBuilder) -> list[int]:
    """The first place of the greatest of a row."""
    x = b.input(f32("B", "N"))
    greatest = b.apply("equal", x, b.reduce("max", x, [1], keep_dims=True))
    place = b.apply("select", greatest, b.iota(N, DType.I32), b.constant(2**31 - 1, DType.I32))
    return [b.reduce("min", place, [1])]


def down(b: BodyBuilder) -> list[int]:
    """Rows are weighted by their number, and columns by theirs, in a sum down the columns."""
    x, rows, columns = b.input(f32("B", 40)), b.iota(B, DType.I32), b.iota(Dim(40), DType.I32)
    weights = b.convert(b.apply("add", b.reshape(rows, (B, ONE)), columns), DType.F32)
    return [b.reduce("sum", b.apply("mul", x, weights), [0])]


def columns(b: BodyBuilder) -> list[int]:
    """The same for all rows."""
    weights = b.apply("mul", b.convert(b.iota(Dim(32), DType.I32), DType.F32), b.input(f32(32)))
    return [b.apply("add", b.input(f32("B", 32)), weights)]


def short_rows(b: BodyBuilder) -> list[int]:
    x = b.apply("add", b.input(f32("B", 5)), b.convert(b.iota(Dim(5), DType.I32), DType.F32))
    return [b.apply("mul", x, b.input(f32(5)))]


CASES = [alone, one_hot, both_axes, moved, in_a_row, down, columns, short_rows]
SIZES = ({"B": 3, "N": 20_011}, {"B": 1, "N": 1}, {"B": 700, "N": 33}, {"B": 300, "N": 17})


def body_of(build: Build) -> Body:
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    body = b.finish(build(b))
    verify_body(body, FUNCTIONS, REDUCERS)
    return body


def inputs_of(body: Body, symbols: dict[str, int]) -> list[np.ndarray[Any, Any] | None]:
    rng = np.random.default_rng(3)
    shapes = [(t.dtype.numpy, [d.evaluate(symbols) for d in t.dims]) for t in body.inputs if t is not None]
    return [rng.integers(-8, 40, shape).astype(dtype) for dtype, shape in shapes]


@pytest.mark.parametrize("build", CASES)
def test_compiled_is_interpreted_is_referenced(build: Build) -> None:
    """Of small whole numbers, so that sums are exact."""
    body = body_of(build)
    made = lowered(body)
    (kernel,) = compiled([made])
    for symbols in SIZES:
        inputs = inputs_of(body, symbols)
        wanted = evaluate(body, inputs, symbols)
        assert all(map(same_bits, interp.run(made.kernel, inputs), wanted))
        for host in (Host(), Host(threads=8, order="reversed", chunk=2), Host(threads=8, order="strided")):
            for forward in (False, True):
                for mine, other in zip(kernel(inputs, host, forward=forward), wanted, strict=True):
                    np.testing.assert_array_equal(mine, other, err_msg=f"with {symbols}")


def test_all_kinds_of_loops_are_tried() -> None:
    drivers = {s.driver for build in CASES for s in lowered(body_of(build)).schedules}
    assert drivers >= {Driver.ROWS_OR_SPLIT, Driver.BLOCKS, Driver.COLUMNS, Driver.DOWN}
