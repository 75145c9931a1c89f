"""Every op, dtype and shape: our Body in NumPy against TensorFlow's CPU kernel."""

from __future__ import annotations

import numpy as np
import pytest
from tests.ops.oracle import (
    Array,
    Sample,
    assert_matches,
    body_of,
    extents_named,
    is_float,
    symbolic,
    tensorflow,
    widened,
)
from tests.ops.samples import samples

from tf_stitch.errors import Reason, Unsupported
from tf_stitch.ir.body import Body
from tf_stitch.ir.types import DType
from tf_stitch.ops import OPS, Kind
from tf_stitch.runtime.reference import evaluate

ZEROS_ALIKE = frozenset({"Relu", "Relu6", "Xlogy", "Xdivy", "Xlog1py", "Max", "Min", "Maximum", "Minimum", "ClipByValue"})
"""Ops of which TensorFlow's vector and scalar paths, or orders of elements, disagree on the sign of a zero."""


def outputs_of(body: Body, sample: Sample, symbols: dict[str, int]) -> list[Array]:
    fed = [None if t is None else a for t, a in zip(body.inputs, sample.operands, strict=True)]
    return evaluate(body, fed, symbols)


def cases() -> list[tuple[str, DType]]:
    return [(op, d) for op, definition in OPS.items() for d in sorted(definition.dtypes, key=lambda d: d.value)]


@pytest.mark.parametrize("op", OPS)
def test_matches_tensorflow(op: str) -> None:
    tried = [s for d in sorted(OPS[op].dtypes, key=lambda d: d.value) for s in samples(op, d)]
    assert tried
    theirs = tensorflow(tried)
    exact = in_float64(tried, theirs)
    for sample, results, references in zip(tried, theirs, exact, strict=True):
        body, produced = body_of(sample)
        ours = outputs_of(body, sample, {})
        for output, result in zip(produced, ours, strict=True):
            reference = references[output].astype(np.float64)
            assert_matches(result, results[output], reference, sample, op in ZEROS_ALIKE)


def in_float64(tried: list[Sample], theirs: list[list[Array]]) -> list[list[Array]]:
    """TensorFlow's results in float64, where its op has that dtype, else our own."""
    low = [s for s in tried if any(is_float(a.dtype) for a in s.operands)]
    if not low:
        return theirs
    op = low[0].op
    wide = [widened(s) for s in low]
    found: list[list[Array]] = tensorflow(wide) if DType.F64 in OPS[op].dtypes else [_own(op, s) for s in low]
    results = iter(found)
    return [next(results) if any(is_float(a.dtype) for a in s.operands) else t for s, t in zip(tried, theirs, strict=True)]


def _own(op: str, sample: Sample) -> list[Array]:
    body, _ = body_of(sample)
    return outputs_of(body, sample, {})


@pytest.mark.parametrize("op", OPS)
def test_symbolic_dims_give_the_same(op: str) -> None:
    """With a symbol for each extent, or for that of the first axis, the results are those of static shapes."""
    for dtype in OPS[op].dtypes & {DType.F32, DType.I32, DType.BOOL}:
        for sample in samples(op, dtype):
            static, _ = body_of(sample)
            wanted = outputs_of(static, sample, {})
            for axes in (slice(None), slice(1)):
                types = [symbolic(a, axes) for a in sample.operands]
                try:
                    body, _ = body_of(sample, types)
                except Unsupported as refusal:
                    assert OPS[op].kind is Kind.MOVEMENT or op == "Equal", f"{sample}: {refusal}"
                    assert refusal.reason in (Reason.UNKNOWN_DIM, Reason.UNKNOWN_RANK), f"{sample}: {refusal}"
                    continue
                for result, want in zip(outputs_of(body, sample, extents_named(sample)), wanted, strict=True):
                    np.testing.assert_array_equal(result, want, err_msg=str(sample))


def test_every_function_and_reducer_is_used() -> None:
    from tf_stitch.ir.body import Elementwise, Reduce
    from tf_stitch.ops import FUNCTIONS, REDUCERS

    used: set[str] = set()
    for op, dtype in cases():
        for sample in samples(op, dtype):
            for step in body_of(sample)[0].steps:
                if isinstance(step.op, Elementwise | Reduce):
                    used.add(step.op.function)
    assert used - {"convert"} == set(FUNCTIONS) | set(REDUCERS)
