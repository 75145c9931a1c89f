"""The builder, the printer and the verifier of bodies."""

from __future__ import annotations

from dataclasses import replace
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from tf_stitch.errors import Reason, Unsupported
from tf_stitch.ir.body import (
    Body,
    BodyBuilder,
    Broadcast,
    Concat,
    Constant,
    Elementwise,
    Extent,
    Reduce,
    Reshape,
    Slice,
    Step,
    Transpose,
    Windows,
    converted,
)
from tf_stitch.ir.printer import print_body
from tf_stitch.ir.types import Dim, DType, TensorType, shape_of
from tf_stitch.ir.verify import BrokenInvariant, unbound_symbols, verify_body
from tf_stitch.ops import FUNCTIONS, REDUCERS


def f32(*dims: int | str | Dim) -> TensorType:
    return TensorType(DType.F32, shape_of(*dims))


def softmax(type_: TensorType) -> Body:
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x = b.input(type_)
    wide = b.widen(x)
    shifted = b.apply("exp", b.apply("sub", wide, b.reduce("max", wide, [-1], keep_dims=True)))
    result = b.apply("div", shifted, b.reduce("sum", shifted, [-1], keep_dims=True))
    return b.finish([b.convert(result, type_.dtype)])


def test_text_of_a_softmax() -> None:
    assert print_body(softmax(TensorType(DType.F16, shape_of("B", 768)))) == dedent("""\
        %0 = input 0         : f16[B, 768]
        %1 = convert %0      : f32[B, 768]
        %2 = max %1 over (1) : f32[B, 1]
        %3 = broadcast %2    : f32[B, 768]
        %4 = sub %1 %3       : f32[B, 768]
        %5 = exp %4          : f32[B, 768]
        %6 = sum %5 over (1) : f32[B, 1]
        %7 = broadcast %6    : f32[B, 768]
        %8 = div %5 %7       : f32[B, 768]
        %9 = convert %8      : f16[B, 768]
        return %9
        """)


def test_text_of_every_other_step() -> None:
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x = b.input(f32("S", 4))
    b.require(Dim(2), Dim.symbol("S"), "a slice")
    part = b.slice(x, [0, 3], shape_of(2, 2), [1, -2])
    turned = b.reshape(b.transpose(part, [1, 0]), shape_of(4))
    zeros = b.apply("mul", turned, b.constant(-0.0, DType.F32))
    mean = b.apply("div", zeros, b.extent(Dim.symbol("S"), DType.F32))
    assert print_body(b.finish([mean])) == dedent("""\
        %0 = input 0                           : f32[S, 4]
        %1 = slice %0 from (0, 3) step (1, -2) : f32[2, 2]
        %2 = transpose %1 by (1, 0)            : f32[2, 2]
        %3 = reshape %2                        : f32[4]
        %4 = constant -0.0                     : f32[]
        %5 = reshape %4                        : f32[1]
        %6 = broadcast %5                      : f32[4]
        %7 = mul %3 %6                         : f32[4]
        %8 = extent S                          : f32[]
        %9 = reshape %8                        : f32[1]
        %10 = broadcast %9                     : f32[4]
        %11 = div %7 %10                       : f32[4]
        require 2 <= S
        return %11
        """)


# -- the builder -------------------------------------------------------------------------------------------


def test_each_value_is_computed_once() -> None:
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x = b.input(f32(3))
    assert b.apply("exp", x) == b.apply("exp", x)
    assert b.apply("add", x, b.constant(1, DType.F32)) == b.apply("add", x, b.constant(1, DType.F32))


def test_joined_dims_have_one_name() -> None:
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    total = b.apply("add", b.input(f32("B", 4)), b.input(f32("C", "D")))
    body = b.finish([total])
    assert body.inputs == (f32("C", 4), f32("C", 4))
    verify_body(body, FUNCTIONS, REDUCERS)


def test_a_joined_extent_becomes_a_constant() -> None:
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x = b.input(f32("B"))
    extent = b.extent(Dim.symbol("B"), DType.I64)
    b.apply("add", x, b.input(f32(7)))
    body = b.finish([extent])
    assert body.steps == (Step(Constant(np.int64(7).tobytes()), (), TensorType(DType.I64, ()), ""),)


def test_a_slice_that_joining_made_whole_vanishes() -> None:
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x = b.input(f32("S", 2))
    b.require(Dim(5), Dim.symbol("S"), "a slice")
    first = b.slice(x, [0, 0], shape_of(5, 2))
    b.join(Dim.symbol("S"), Dim(5), "a test")
    body = b.finish([first])
    assert len(body.steps) == 1
    assert body.requires == ()


def test_requirements_that_cannot_hold_are_refused() -> None:
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    with pytest.raises(Unsupported) as refusal:
        b.require(Dim(5), Dim(4), "a slice")
    assert refusal.value.reason is Reason.UNKNOWN_DIM
    b.require(Dim(5), Dim.symbol("S"), "a slice")
    b.join(Dim.symbol("S"), Dim(4), "a test")
    with pytest.raises(Unsupported):
        b.finish([b.input(f32(4))])


def test_conversions_to_halves_go_through_f32() -> None:
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x = b.input(TensorType(DType.I64, shape_of(3)))
    body = b.finish([b.convert(x, DType.BF16)])
    assert [s.type.dtype for s in body.steps] == [DType.I64, DType.F32, DType.BF16]
    verify_body(body, FUNCTIONS, REDUCERS)


def test_constants_are_converted_at_once() -> None:
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    assert b.convert(b.constant(np.nan, DType.F32), DType.I32) == b.constant(-(2**31), DType.I32)
    assert b.convert(b.constant(2049.0000001, DType.F64), DType.F16) == b.constant(2048, DType.F16)


@pytest.mark.parametrize(
    ("value", "dtype", "wanted"),
    [
        (np.float32(np.nan), DType.I32, -(2**31)),
        (np.float64(2**63), DType.I64, -(2**63)),
        (np.float64(-(2**63)), DType.I64, -(2**63)),
        (np.float32(-1.9), DType.I64, -1),
        (np.float64(2147483647.5), DType.I32, 2**31 - 1),
        (np.int64(2**33 + 5), DType.I32, 5),
        (np.float32(np.nan), DType.BOOL, True),
        (np.float32(-0.0), DType.BOOL, False),
        (np.bool_(True), DType.F32, 1),
    ],
)
def test_conversions(value: Any, dtype: DType, wanted: Any) -> None:
    assert converted(np.asarray(value), dtype) == wanted
    assert converted(np.asarray(value), dtype).dtype == dtype.numpy


# -- the verifier ------------------------------------------------------------------------------------------


def test_symbols_that_no_input_has() -> None:
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    wide = b.broadcast(b.input(f32(1, "B")), shape_of("N", "B"))
    assert unbound_symbols(b.finish([wide])) == {"N"}


def broken(index: int, **changes: Any) -> Body:
    """The softmax body of f16[B, 8] with one step changed."""
    body = softmax(TensorType(DType.F16, shape_of("B", 8)))
    steps = list(body.steps)
    steps[index] = replace(steps[index], **changes)
    return replace(body, steps=tuple(steps))


def one_step(op: Any, operand: TensorType, result: TensorType, **changes: Any) -> Body:
    """A body whose last step is `op` of its input."""
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    body = b.finish([b.input(operand)])
    return replace(body, steps=(*body.steps, Step(op, (0,), result, "")), outputs=(1,), **changes)


def joined(op: Any, first: TensorType, second: TensorType, result: TensorType) -> Body:
    """A body whose last step is `op` of its two inputs."""
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    body = b.finish([b.input(first), b.input(second)])
    return replace(body, steps=(*body.steps, Step(op, (0, 1), result, "")), outputs=(2,))


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        (broken(4, operands=(1, 5)), "earlier steps"),
        (broken(4, operands=(1, 2)), "shape of the step"),
        (broken(4, operands=(1,)), "2 operands"),
        (broken(4, op=Elementwise("no such")), "in the table"),
        (broken(4, type=TensorType(DType.F64, shape_of("B", 8))), "the function's dtype"),
        (broken(1, type=TensorType(DType.F64, shape_of("B", 8))), "reached from f32"),
        (broken(2, op=Reduce("no such", (1,))), "in the table"),
        (broken(2, op=Reduce("max", ())), "at least one"),
        (broken(2, op=Reduce("max", (2,))), "within the rank"),
        (broken(2, op=Reduce("all", (1,))), "defined for"),
        (broken(2, type=f32("B")), "stay as dims of 1"),
        (broken(3, type=f32("B", 8, 1)), "keeps the rank"),
        (broken(3, type=TensorType(DType.I32, shape_of("B", 8))), "keeps the dtype"),
        (broken(0, type=TensorType(DType.F16, shape_of("C", 8))), "type that the body declares"),
        (broken(0, type=TensorType(DType.F16, None)), "a rank and a dtype"),
        (replace(softmax(f32("B", 8)), outputs=(99,)), "an output is a step"),
        (replace(softmax(f32("B", 8)), outputs=(0,)), "neither read nor returned"),
        (
            one_step(Elementwise("exp"), TensorType(DType.F16, ()), TensorType(DType.F16, ())),
            "compute dtypes",
        ),
        (one_step(Elementwise("convert"), f32(2), f32(2)), "changes the dtype"),
        (one_step(Broadcast(), f32(2), f32(4)), "dims of 1"),
        (one_step(Reshape(), f32("B", 2), f32("B")), "number of elements"),
        (one_step(Transpose((0, 0)), f32(2, 3), f32(2, 3)), "each axis once"),
        (one_step(Transpose((1, 0)), f32(2, 3), f32(2, 3)), "permutes the dims"),
        (one_step(Slice((1,), (1,)), f32(3), f32(3)), "over the end"),
        (one_step(Slice((1,), (-1,)), f32(3), f32(3)), "over the beginning"),
        (one_step(Slice((-1,), (1,)), f32(3), f32(1)), "begins within"),
        (one_step(Slice((0,), (1,)), f32("S"), f32(3)), "is guarded"),
        (one_step(Slice((0,), (1,)), f32(9), f32("S")), "stays inside"),
        (one_step(Slice((1,), (1,)), f32("S"), f32("S")), "stays inside"),
        (one_step(Slice((1,), (-1,)), f32("S"), f32("S")), "goes up"),
        (one_step(Windows(0, 2, 1), f32(6), f32(3, 3)), "runs over the end"),
        (one_step(Windows(0, 1, 3), f32(6), f32(1, 3)), "runs over the end"),
        (one_step(Windows(0, 0, 1), f32(6), f32(3, 3)), "move on"),
        (one_step(Windows(1, 1, 1), f32(6), f32(4, 3)), "within the rank"),
        (one_step(Windows(0, 1, 1), f32(6, 2), f32(4, 3, 3)), "keep the other dims"),
        (one_step(Windows(0, 1, 1), f32(6, 2), f32(4, 2)), "one axis more"),
        (one_step(Windows(0, 1, 1), f32("H"), f32(4, 3)), "runs over the end"),
        (one_step(Windows(0, 1, 1), f32("H"), f32("H", 3)), "runs over the end"),
        (one_step(Windows(0, 1, 1), f32("H"), f32("H", "W")), "is known"),
        (one_step(Concat(0), f32(2), f32(2)), "reads several"),
        (joined(Concat(1), f32(2), f32(2), f32(4)), "within the rank"),
        (joined(Concat(0), f32("B"), f32("B"), f32("B")), "its operands long"),
        (joined(Concat(0), f32("B", 3), f32(2, 4), f32("B", 3)), "the other dims"),
        (joined(Concat(0), f32(2), f32(2, 1), f32(4)), "keeps the rank"),
        (joined(Concat(0), f32(2), TensorType(DType.I32, shape_of(2)), f32(4)), "keeps the dtype"),
        (one_step(Extent(Dim(3)), f32(2), f32()), "reads nothing|is a scalar"),
    ],
)
def test_broken_bodies_are_caught(body: Body, rule: str) -> None:
    with pytest.raises(BrokenInvariant, match=rule):
        verify_body(body, FUNCTIONS, REDUCERS)


def test_concatenations_of_products_are_sound() -> None:
    verify_body(joined(Concat(0), f32("B", 3), f32(Dim(2, ("B",)), 3), f32(Dim(3, ("B",)), 3)), FUNCTIONS, REDUCERS)


def test_concatenations_are_built_of_what_has_elements() -> None:
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x, none, y = b.input(f32("B", 3)), b.input(f32("C", 0)), b.input(f32(4, 5))
    assert b.concat([none, x], 1) == x
    whole = b.concat([x, none, y, x], 1)
    assert b.type(whole) == f32(4, 11)
    body = b.finish([whole])
    verify_body(body, FUNCTIONS, REDUCERS)
    assert "concat %0 %1 %0 along 1" in print_body(body)


def test_guarded_slices_are_sound() -> None:
    s, b = Dim.symbol("S"), Dim.symbol("B")
    verify_body(one_step(Slice((0,), (1,)), f32("S"), f32(3), requires=((Dim(3), s),)), FUNCTIONS, REDUCERS)
    verify_body(one_step(Slice((0,), (1,)), f32(9), f32("S"), requires=((s, Dim(9)),)), FUNCTIONS, REDUCERS)
    verify_body(one_step(Slice((0,), (1,)), f32("B"), f32("S"), requires=((s, b),)), FUNCTIONS, REDUCERS)
