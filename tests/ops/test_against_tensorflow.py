"""Every op, dtype and shape: our Body in NumPy against TensorFlow's CPU kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ops.oracle import (
    Array,
    Sample,
    assert_matches,
    body_of,
    evaluated,
    is_float,
    symbolic,
    tensorflow,
    widened,
)
from tests.ops.samples import samples
from tf_stitch.errors import Reason, Unsupported
from tf_stitch.ir.body import Elementwise, Reduce
from tf_stitch.ir.types import DType
from tf_stitch.ops import FUNCTIONS, OPS, REDUCERS, Kind
from tf_stitch.runtime.reference import GuardFailed

ZEROS_ALIKE = frozenset({
    "ClipByValue", "Max", "Maximum", "Min", "Minimum", "Relu", "Relu6", "Xdivy", "Xlog1py", "Xlogy",
})  # fmt: skip
"""Ops of which TensorFlow's own vector and scalar paths disagree on the sign of a zero, in f32 and f64."""
ALIKE_IN_HALVES = frozenset({"Max", "Min", "Xdivy", "Xlog1py", "Xlogy"})
"""Those of which they disagree in f16 and bf16, too."""

UNSPECIFIED = frozenset({("FusedBatchNormV3", 5)})
"""Outputs of which TensorFlow's plain and oneDNN kernels disagree on the shape, and that none of its ops reads."""


def cases() -> list[tuple[str, DType]]:
    return [(op, d) for op, definition in OPS.items() for d in sorted(definition.dtypes, key=lambda d: d.value)]


@pytest.mark.parametrize("op", OPS)
def test_matches_tensorflow(op: str) -> None:
    tried = [s for d in sorted(OPS[op].dtypes, key=lambda d: d.value) for s in samples(op, d)]
    assert tried
    theirs = tensorflow(tried)
    for sample, results, exact in zip(tried, theirs, in_widest(tried, theirs), strict=True):
        body, produced = body_of(sample)
        for output, result in zip(produced, evaluated(body, sample), strict=True):
            if (op, output) in UNSPECIFIED:
                continue
            reference = exact[output].astype(np.float64)
            assert_matches(result, results[output], reference, sample, zeros_are_alike(op, result.dtype))


def zeros_are_alike(op: str, dtype: np.dtype[Any]) -> bool:
    return op in (ALIKE_IN_HALVES if is_float(dtype) and dtype.itemsize == 2 else ZEROS_ALIKE)


def in_widest(tried: list[Sample], theirs: list[list[Array]]) -> list[list[Array]]:
    """TensorFlow's results in the widest float that its op has: float64, or float32 (batch normalisation)."""
    widest = max((d for d in OPS[tried[0].op].dtypes if d.is_float), key=lambda d: d.size, default=DType.F64).numpy
    low = [s for s in tried if any(is_float(a.dtype) and a.dtype.itemsize < widest.itemsize for a in s.operands)]
    exact = iter(tensorflow([widened(s, widest) for s in low]) if low else [])
    lows = set(map(id, low))
    return [next(exact) if id(s) in lows else t for s, t in zip(tried, theirs, strict=True)]


@pytest.mark.parametrize("op", OPS)
def test_symbolic_dims_give_the_same(op: str) -> None:
    """With a symbol for each extent, or for the first axis only, the results are those of static shapes."""
    for dtype in OPS[op].dtypes & {DType.F32, DType.I32, DType.BOOL}:
        for sample in samples(op, dtype):
            wanted = evaluated(body_of(sample)[0], sample)
            for axes in (slice(None), slice(1)):
                results = symbolic_results(sample, axes)
                for result, want in zip(results or wanted, wanted, strict=True):
                    assert result.dtype == want.dtype
                    np.testing.assert_array_equal(plain(result), plain(want), err_msg=str(sample))


def symbolic_results(sample: Sample, axes: slice) -> list[Array] | None:
    """None where the op moves elements, or looks them up, in a way that depends on what is not known."""
    moves = OPS[sample.op].kind is Kind.MOVEMENT or bool(OPS[sample.op].outside)
    try:
        body, _ = body_of(sample, [symbolic(a, axes) for a in sample.operands])
        return evaluated(body, sample)
    except Unsupported as refusal:
        if moves and refusal.reason in (
            Reason.UNKNOWN_DIM,
            Reason.UNKNOWN_RANK,
        ):
            return None
        raise
    except GuardFailed:
        if moves:
            return None
        raise


OF_PASSES = {"at_most"}  # passes/zeros.py puts it in


def plain(array: Array) -> Array:
    """bf16 as f32, for NumPy's assertions do not know that its NaN is one."""
    return array.astype(np.float32) if is_float(array.dtype) and array.dtype.itemsize == 2 else array


def test_every_function_and_reducer_is_used() -> None:
    used: set[str] = set()
    for op, dtype in cases():
        if dtype.compute is not dtype:
            continue
        for sample in samples(op, dtype):
            steps = body_of(sample)[0].steps
            used |= {s.op.function for s in steps if isinstance(s.op, Elementwise | Reduce)}
    assert used - {"convert"} == (set(FUNCTIONS) | set(REDUCERS)) - OF_PASSES
