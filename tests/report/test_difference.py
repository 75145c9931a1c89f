"""Ulps, absolute and relative differences, and what cannot be compared."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tf_stitch.report.difference import difference, ulps


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_neighbours_are_one_ulp_apart(dtype):
    x = np.array([1.0, -1.0, 0.0, 5e4, -3.5], dtype)
    above = np.nextafter(x, np.array(np.inf, dtype)).astype(dtype)
    np.testing.assert_array_equal(ulps(x, above), np.ones(5))
    np.testing.assert_array_equal(ulps(above, x), np.ones(5))


def test_zeros_are_equal_and_signs_are_far_apart():
    assert ulps(np.float32([0.0]), np.float32([-0.0]))[0] == 0
    assert ulps(np.float32([1e-45]), np.float32([-1e-45]))[0] == 2
    assert ulps(np.array([np.finfo(np.float64).max]), np.array([-np.finfo(np.float64).max]))[0] > 0


def test_figures():
    d = difference("y", np.float32([1, 2, -4]), np.float32([1, 2.00001, -4]))
    assert d.max_abs == pytest.approx(1e-5, rel=0.05)
    assert d.relative == pytest.approx(2.5e-6, rel=0.05)
    assert d.unequal == 1
    assert d.agrees
    assert not difference("y", np.float32([1, 2, -4]), np.float32([1, 2.00001, -4]), rtol=1e-6).agrees


def test_nothing_and_zeros():
    empty = np.zeros((0, 3), np.float32)
    assert difference("y", empty, empty).agrees
    zero = np.zeros(3, np.float32)
    assert difference("y", zero, zero).agrees
    assert not difference("y", zero, zero + np.float32(1e-30)).agrees


@pytest.mark.parametrize(
    ("a", "b", "problem"),
    [
        (np.float32([1]), np.float64([1]), "another dtype"),
        (np.float32([1]), np.float32([[1]]), "another shape"),
        (np.float32([1, np.nan]), np.float32([np.nan, 1]), "NaN in other places"),
        (np.float32([np.inf]), np.float32([-np.inf]), "infinity in other places"),
        (np.array([b"a", b"b"], object), np.array([b"a", b"c"], object), "1 of 2 elements differ"),
    ],
)
def test_what_cannot_be_compared(a, b, problem):
    found = difference("y", a, b)
    assert problem in found.problem
    assert not found.agrees


def test_specials_in_the_same_places_are_equal():
    x = np.float32([np.nan, np.inf, -np.inf, 1])
    assert difference("y", x, x.copy()).agrees
    assert difference("y", x[:3], x[:3].copy()).max_ulps == 0


def test_integers_and_bools_must_be_equal():
    assert difference("y", np.int32([1, 2]), np.int32([1, 2])).agrees
    found = difference("y", np.int32([1, 2]), np.int32([1, 3]))
    assert not found.agrees
    assert found.max_abs == 1
    assert not difference("y", np.array([True]), np.array([False])).agrees
