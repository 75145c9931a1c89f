"""Difference: how far one array is from another, as `tf-stitch compare` and repro scripts tell it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

# Relative to the largest value: what two correct ways to compute one thing may differ by.
RTOL = {"float64": 1e-5, "float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}
_BITS = {2: np.int16, 4: np.int32, 8: np.int64}


@dataclass(frozen=True)
class Difference:
    """Of one output.

    problem: what makes the two incomparable (another shape, NaN in other places), else "".
    max_ulps: units in the last place, at most; None for what is no float.
    max_abs: the largest absolute difference; relative: the same over the largest absolute value of the first.
    unequal: how many elements differ at all.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    problem: str
    max_ulps: int | None
    max_abs: float
    relative: float
    unequal: int
    tolerance: float

    @property
    def agrees(self) -> bool:
        return not self.problem and self.relative <= self.tolerance

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"shape": list(self.shape), "agrees": self.agrees}


def difference(name: str, first: Array, second: Array, rtol: float | None = None) -> Difference:
    """How far `second` is from `first`. Floats may differ by `rtol` (see RTOL); all else must be equal."""
    dtype = dtype_name(first)
    is_float = dtype in RTOL
    tolerance = (RTOL[dtype] if rtol is None else rtol) if is_float else 0.0

    def result(
        problem: str = "",
        ulps: int | None = None,
        absolute: float = 0.0,
        relative: float = 0.0,
        unequal: int = 0,
    ) -> Difference:
        return Difference(name, dtype, first.shape, problem, ulps, absolute, relative, unequal, tolerance)

    if first.dtype != second.dtype:
        return result(f"another dtype: {second.dtype}")
    if first.shape != second.shape:
        return result(f"another shape: {list(second.shape)}")
    if not is_float:
        return _difference_of_others(first, second, result)
    if not np.array_equal(np.isnan(first), np.isnan(second)):
        return result("NaN in other places")
    numbers = ~np.isnan(first)
    a, b = first[numbers], second[numbers]
    if not np.array_equal(np.isinf(a) * np.sign(a), np.isinf(b) * np.sign(b)):
        return result("infinity in other places")
    finite = np.isfinite(a)
    a, b = a[finite], b[finite]
    if not a.size:
        return result(ulps=0)
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    absolute = float(np.max(np.abs(wide_a - wide_b)))
    largest = float(np.max(np.abs(wide_a)))
    relative = 0.0 if absolute == 0.0 else absolute / largest if largest else float("inf")
    return result(
        ulps=int(ulps(a, b).max()),
        absolute=absolute,
        relative=relative,
        unequal=int(np.count_nonzero(a != b)),
    )


def dtype_name(array: Array) -> str:
    """As TensorFlow says it: strings are arrays of objects in NumPy."""
    return "string" if array.dtype == object else str(array.dtype)


def ulps(first: Array, second: Array) -> Array:
    """For each element how many floats lie between: 0 for equal ones, and for -0.0 and 0.0."""
    a, b = _ordered(first), _ordered(second)
    with np.errstate(over="ignore"):
        apart = np.where(a > b, a.astype(np.uint64) - b.astype(np.uint64), b.astype(np.uint64) - a.astype(np.uint64))
    return np.minimum(apart, np.uint64(np.iinfo(np.int64).max)).astype(np.int64)


def _ordered(values: Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Integers in the order of the floats, one apart for neighbours."""
    kind = _BITS[values.dtype.itemsize]
    bits = np.ascontiguousarray(values).view(kind).astype(np.int64)
    least = np.int64(np.iinfo(kind).min)
    with np.errstate(over="ignore"):
        return np.where(bits < 0, least - bits, bits)


def _difference_of_others(first: Array, second: Array, result: Any) -> Difference:
    unequal = int(np.count_nonzero(first != second))
    if unequal == 0:
        return result()
    if first.dtype.kind in "iu":
        absolute = float(np.max(np.abs(first.astype(np.float64) - second.astype(np.float64))))
        largest = float(np.max(np.abs(first.astype(np.float64))))
        relative = absolute / largest if largest else float("inf")
        return result(absolute=absolute, relative=relative, unequal=unequal)
    return result(f"{unequal} of {first.size} elements differ", unequal=unequal)
