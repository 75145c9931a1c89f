"""Every op of the table as a CUDA kernel of its own, run on the emulator, against the reference.

The samples are those of `tests/ops`, where the reference is compared with TensorFlow. All kernels of an op are one
module.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.emulator.emulated import compile_kernel
from tests.emulator.stitched import Stitched, run, stitched
from tests.ops.oracle import Array, Sample, assert_matches, body_of, evaluated, is_float, symbolic, widened
from tests.ops.samples import samples
from tests.prelude.cuda import compiled
from tf_stitch.errors import Unsupported
from tf_stitch.ir.body import Body
from tf_stitch.ir.types import DType
from tf_stitch.ops import OPS
from tf_stitch.runtime.reference import GuardFailed

# Zeros of either sign are right: TensorFlow's own paths disagree on them, or the order decides that is not fixed.
ZEROS_ALIKE = {"Max", "Min", "Xdivy", "Xlogy", "Xlog1py"}


def symbolic_body(sample: Sample) -> Body:
    """The body with a symbol for each extent."""
    types = [symbolic(a) for a in sample.operands]
    return body_of(sample, types)[0]


def kernels(op: str, dtypes: frozenset[DType], body: Callable[[Sample], Body]) -> list[tuple[Sample, Body, Stitched]]:
    """A kernel for each sample that makes one: of a scalar's reshape, say, there is nothing to compute."""
    found: list[tuple[Sample, Body, Stitched]] = []
    for dtype in sorted(dtypes, key=lambda d: d.value):
        for sample in samples(op, dtype):
            try:
                made = body(sample)
                found.append((sample, made, stitched(made, f"{op}_{len(found)}")))
            except Unsupported:
                continue
    return found


def exact(sample: Sample) -> list[Array]:
    """The results in the widest float that the op has: float64, or float32 (batch normalisation)."""
    widest = max((d for d in OPS[sample.op].dtypes if d.is_float), key=lambda d: d.size, default=DType.F64).numpy
    narrow = any(is_float(a.dtype) and a.dtype.itemsize < widest.itemsize for a in sample.operands)
    wide = widened(sample, widest) if narrow else sample
    return [r.astype(np.float64) for r in evaluated(body_of(wide)[0], wide)]


def assert_agree(made: list[tuple[Sample, Body, Stitched]]) -> None:
    module = compile_kernel("\n".join(kernel.text for _, _, kernel in made))
    for sample, body, kernel in made:
        fed = [None if t is None else a for t, a in zip(body.inputs, sample.operands, strict=True)]
        try:
            wanted = evaluated(body, sample)
        except GuardFailed:
            continue
        found = run(module, kernel, fed)
        for ours, theirs, best in zip(found, wanted, exact(sample), strict=True):
            assert_matches(ours, theirs, best, sample, sample.op in ZEROS_ALIKE)


@pytest.mark.parametrize("op", OPS)
def test_op(op: str) -> None:
    """Every dtype and sample, for the shape that it has."""
    made = kernels(op, OPS[op].dtypes, lambda sample: body_of(sample)[0])
    assert {kernel.kernel.outputs[0].dtype for _, _, kernel in made} or not OPS[op].dtypes
    assert_agree(made)


@pytest.mark.parametrize("op", OPS)
def test_symbolic_dims(op: str) -> None:
    """One dtype of each op, with all extents known at launch alone."""
    dtype = next(d for d in (DType.F32, DType.I32, DType.BOOL) if d in OPS[op].dtypes)
    made = kernels(op, frozenset({dtype}), symbolic_body)
    if made:
        assert_agree(made)


@pytest.mark.parametrize("op", OPS)
def test_nvrtc_takes_it(op: str) -> None:
    """The text that ran here compiles for a device, with no word of warning."""
    dtypes = OPS[op].dtypes & {DType.F16, DType.F32, DType.I32, DType.BOOL}
    text = "\n".join(kernel.text for _, _, kernel in kernels(op, dtypes, lambda sample: body_of(sample)[0]))
    assert compiled(text, "sm_90")
