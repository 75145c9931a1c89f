"""Short reductions as arithmetic: the same numbers, and what is not short stays a reduction."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tf_stitch.ir.body import Body, BodyBuilder, Reduce
from tf_stitch.ir.printer import print_body
from tf_stitch.ir.types import Dim, DType, TensorType, shape_of
from tf_stitch.ir.verify import verify_body
from tf_stitch.ops import FUNCTIONS, REDUCERS
from tf_stitch.passes.unroll import unroll_short_reductions
from tf_stitch.runtime.reference import evaluate


def reduced(function: str, axes: tuple[int, ...], *dims: int | str, dtype: DType = DType.F32) -> Body:
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x = b.input(TensorType(dtype, shape_of(*dims)))
    return b.finish([b.reduce(function, x, axes)])


def is_reduced(body: Body) -> bool:
    return any(isinstance(step.op, Reduce) for step in body.steps)


def test_a_sum_of_two() -> None:
    body = unroll_short_reductions(reduced("sum", (1,), "B", 2))
    assert print_body(body) == (
        "%0 = input 0                          : f32[B, 2]\n"
        "%1 = slice %0 from (0, 0) step (1, 1) : f32[B, 1]\n"
        "%2 = slice %0 from (0, 1) step (1, 1) : f32[B, 1]\n"
        "%3 = add %1 %2                        : f32[B, 1]\n"
        "%4 = reshape %3                       : f32[B]\n"
        "return %4\n"
    )


@pytest.mark.parametrize("function", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("dims", [(3, 8), (3, 1), (2, 5, 4), (0, 2), (5, 2, 2)])
def test_numbers_are_the_same(function: str, dims: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).integers(-9, 9, dims).astype(np.float32)
    for count in range(1, len(dims) + 1):
        for axes in itertools.combinations(range(len(dims)), count):
            body = reduced(function, axes, *dims)
            unrolled = unroll_short_reductions(body)
            verify_body(unrolled, FUNCTIONS, REDUCERS)
            elements = int(np.prod([dims[a] for a in axes]))
            assert is_reduced(unrolled) == (not 1 <= elements <= 8)
            for mine, wanted in zip(evaluate(unrolled, [x], {}), evaluate(body, [x], {}), strict=True):
                np.testing.assert_array_equal(mine, wanted)


@pytest.mark.parametrize("function", ["max", "min", "sum"])
def test_nan_goes_through(function: str) -> None:
    x = np.array([[1, np.nan, 2], [np.nan, 1, 2], [1, 2, np.nan], [np.inf, -np.inf, 0]], np.float32)
    (found,) = evaluate(unroll_short_reductions(reduced(function, (1,), 4, 3)), [x], {})
    assert np.isnan(found[:3]).all()


@pytest.mark.parametrize("function", ["all", "any"])
def test_truths(function: str) -> None:
    x = np.array(list(itertools.product([False, True], repeat=3)))
    body = reduced(function, (1,), 8, 3, dtype=DType.BOOL)
    (found,) = evaluate(unroll_short_reductions(body), [x], {})
    np.testing.assert_array_equal(found, getattr(np, function)(x, axis=1))


def test_what_is_required_of_dims_stays_required() -> None:
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x = b.input(TensorType(DType.F32, shape_of("S", 2)))
    b.require(Dim(3), Dim.symbol("S"), "a slice")
    part = b.slice(x, [0, 0], shape_of(3, 2))
    body = unroll_short_reductions(b.finish([b.reduce("sum", part, [1])]))
    assert body.requires == ((Dim(3), Dim.symbol("S")),)
    verify_body(body, FUNCTIONS, REDUCERS)


@pytest.mark.parametrize("dims", [("B", "N"), ("B", 9), ("B", 0)])
def test_long_reductions_and_those_of_no_elements_stay(dims: tuple[int | str, ...]) -> None:
    assert is_reduced(unroll_short_reductions(reduced("sum", (1,), *dims)))
