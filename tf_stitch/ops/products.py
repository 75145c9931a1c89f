"""Matrix products, small ones: which are worth being in a kernel is `passes.profitability`'s question.

    y[m, n] = sum over k of x[m, k] * w[k, n]

Each product is rounded together with the sum that it is added to, where the machine can do that (a fused
multiply-add), as in TensorFlow's own kernels; what a user multiplies and sums up in two ops never is.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from tf_stitch.errors import Reason, Unsupported
from tf_stitch.ir.types import ONE, DType, product
from tf_stitch.ops.opdef import REDUCERS, Expansion, Kind, OpDef, Operands, Reducer, define_op
from tf_stitch.ops.reduction import reduced_by

if TYPE_CHECKING:
    from tf_stitch.ir.body import BodyBuilder

PRODUCTS = "products"
"""The reducer: a sum whose operand is a product, of one op."""

DTYPES = frozenset({DType.F32, DType.F64})
"""Of what is multiplied: narrower weights would be widened in each call."""


REDUCERS[PRODUCTS] = Reducer(PRODUCTS, "add", "reduce_add", lambda _: 0, reduced_by(np.add), DTYPES)


def matrix_product(b: BodyBuilder, left: int, right: int) -> int:
    """[m, k] times [k, n], as [m, k, n] reduced over k: neighbours along n are neighbours in `right`.

    Raises:
      Unsupported: where the two are not equally deep, or neither f32 nor f64: weights would be widened in each call.
    """
    if b.dtype(left) not in DTYPES:
        raise Unsupported(Reason.DTYPE, f"a product of {b.dtype(left).value}")
    (rows, depth), (same_depth, columns) = b.shape(left), b.shape(right)
    depth = b.join(depth, same_depth, "the depth of a product of matrices")
    shape = (rows, depth, columns)
    spread = b.broadcast(b.reshape(left, (rows, depth, ONE)), shape)
    weights = b.broadcast(b.reshape(right, (ONE, depth, columns)), shape)
    return b.reduce(PRODUCTS, b.apply("mul", spread, weights), (1,))


def _matmul(b: BodyBuilder, x: Operands) -> int:
    if len(b.shape(x[0])) != 2 or len(b.shape(x[1])) != 2:
        raise x.unsupported("operands that are no matrices")
    left = b.transpose(x[0], (1, 0)) if x.attribute("transpose_a", False) else x[0]
    right = b.transpose(x[1], (1, 0)) if x.attribute("transpose_b", False) else x[1]
    return matrix_product(b, left, right)


def _einsum(b: BodyBuilder, x: Operands) -> int:
    """Where axes are only put together: `abc,cde->abde` is [ab, c] times [c, de]."""
    if len(x) != 2:
        raise x.unsupported("any but two operands")
    match = re.fullmatch(r"(\w+),(\w+)->(\w+)", str(x.attribute("equation", "")))
    left, right, result = match.groups() if match else ("", "", "")
    shared = sum(label in left for label in right)
    kept, columns = left[: len(left) - shared], right[shared:]
    labels = kept + right
    if not shared or left != kept + right[:shared] or result != kept + columns or len(set(labels)) < len(labels):
        raise x.unsupported("axes that are moved, or shared without being summed over")
    shapes = b.shape(x[0]), b.shape(x[1])
    if (len(shapes[0]), len(shapes[1])) != (len(left), len(right)):
        raise x.unsupported("operands of other ranks than the equation's")
    for mine, theirs in zip(shapes[0][len(kept) :], shapes[1][:shared], strict=True):
        b.join(mine, theirs, "Einsum")
    rows, new = b.shape(x[0])[: len(kept)], b.shape(x[1])[shared:]
    depth = product(b.shape(x[1])[:shared])
    flat = b.reshape(x[0], (product(rows), depth)), b.reshape(x[1], (depth, product(new)))
    return b.reshape(matrix_product(b, *flat), (*rows, *new))


def define_product(name: str, expand: Expansion, samples: tuple[dict[str, Any], ...], limits: str) -> None:
    """An op that multiplies its operand 0 with weights, its operand 1, and sums up."""
    notes = f"on CPUs, where there are few weights (passes/profitability.py); {limits}"
    define_op(OpDef((name,), Kind.PRODUCT, expand, outside=(1,), samples=samples, dtypes=DTYPES, notes=notes))


define_product(
    "MatMul",
    _matmul,
    tuple({"transpose_a": a, "transpose_b": b} for a in (False, True) for b in (False, True)),
    "weights are turned round where there are rows enough",
)
define_product(
    "Einsum",
    _einsum,
    ({"equation": "abc,cd->abd"}, {"equation": "ab,bcd->acd"}, {"equation": "abcd,cde->abe"}),
    "two operands, whose shared axes are the last of one and the first of the other",
)
