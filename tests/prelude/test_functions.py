"""The math functions against float64, against TensorFlow, and against themselves at every Pack width."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from mpmath import mp

from tests.prelude.functions import UNARY, Array, Unary
from tests.prelude.harness import BEGIN, MXCSR, Variant, build, call, ulps, variants

WIDTHS = (1, 4, 16, 64)
# The sign of TensorFlow's zero depends on the array's length (relu), or is that of exp(x) - 1 for a tiny x (elu).
INEXACT_ZERO = {"relu", "relu6", "elu", "selu"}
BY_NAME = pytest.mark.parametrize("function", UNARY, ids=lambda f: f.name)
BY_VARIANT = pytest.mark.parametrize("variant", variants(), ids=str)


@cache
def source() -> str:
    lines = [BEGIN, MXCSR]
    for f in UNARY:
        for t, lanes in (("f32", "kNative"), ("f64", "kNative / 2")):
            lines.append(
                f'extern "C" void {f.name}_{t}(const {t}* in, {t}* out, i64 count) {{\n'
                f"  for (i64 i = 0; i < count; i += {lanes})"
                f" store(out + i, {f.name}(load<{lanes}>(in + i)));\n}}\n"
            )
    return "".join(lines)


def padded(x: Array) -> Array:
    """A multiple of 64 elements, which every Pack divides."""
    return np.concatenate([x, np.resize(x, -x.size % 64)])


@cache
def f32_sample(stride: int = 20011) -> Array:
    """Every so many of all f32, and more of those between -4 and 4."""
    all_bits = np.arange(0, 2**32, stride, dtype=np.uint64).astype(np.uint32).view(np.float32)
    return padded(np.concatenate([all_bits, np.linspace(-4, 4, 50_000, dtype=np.float32)]))


def specials(dtype: Any) -> Array:
    limits = np.finfo(dtype)
    positive = [0, limits.smallest_subnormal, limits.tiny / 3, limits.tiny, 1e-30, 1e-5, 0.25, 0.5, 1, 1.5, 2.5]
    positive += [6, 7, 20, 88.5, 90, 104, 710, 750, 1e10, limits.max, np.inf]
    x = np.array([np.nan, *positive], dtype)
    return padded(np.concatenate([x, -x]))


@cache
def tensorflows(name: str, dtype: Any) -> Array:
    """TensorFlow's values of `specials`, from a graph."""
    tf = pytest.importorskip("tensorflow")
    function: Any = tf
    for part in name.split("."):
        function = getattr(function, part)
    return tf.function(function)(tf.constant(specials(dtype))).numpy()


def subnormal(x: Array) -> Array:
    return (x != 0) & (np.abs(x) < np.finfo(x.dtype).tiny)


@BY_VARIANT
@BY_NAME
def test_f32_is_near_float64(function: Unary, variant: Variant) -> None:
    x = f32_sample()
    x = x[~subnormal(x)]
    x = padded(x)
    with np.errstate(all="ignore"):
        exact = function.exact(x.astype(np.float64))
    found = call(build(source(), variant), f"{function.name}_f32", x, out=np.float32)
    distance = ulps(found, exact)
    at = int(np.argmax(distance))
    assert distance[at] <= function.ulps[0], f"of {x[at]!r}: {found[at]!r}, not {exact[at]!r}"


@BY_VARIANT
@BY_NAME
def test_f64_is_near_mpmath(function: Unary, variant: Variant) -> None:
    random = np.random.default_rng(0)
    parts = [random.uniform(-1, 1, 300), random.uniform(-30, 30, 300), random.normal(size=100) * 300]
    x = padded(np.concatenate(parts))
    found = call(build(source(), variant), f"{function.name}_f64", x, out=np.float64)
    with np.errstate(all="ignore"):
        rough = function.exact(x)  # says where the function is defined
    for value, result, about in zip(x, found, rough, strict=True):
        if not np.isfinite(about) or about == 0:
            assert result == about or np.isnan(result) == np.isnan(about)
            continue
        with mp.workprec(200):
            exact = function.precise(mp.mpf(float(value)))
            distance = abs(mp.mpf(float(result)) - exact) / mp.mpf(float(np.spacing(abs(about))))
        if abs(about) > np.finfo(np.float64).tiny:
            assert distance <= function.ulps[1], f"of {value!r}: {result!r}, not {about!r}"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("variant", variants(), ids=str)
@BY_NAME
def test_specials_are_tensorflows(function: Unary, variant: Variant, dtype: Any) -> None:
    x, theirs = specials(dtype), tensorflows(function.tensorflow, dtype)
    name = f"{function.name}_{'f32' if dtype is np.float32 else 'f64'}"
    ours = call(build(source(), variant), name, x, out=dtype, flushed=True)
    for value, our, their in zip(x, ours, theirs, strict=True):
        if subnormal(value) or subnormal(their) or (function.name, dtype) == ("erf", np.float64):
            continue
        where = f"{function.name}({value!r}) is {our!r}, TensorFlow's {their!r}"
        assert np.isnan(our) == np.isnan(their), where
        if np.isnan(our):
            continue
        assert np.isinf(our) == np.isinf(their) or abs(their) > np.finfo(dtype).max / 4, where
        if our == 0 or their == 0:
            assert max(abs(our), abs(their)) < np.finfo(dtype).tiny * 4 or function.name in INEXACT_ZERO, where
            if function.name not in INEXACT_ZERO:
                assert np.signbit(our) == np.signbit(their), where


@BY_VARIANT
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_one_lane_has_the_bits_of_any_other(dtype: str, variant: Variant) -> None:
    lines = [BEGIN]
    for f in UNARY:
        lines += [
            f'extern "C" void {f.name}_{lanes}(const {dtype}* in, {dtype}* out, i64 count) {{\n'
            f"  for (i64 i = 0; i < count; i += {lanes}) store(out + i, {f.name}(load<{lanes}>(in + i)));\n}}\n"
            for lanes in WIDTHS
        ]
    library = build("".join(lines), variant)
    numpy_type = np.dtype(np.float32 if dtype == "f32" else np.float64)
    bits = np.dtype(f"u{numpy_type.itemsize}")
    x = padded(np.concatenate([specials(numpy_type), np.linspace(-12, 12, 2000).astype(numpy_type)]))
    for f in UNARY:
        first, *rest = (call(library, f"{f.name}_{lanes}", x, out=numpy_type) for lanes in WIDTHS)
        for other in rest:
            same = (first.view(bits) == other.view(bits)) | (np.isnan(first) & np.isnan(other))
            assert same.all(), (f.name, x[~same][:4], first[~same][:4], other[~same][:4])


@pytest.mark.slow
@BY_NAME
def test_f32_is_as_near_as_tensorflow(function: Unary) -> None:
    """Never twice as far from float64 as TensorFlow's own kernel, and never more than an ulp in any case."""
    tf = pytest.importorskip("tensorflow")
    x = f32_sample(4001)
    with np.errstate(all="ignore"):
        exact = function.exact(x.astype(np.float64))
    x, exact = x[~subnormal(x)], exact[~subnormal(x)]
    theirs_of: Any = tf
    for part in function.tensorflow.split("."):
        theirs_of = getattr(theirs_of, part)
    theirs = tf.function(theirs_of)(tf.constant(x)).numpy()
    off = ulps(theirs, exact)
    their_worst = off[np.isfinite(off)].max()
    assert function.ulps[0] <= max(2 * their_worst, 1), their_worst
