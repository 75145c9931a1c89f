"""How near results have to be: to TensorFlow's, and to the same in float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

ULPS = 8.0  # of the largest value: two right sums in different orders


def epsilon(dtype: Any) -> float:
    return float(ml_dtypes.finfo(dtype).eps)


def is_float(dtype: Any) -> bool:
    return np.dtype(dtype).kind == "f" or dtype == ml_dtypes.bfloat16


def assert_near(
    ours: Array,
    theirs: Array,
    exact: Array | None = None,
    *,
    ulps: float = ULPS,
    what: str = "",
    coarsest: Any = None,
    least: float = 0.0,
) -> None:
    """Asserts that `ours` is as good as `theirs`.

    Integers and bools are equal; so are shapes, dtypes, and where NaNs and infinities are. The largest error of a
    float, against `exact` (the result in float64; `theirs` where there is none), is at most twice that of `theirs`,
    or some ulps of the largest value: ulps of `coarsest`, where a result depends on values of a coarser dtype, and of
    `least`, where it depends on larger ones that cancel.
    """
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype), what
    if not is_float(ours.dtype):
        np.testing.assert_array_equal(ours, theirs, err_msg=what)
        return
    if not ours.size:
        return
    mine, other = ours.astype(np.float64), theirs.astype(np.float64)
    wanted = other if exact is None else exact.astype(np.float64)
    special = ~np.isfinite(other)
    np.testing.assert_array_equal(mine[special], other[special], err_msg=what)
    finite = ~special & np.isfinite(wanted)
    assert np.isfinite(mine[~special]).all(), f"{what}: not finite where TensorFlow is"
    if not finite.any():
        return
    mine, other, wanted = mine[finite], other[finite], wanted[finite]
    error = np.abs(mine - wanted).max()
    theirs_error = np.abs(other - wanted).max()
    largest = max(np.abs(wanted).max(), least)
    allowed = max(2 * theirs_error, ulps * max(epsilon(ours.dtype), epsilon(coarsest or ours.dtype)) * largest)
    assert error <= allowed, f"{what}: off by {error:.3g}, TensorFlow by {theirs_error:.3g}; {allowed:.3g} is allowed"


def same_bits(a: Array, b: Array) -> bool:
    return (a.shape, a.dtype) == (b.shape, b.dtype) and a.tobytes() == b.tobytes()
