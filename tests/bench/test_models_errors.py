"""How outputs are compared."""

from __future__ import annotations

import numpy as np
import pytest

from bench.models_errors import NO_AGREEMENT, error, worst

X = np.array([1.0, -2.0, 4.0], np.float32)


@pytest.mark.parametrize(
    ("got", "want", "expected"),
    [
        (X, X, 0.0),
        (X + np.float32(0.5), X, 0.125),
        (np.array([np.nan, 1.0]), np.array([np.nan, 2.0]), 0.5),
        (np.array([np.inf, -np.inf]), np.array([np.inf, -np.inf]), 0.0),
        (np.array([np.inf]), np.array([-np.inf]), NO_AGREEMENT),
        (np.array([np.nan]), np.array([np.inf]), NO_AGREEMENT),
        (np.array([1.0, np.nan]), np.array([1.0, 2.0]), NO_AGREEMENT),
        (np.zeros((0, 3)), np.zeros((0, 3)), 0.0),
        (np.zeros((0, 3)), np.zeros((0, 4)), NO_AGREEMENT),
        (X, X[:2], NO_AGREEMENT),
        (np.array([True, False]), np.array([True, True]), 1.0),
        (np.array([3], np.uint8), np.array([4], np.uint8), 0.25),
        (np.array([1j]), np.array([2j]), 0.5),
        (np.array([b"a"], object), np.array([b"a"]), 0.0),
        (np.array([b"a"], object), np.array([b"b"]), NO_AGREEMENT),
        (np.array([1e-3]), np.array([0.0]), 1e27),
        (np.array(2.0), np.array(4.0), 0.5),
    ],
)
def test_the_error_of_an_output(got, want, expected):
    assert error(got, want) == pytest.approx(expected)


def test_the_worst_output_is_named():
    assert worst({"a": X, "b": X * 2}, {"a": X, "b": X}) == (1.0, "b")
    assert worst({"a": X}, {"a": X, "b": X}) == (NO_AGREEMENT, "b")
    assert worst({}, {}) == (0.0, "")
