"""How far outputs are from those of a reference: the largest difference, relative to the reference's largest value."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

# Stands for NaN and infinity in other places, another shape, another text: JSON has no infinity.
NO_AGREEMENT = 1e30
_TINY = 1e-30


def worst(outputs: Mapping[str, np.ndarray], right: Mapping[str, np.ndarray]) -> tuple[float, str]:
    """The largest error of all outputs, and the output's name."""
    return max(((e, name) for name, e in errors(outputs, right).items()), default=(0.0, ""))


def errors(outputs: Mapping[str, np.ndarray], right: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Of each output; one that is missing, or too many, agrees with nothing."""
    unpaired = dict.fromkeys(set(outputs) ^ set(right), NO_AGREEMENT)
    return unpaired | {name: error(outputs[name], right[name]) for name in right if name in outputs}


def error(got: np.ndarray, want: np.ndarray) -> float:
    """Of one output. Texts agree or don't."""
    if got.shape != want.shape:
        return NO_AGREEMENT
    if want.dtype.kind in "OSU" or got.dtype.kind in "OSU":
        return 0.0 if np.array_equal(got, want) else NO_AGREEMENT
    if not want.size:
        return 0.0
    got, want = (a.astype(np.complex128 if a.dtype.kind == "c" else np.float64) for a in (got, want))
    finite = np.isfinite(want)
    if not (np.array_equal(np.isfinite(got), finite) and np.array_equal(got[~finite], want[~finite], equal_nan=True)):
        return NO_AGREEMENT
    if not finite.any():
        return 0.0
    got, want = got[finite], want[finite]
    difference, largest = float(np.max(np.abs(got - want))), float(np.max(np.abs(want)))
    relative = difference / max(largest, _TINY)
    return relative if np.isfinite(relative) else NO_AGREEMENT
