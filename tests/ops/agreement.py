"""Whether compiled code agrees with the references of FUNCTIONS and REDUCERS: the cases, their operands, the rules."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ops.samples import special
from tf_stitch.ir.types import DType
from tf_stitch.ops import FUNCTIONS, REDUCERS, Function

Array = np.ndarray[Any, Any]

COUNT = 4096
DTYPES = (DType.F32, DType.F64, DType.I32, DType.I64, DType.BOOL)
FUNCTION_CASES = [(f, d) for f in FUNCTIONS.values() for d in DTYPES if d in f.dtypes]
REDUCER_CASES = [(r, d) for r in REDUCERS.values() for d in DTYPES if d in r.dtypes]
INTEGER_DIVISIONS = {"floor_div", "floor_mod", "trunc_div", "trunc_mod"}
ZEROS_ALIKE = {"xdivy", "xlog1py", "xlogy"}


def operand_dtype(function: Function, dtype: DType, index: int) -> DType:
    return DType.BOOL if index < function.selectors else dtype


def values(dtype: DType, domain: tuple[float, float], seed: int) -> Array:
    """A quarter of special values, the rest from the domain."""
    random = np.random.default_rng(seed)
    if dtype is DType.BOOL:
        return random.integers(0, 2, COUNT).astype(bool)
    result = random.uniform(*domain, COUNT).astype(dtype.numpy)
    result[: COUNT // 4] = random.choice(special(dtype), COUNT // 4)
    return result


def operands_of(function: Function, dtype: DType) -> list[Array]:
    """What a function is tried on; no integer divisor is zero."""
    operands = [values(operand_dtype(function, dtype, i), function.domain, seed=i) for i in range(function.arity)]
    if function.name in INTEGER_DIVISIONS and dtype in (DType.I32, DType.I64):
        operands[1][operands[1] == 0] = 3
    return operands


def assert_agrees(function: Function, dtype: DType, operands: list[Array], found: Array) -> None:
    """That `found` is what the reference makes of `operands`, within `function.ulps`; subnormals may be flushed."""
    with np.errstate(all="ignore"):
        wanted = np.asarray(function.reference(*operands))
    if wanted.dtype.kind != "f":
        np.testing.assert_array_equal(found, wanted)
        return
    with np.errstate(all="ignore"):
        tiny = np.finfo(wanted.dtype).tiny
        same = (found == wanted) & ((np.signbit(found) == np.signbit(wanted)) | (function.name in ZEROS_ALIKE))
        same |= np.isnan(found) & np.isnan(wanted)
        flushed = (np.abs(found) <= tiny) & (np.abs(wanted) <= tiny) & (wanted != 0)
        allowed = function.ulps + (2 if dtype is DType.F64 else 0.5)  # the f64 reference has its own errors
        near = np.abs(found - wanted) <= allowed * np.spacing(np.abs(wanted))
        good = same | flushed | near & (wanted != 0)
    if not good.all():
        at = int(np.argmin(good))
        raise AssertionError(f"{function.name} of {[o[at] for o in operands]}: {found[at]!r}, not {wanted[at]!r}")


def assert_reduces(wanted: Array, found: Array) -> None:
    """That reductions of a few elements agree: exactly, or to a few ulps where the order may differ."""
    if wanted.dtype.kind == "f":
        np.testing.assert_allclose(found, wanted, rtol=16 * np.finfo(wanted.dtype).eps, atol=1e-4)
    else:
        np.testing.assert_array_equal(found, wanted)
