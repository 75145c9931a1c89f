"""Extremes in one instruction, negations that vanish: the same numbers, down to the signs of zeros."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.ops.samples import special
from tf_stitch.ir.body import Body, BodyBuilder, Elementwise
from tf_stitch.ir.printer import print_body
from tf_stitch.ir.types import DType, TensorType, shape_of
from tf_stitch.ir.verify import verify_body
from tf_stitch.ops import FUNCTIONS, REDUCERS, Function, ZeroSign
from tf_stitch.passes.zeros import without_dear_zeros
from tf_stitch.runtime.reference import evaluate

Array = np.ndarray[Any, np.dtype[Any]]
F32 = DType.F32
COUNT = len(special(F32)) ** 2


class Writer:
    """Writes a body of f32[COUNT] values: `w.relu(w.neg(w.x))`, `w.number(0)`."""

    def __init__(self) -> None:
        self.b = BodyBuilder(FUNCTIONS, REDUCERS)
        self.x, self.y = (self.b.input(TensorType(F32, shape_of(COUNT))) for _ in range(2))

    def number(self, value: float) -> int:
        return self.b.constant(value, F32)

    def __getattr__(self, function: str) -> Callable[..., int]:
        return lambda *operands: self.b.apply(function, *operands)


def functions(body: Body) -> list[str]:
    return [step.op.function for step in body.steps if isinstance(step.op, Elementwise)]


def rewritten(write: Callable[[Writer], int]) -> Body:
    """The body after the pass; it computes the same of all pairs of special values."""
    w = Writer()
    body = w.b.finish([write(w)])
    found = without_dear_zeros(body)
    verify_body(found, FUNCTIONS, REDUCERS)
    x, y = (np.array(side, np.float32) for side in zip(*itertools.product(special(F32), repeat=2), strict=True))
    with np.errstate(all="ignore"):
        (mine,), (wanted,) = evaluate(found, [x, y], {}), evaluate(body, [x, y], {})
    assert_same(mine, wanted)
    return found


def assert_same(mine: Array, wanted: Array) -> None:
    """Equal in every bit, but for the sign and the payload of a NaN."""
    np.testing.assert_array_equal(mine, wanted)
    number = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(mine[number]), np.signbit(wanted[number]))


def prelu(w: Writer) -> int:
    return w.sub(w.relu(w.x), w.mul(w.y, w.relu(w.neg(w.x))))


def test_a_parametric_relu() -> None:
    lines = print_body(rewritten(prelu)).replace(f"f32[{COUNT}]", "f32[n]").splitlines()
    assert [" ".join(line.split()) for line in lines] == [
        "%0 = input 0 : f32[n]",
        "%1 = input 1 : f32[n]",
        "%2 = relu %0 : f32[n]",
        "%3 = constant 0.0 : f32[]",
        "%4 = reshape %3 : f32[1]",
        "%5 = broadcast %4 : f32[n]",
        "%6 = at_most %0 %5 : f32[n]",
        "%7 = mul %1 %6 : f32[n]",
        "%8 = add %2 %7 : f32[n]",
        "return %8",
    ]


REWRITTEN: dict[str, tuple[Callable[[Writer], int], list[str]]] = {
    "a relu that is an output": (lambda w: w.relu(w.x), ["relu"]),
    "under a square": (lambda w: w.square(w.relu(w.x)), ["at_least", "square"]),
    "under an exp, by way of a product": (lambda w: w.exp(w.mul(w.relu(w.x), w.y)), ["at_least", "mul", "exp"]),
    "beside any value": (lambda w: w.add(w.relu(w.x), w.y), ["relu", "add"]),
    "beside a relu: one of them stays": (lambda w: w.add(w.relu(w.x), w.relu(w.y)), ["relu", "at_least", "add"]),
    "beside an absolute value": (lambda w: w.add(w.abs(w.y), w.relu(w.x)), ["abs", "at_least", "add"]),
    "a relu that is subtracted from": (lambda w: w.sub(w.relu(w.x), w.abs(w.y)), ["relu", "abs", "sub"]),
    "divided by": (lambda w: w.div(w.y, w.relu(w.x)), ["relu", "div"]),
    "a clip by numbers": (
        lambda w: w.minimum(w.maximum(w.x, w.number(-2)), w.number(2)),
        ["at_least", "at_most"],
    ),
    "a clip at zero, seen": (lambda w: w.maximum(w.x, w.number(0)), ["maximum"]),
    "a clip at zero, not seen": (lambda w: w.exp(w.maximum(w.number(0), w.x)), ["at_least", "exp"]),
    "a clip at NaN": (lambda w: w.exp(w.maximum(w.x, w.number(float("nan")))), ["maximum", "exp"]),
    "a sum with the negative": (lambda w: w.add(w.neg(w.x), w.y), ["sub"]),
    "a difference from the negative": (lambda w: w.sub(w.y, w.neg(w.x)), ["add"]),
    "a product of negatives": (lambda w: w.mul(w.neg(w.x), w.neg(w.y)), ["mul"]),
    "minus both": (lambda w: w.sub(w.neg(w.x), w.y), ["neg", "sub"]),
    "a negative squared": (lambda w: w.square(w.neg(w.x)), ["square"]),
    "a negative that two read": (
        lambda w: w.add(w.mul(w.neg(w.x), w.y), w.exp(w.neg(w.x))),
        ["neg", "mul", "exp", "add"],
    ),
    "a negative that is an output": (lambda w: w.neg(w.mul(w.x, w.y)), ["mul", "neg"]),
    "a negative in a choice": (lambda w: w.select(w.less(w.x, w.y), w.neg(w.x), w.y), ["less", "neg", "select"]),
    "a relu of a negative that is seen": (lambda w: w.relu(w.neg(w.x)), ["neg", "relu"]),
}


@pytest.mark.parametrize("name", REWRITTEN)
def test_what_becomes_of(name: str) -> None:
    write, wanted = REWRITTEN[name]
    assert functions(rewritten(write)) == wanted


FLOAT_FUNCTIONS = [f for f in FUNCTIONS.values() if F32 in f.dtypes]


@pytest.mark.parametrize("function", FLOAT_FUNCTIONS, ids=lambda f: f.name)
def test_what_the_table_says_of_zeros(function: Function) -> None:
    values = [v for v in special(F32) if not (function.name in ("at_least", "at_most") and np.isnan(v))]
    columns = list(
        itertools.product(*([False, True] if i < function.selectors else values for i in range(function.arity)))
    )
    operands = [
        np.array(column, bool if i < function.selectors else np.float32)
        for i, column in enumerate(zip(*columns, strict=True))
    ]
    with np.errstate(all="ignore"):
        found = np.asarray(function.reference(*operands))
        if function.no_minus_zero:
            assert not (np.signbit(found) & (found == 0)).any()
        for number in range(function.selectors, function.arity):
            turned = [np.where(o == 0, -o, o) if i == number else o for i, o in enumerate(operands)]
            other = np.asarray(function.reference(*turned))
            if function.zero_sign is ZeroSign.HIDDEN and found.dtype != bool:
                assert_same(other, found)
            elif function.zero_sign is not ZeroSign.SEEN:
                np.testing.assert_array_equal(other, found)  # 0 equals -0
