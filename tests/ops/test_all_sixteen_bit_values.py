"""Every op of one f16 or bf16 operand, on all 65,536 of its values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ops.oracle import Sample, assert_matches, body_of, evaluated, tensorflow, widened
from tests.ops.samples import UNARY
from tf_stitch.ir.types import DType
from tf_stitch.ops import OPS

COPIES = {"Identity", "PreventGradient", "Snapshot", "StopGradient", "ZerosLike", "OnesLike"}


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
@pytest.mark.parametrize("op", [op for op in UNARY if DType.F16 in OPS[op].dtypes and op not in COPIES])
def test_all_values(op: str, dtype: DType) -> None:
    every = np.arange(2**16, dtype=np.uint16).view(dtype.numpy)
    if op in ("Elu", "Selu"):  # even in float64, TensorFlow's exp(x) - 1 is 0 for a tiny x
        with np.errstate(invalid="ignore"):
            every = every[~(np.abs(every.astype(np.float64)) < 1e-10)]
    attributes: dict[str, Any] = OPS[op].samples[0]
    sample = Sample(op, (every,), attributes)
    ((theirs,), (exact,)) = tensorflow([sample]) + tensorflow([widened(sample, np.float64)])
    (ours,) = evaluated(body_of(sample)[0], sample)
    flushed = op in ("Relu", "Relu6")  # of a negative subnormal TensorFlow's is -0
    assert_matches(ours, theirs, exact.astype(np.float64), sample, flushed)
