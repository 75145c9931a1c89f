"""Reductions over constant axes.

A reduction of no axes is the identity, of no elements the neutral element. f16 and bf16 accumulate in f32 and
are rounded once, at the end, where TensorFlow's own kernels round partial sums: `mean` of 4096 times 100.0 in
f16 is 100 here and inf there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tf_stitch.errors import Reason
from tf_stitch.ir.types import INTEGERS, NUMBERS, DType, product
from tf_stitch.ops.elementwise import BOOLS, HALVES_TOO
from tf_stitch.ops.extents import IDLE
from tf_stitch.ops.opdef import (
    REDUCERS,
    Array,
    Kind,
    OpDef,
    Operands,
    Reducer,
    axis_of,
    define_op,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tf_stitch.ir.body import BodyBuilder


# -- reducers ----------------------------------------------------------------------------------------------


def _least(dtype: DType) -> float:
    return -(2 ** (8 * dtype.size - 1)) if dtype in INTEGERS else -np.inf


def _greatest(dtype: DType) -> float:
    return 2 ** (8 * dtype.size - 1) - 1 if dtype in INTEGERS else np.inf


def reduced_by(function: np.ufunc) -> Callable[..., Array]:
    """`function.reduce` in the operand's dtype: integers wrap, and no element is the neutral one."""

    def reference(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
        return np.asarray(function.reduce(x, axis=axis, keepdims=keepdims, dtype=x.dtype))

    return reference


def _reduce_from(function: np.ufunc, neutral: Callable[[DType], float]) -> Callable[..., Array]:
    def reference(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
        first = neutral(next(d for d in NUMBERS if d.numpy == x.dtype))
        return np.asarray(function.reduce(x, axis=axis, keepdims=keepdims, initial=first))

    return reference


def _define(*reducers: Reducer) -> None:
    for reducer in reducers:
        REDUCERS[reducer.name] = reducer


_define(
    Reducer("sum", "add", "reduce_add", lambda _: 0, reduced_by(np.add)),
    Reducer("prod", "mul", "reduce_mul", lambda _: 1, reduced_by(np.multiply)),
    Reducer("max", "max", "reduce_max", _least, _reduce_from(np.maximum, _least)),
    Reducer("min", "min", "reduce_min", _greatest, _reduce_from(np.minimum, _greatest)),
    Reducer("all", "and", "reduce_and", lambda _: True, np.all, BOOLS),
    Reducer("any", "or", "reduce_or", lambda _: False, np.any, BOOLS),
)

# -- ops ---------------------------------------------------------------------------------------------------


def _given(x: Operands) -> list[int]:
    """The axes as they are given: a constant, or computed from shapes.

    To sum over an idle axis makes no difference but to the shape, and none where the dims are kept.
    """
    extents = x.extents[1]
    if x.constants[1] is not None or extents is None:
        return x.integers(1)
    axes = [d for d in extents if d != IDLE] if _kept(x) else list(extents)
    if not all(d.is_static for d in axes):
        raise x.unsupported("axes that are not known", Reason.UNKNOWN_RANK)
    return [d.coefficient for d in axes]


def _axes(b: BodyBuilder, x: Operands) -> list[int]:
    """The axes in [0, rank). Out of range or given twice, they make TensorFlow raise: not ours."""
    rank = len(b.shape(x[0]))
    axes = [axis_of(a, rank, x.node.op) for a in _given(x)]
    if len(set(axes)) != len(axes):
        raise x.unsupported("an axis given twice")
    return axes


def _kept(x: Operands) -> bool:
    return bool(x.attribute("keep_dims", False))


def _plain(reducer: str) -> Callable[[BodyBuilder, Operands], int]:
    return lambda b, x: b.reduce(reducer, x[0], _axes(b, x), _kept(x))


def _mean(b: BodyBuilder, x: Operands) -> int:
    """The sum over the number of elements. Integers: summed in i64, divided towards zero; 0 of none."""
    dtype, axes = b.dtype(x[0]), _axes(b, x)
    if not axes:
        return x[0]
    count = product(b.shape(x[0])[a] for a in axes)
    if dtype in INTEGERS:
        total = b.reduce("sum", b.convert(x[0], DType.I64), axes, _kept(x))
        divisor = b.apply("maximum", b.extent(count, DType.I64), b.constant(1, DType.I64))
        return b.convert(b.apply("trunc_div", total, divisor), dtype)
    total = b.reduce("sum", b.widen(x[0]), axes, _kept(x))
    return b.convert(b.apply("div", total, b.extent(count, dtype.compute)), dtype)


def _euclidean_norm(b: BodyBuilder, x: Operands) -> int:
    squares = b.apply("square", b.widen(x[0]))
    return b.convert(b.apply("sqrt", b.reduce("sum", squares, _axes(b, x), _kept(x))), b.dtype(x[0]))


def _l2_loss(b: BodyBuilder, x: Operands) -> int:
    wide = b.widen(x[0])
    half = b.constant(0.5, b.dtype(wide))
    total = b.reduce("sum", b.apply("square", wide), range(len(b.shape(wide))))
    return b.convert(b.apply("mul", total, half), b.dtype(x[0]))


def _reduction(
    name: str, expand: Callable[[BodyBuilder, Operands], int], dtypes: frozenset[DType], notes: str = ""
) -> None:
    samples = ({"keep_dims": True}, {"keep_dims": False})
    define_op(OpDef((name,), Kind.REDUCTION, expand, static=(1,), samples=samples, dtypes=dtypes, notes=notes))


_ROUNDED = "f16 and bf16 accumulate in f32"
_reduction("Sum", _plain("sum"), NUMBERS, _ROUNDED)
_reduction("Prod", _plain("prod"), NUMBERS, _ROUNDED)
_reduction("Max", _plain("max"), NUMBERS, "NaN if any element is")
_reduction("Min", _plain("min"), NUMBERS, "NaN if any element is")
_reduction("All", _plain("all"), BOOLS)
_reduction("Any", _plain("any"), BOOLS)
_reduction("Mean", _mean, NUMBERS, f"{_ROUNDED}; integers in i64, divided towards zero, 0 of no elements")
_reduction("EuclideanNorm", _euclidean_norm, HALVES_TOO, _ROUNDED)
define_op(OpDef(("L2Loss",), Kind.REDUCTION, _l2_loss, dtypes=HALVES_TOO, notes=_ROUNDED))
