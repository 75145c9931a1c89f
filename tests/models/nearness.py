"""How far apart results are, and how far they may be."""

from __future__ import annotations

import numpy as np

FLOOR = 2 * np.finfo(np.float32).eps  # of the largest value: below this, no result is nearer than another


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """The largest difference; infinite where one has a NaN or infinity and the other has not."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    difference = np.where(same, 0, np.abs(a - b))
    return float(np.nan_to_num(difference, nan=np.inf).max(initial=0))


def largest(values: np.ndarray) -> float:
    return float(np.abs(values[np.isfinite(values)]).max(initial=0))


def spread(a: np.ndarray, b: np.ndarray) -> float:
    """The root of the mean square of the differences."""
    difference = a.astype(np.float64) - b.astype(np.float64)
    return float(np.sqrt(np.mean(np.square(difference)))) if difference.size else 0.0
