"""Operators, choices, casts, reductions and the functions of two operands."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.prelude.harness import BEGIN, MXCSR, Variant, build, call, ulps, variants

if TYPE_CHECKING:
    from collections.abc import Callable

NUMBERS: dict[str, Any] = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64}
FLOATS = {t: NUMBERS[t] for t in ("f32", "f64")}
INTEGERS = {t: NUMBERS[t] for t in ("i32", "i64")}
LANES = (1, 2, 4, 16, 64)
BY_VARIANT = pytest.mark.parametrize("variant", variants(), ids=str)
BY_NUMBER = pytest.mark.parametrize("type_", NUMBERS)

COMPARISONS: dict[str, Callable[..., Any]] = {
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
ARITHMETIC: dict[str, Callable[..., Any]] = {
    "x + y": np.add,
    "x - y": np.subtract,
    "x * y": np.multiply,
    "-x": lambda x, y: -x,
    "abs(x)": lambda x, y: np.abs(x),
    "sign(x)": lambda x, y: np.sign(x) + x.dtype.type(0),
    "square(x)": lambda x, y: x * x,
    "squared_difference(x, y)": lambda x, y: (x - y) * (x - y),
    "max(x, y)": lambda x, y: np.where((x <= y) | np.isnan(y), y, x),
    "min(x, y)": lambda x, y: np.where((x >= y) | np.isnan(y), y, x),
    "select(x < y, x, y)": lambda x, y: np.where(x < y, x, y),
    "select((x < y) | (~(x == y) & ((y >= x) ^ (x > y))), x, y)": lambda x, y: np.where(
        (x < y) | (~(x == y) & ((y >= x) ^ (x > y))), x, y
    ),
}
DIVISION: dict[str, Callable[..., Any]] = {
    "truncate_div(x, y)": lambda x, y: np.where(y == 0, 0, x // y + ((x % y != 0) & ((x < 0) != (y < 0)))),
    "truncate_mod(x, y)": lambda x, y: np.where(y == 0, 0, np.fmod(x, y)),
    "floor_div(x, y)": lambda x, y: np.where(y == 0, 0, np.floor_divide(x, y)),
    "floor_mod(x, y)": lambda x, y: np.where(y == 0, 0, np.mod(x, y)),
}


def kernel(name: str, type_: str, result: str, lanes: int, expression: str) -> str:
    return (
        f'extern "C" void {name}(const {type_}* a, const {type_}* b, {result}* out, i64 count) {{\n'
        f"  for (i64 i = 0; i < count; i += {lanes}) {{\n"
        f"    [[maybe_unused]] auto x = load<{lanes}>(a + i), y = load<{lanes}>(b + i);\n"
        f"    store(out + i, {expression});\n  }}\n}}\n"
    )


@cache
def arithmetic_source(type_: str) -> str:
    lines = [BEGIN]
    for lanes in LANES:
        lines += [kernel(f"a{i}_{lanes}", type_, type_, lanes, e) for i, e in enumerate(ARITHMETIC)]
        lines += [kernel(f"c{i}_{lanes}", type_, "boolean", lanes, f"x {c} y") for i, c in enumerate(COMPARISONS)]
    return "".join(lines)


def pairs(dtype: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Every special value with every other, and random ones; a multiple of 64."""
    if np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        special = np.array([0, 1, -1, 2, -2, 7, -7, limits.min, limits.max, limits.min + 1], dtype)
        random = np.random.default_rng(0).integers(limits.min, limits.max, 512, dtype)
        random[:256] %= 100
    else:
        special = np.array([0, -0.0, 1, -1, 0.5, -2.5, 3, np.inf, -np.inf, np.nan], dtype)
        random = np.random.default_rng(0).normal(size=512).astype(dtype)
    a, b = (m.ravel() for m in np.meshgrid(special, special))
    a, b = np.concatenate([a, random]), np.concatenate([b, random[::-1]])
    return np.concatenate([a, a[: -a.size % 64]]), np.concatenate([b, b[: -b.size % 64]])


def same_bits(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    bits = np.dtype(f"u{a.dtype.itemsize}")
    return (a.view(bits) == b.view(bits)) | (np.isnan(a) & np.isnan(b))


@BY_VARIANT
@BY_NUMBER
def test_arithmetic_and_comparisons(type_: str, variant: Variant) -> None:
    library = build(arithmetic_source(type_), variant)
    dtype = NUMBERS[type_]
    x, y = pairs(dtype)
    for lanes in LANES:
        with np.errstate(all="ignore"):
            for i, (text, exact) in enumerate(ARITHMETIC.items()):
                found = call(library, f"a{i}_{lanes}", x, y, out=dtype)
                wanted = np.asarray(exact(x, y)).astype(dtype)
                bad = np.flatnonzero(~same_bits(found, wanted))
                assert not bad.size, (text, lanes, x[bad[0]], y[bad[0]], found[bad[0]], wanted[bad[0]])
            for i, (text, exact) in enumerate(COMPARISONS.items()):
                found = call(library, f"c{i}_{lanes}", x, y, out=np.uint8)
                assert (found == exact(x, y)).all(), (text, lanes)


@BY_VARIANT
@pytest.mark.parametrize("type_", INTEGERS)
def test_integer_division_never_traps(type_: str, variant: Variant) -> None:
    dtype = NUMBERS[type_]
    widths = (1, 4, 8)
    source = [kernel(f"d{i}_{n}", type_, type_, n, e) for i, e in enumerate(DIVISION) for n in widths]
    library = build(BEGIN + "".join(source), variant)
    x, y = pairs(dtype)
    for lanes in widths:
        for i, (text, exact) in enumerate(DIVISION.items()):
            found = call(library, f"d{i}_{lanes}", x, y, out=dtype)
            with np.errstate(all="ignore"):
                wanted = exact(x, y).astype(dtype)
            bad = np.flatnonzero(found != wanted)
            assert not bad.size, (text, lanes, x[bad[0]], y[bad[0]], found[bad[0]], wanted[bad[0]])


@pytest.mark.parametrize("type_", FLOATS)
@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_tensorflows_choice_of_equal_and_nan(name: str, type_: str) -> None:
    tf = pytest.importorskip("tensorflow")
    dtype = NUMBERS[type_]
    x, y = pairs(dtype)
    index = list(ARITHMETIC).index(f"{name[:3]}(x, y)")
    ours = call(build(arithmetic_source(type_), variants()[0]), f"a{index}_16", x, y, out=dtype)
    theirs = tf.function(getattr(tf, name))(tf.constant(x), tf.constant(y)).numpy()
    assert same_bits(ours, theirs).all()


# ---- casts


def cast_source() -> str:
    lines = [BEGIN, MXCSR]
    for lanes in LANES:
        for s in NUMBERS:
            loop = f"for (i64 i = 0; i < count; i += {lanes})"
            lines += [
                f'extern "C" void {s}_{t}_{lanes}(const {s}* in, {t}* out, i64 count)'
                f" {{ {loop} store(out + i, convert<{t}>(load<{lanes}>(in + i))); }}\n"
                for t in NUMBERS
            ]
            lines += [
                f'extern "C" void {s}_bool_{lanes}(const {s}* in, boolean* out, i64 count)'
                f" {{ {loop} store(out + i, to_mask(load<{lanes}>(in + i))); }}\n",
                f'extern "C" void bool_{s}_{lanes}(const boolean* in, {s}* out, i64 count)'
                f" {{ {loop} store(out + i, convert<{s}>(load<{lanes}>(in + i))); }}\n",
            ]
    return "".join(lines)


def cast_sample(dtype: Any) -> np.ndarray[Any, Any]:
    x = pairs(dtype)[0]
    if np.issubdtype(dtype, np.integer):
        return x
    edges = [2.0**31, 2.0**31 - 1, -(2.0**31), -(2.0**31) - 1, 2.0**63, -(2.0**63), 3e9, -3e9, 1e19, 1e30, -1e30]
    numbers = np.array([*edges, 2.5, -2.5, 0.99, -0.99, 1e-40, 16777217, 1e300], np.float64)
    with np.errstate(all="ignore"):
        return np.resize(np.concatenate([x, numbers.astype(dtype)]), 1024)


@BY_VARIANT
@BY_NUMBER
def test_casts_are_tensorflows(type_: str, variant: Variant) -> None:
    tf = pytest.importorskip("tensorflow")
    library = build(cast_source(), variant)
    x = cast_sample(NUMBERS[type_])
    for target, dtype in {**NUMBERS, "bool": np.bool_}.items():
        theirs = tf.function(lambda v, dtype=dtype: tf.cast(v, dtype))(tf.constant(x)).numpy()
        for lanes in LANES:
            ours = call(library, f"{type_}_{target}_{lanes}", x, out=dtype, flushed=True)
            good = same_bits(ours, theirs)
            # one or the other flushes subnormals when it narrows a float64
            good |= (type_ == "f64") & (target == "f32") & (np.abs(x.astype(np.float64)) < 1e-37)
            assert good.all(), (target, lanes, x[~good][:4], ours[~good][:4], theirs[~good][:4])


@BY_VARIANT
@BY_NUMBER
def test_a_boolean_is_0_or_1(type_: str, variant: Variant) -> None:
    library = build(cast_source(), variant)
    x = np.resize(np.array([0, 1, 2, 255, 0, 0, 1], np.uint8), 448)
    for lanes in LANES:
        found = call(library, f"bool_{type_}_{lanes}", x, out=NUMBERS[type_])
        assert (found == (x != 0)).all()


# ---- reductions


def tree(x: np.ndarray[Any, Any], combine: Callable[..., Any]) -> Any:
    while x.size > 1:
        x = combine(x[: x.size // 2], x[x.size // 2 :])
    return x[0]


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "reduce_add": np.add,
    "reduce_mul": np.multiply,
    "reduce_max": ARITHMETIC["max(x, y)"],
    "reduce_min": ARITHMETIC["min(x, y)"],
}


@BY_VARIANT
@BY_NUMBER
def test_reductions_are_one_tree(type_: str, variant: Variant) -> None:
    dtype = NUMBERS[type_]
    lines = [BEGIN]
    for lanes in LANES:
        loop = f"for (i64 i = 0; i < count / {lanes}; ++i)"
        lines += [
            f'extern "C" void {name}_{lanes}(const {type_}* in, {type_}* out, i64 count)'
            f" {{ {loop} store(out + i, {name}(load<{lanes}>(in + i * {lanes}))); }}\n"
            for name in REDUCTIONS
        ]
        lines += [
            f'extern "C" void {name}_{lanes}(const {type_}* in, boolean* out, i64 count)'
            f" {{ {loop} store(out + i, {name}(to_mask(load<{lanes}>(in + i * {lanes})))); }}\n"
            for name in ("reduce_and", "reduce_or")
        ]
    library = build("".join(lines), variant)
    x = pairs(dtype)[0]
    with np.errstate(all="ignore"):
        for lanes in LANES:
            rows = x.reshape(-1, lanes)
            for name, combine in REDUCTIONS.items():
                found = call(library, f"{name}_{lanes}", x, out=dtype)[: len(rows)]
                wanted = np.array([tree(row, combine) for row in rows], dtype)
                assert same_bits(found, wanted).all(), (name, lanes)
            for name, combine in (("reduce_and", np.all), ("reduce_or", np.any)):
                found = call(library, f"{name}_{lanes}", x, out=np.bool_)[: len(rows)]
                assert (found == combine(rows != 0, axis=1)).all(), (name, lanes)


# ---- constants


@BY_VARIANT
def test_constants(variant: Variant) -> None:
    lines = [BEGIN]
    for lanes in LANES:
        lines += [
            f'extern "C" void {t}_{lanes}(const {t}* in, {t}* out, i64) {{\n'
            f"  store(out, iota<{t}, {lanes}>());\n"
            f"  store(out + 64, iota<{t}, {lanes}>(in[0], in[1]));\n"
            f"  store(out + 128, splat<{t}, {lanes}>(in[2]));\n"
            f"  store(out + 192, splat<{lanes}>(load<1>(in + 2)));\n"
            f"  Mask<{lanes}> no = splat<{lanes}>(load<1>(in) == load<1>(in + 1));\n"
            f"  store(out + 256, convert<{t}>(splat<{lanes}>(true)) - convert<{t}>(no));\n"
            f"}}\n"
            for t in NUMBERS
        ]
    library = build("".join(lines), variant)
    for t, dtype in NUMBERS.items():
        x = np.zeros(320, dtype)
        x[:3] = 5, 3, -0.0 if t in FLOATS else -7
        for lanes in LANES:
            found = call(library, f"{t}_{lanes}", x, out=dtype).reshape(5, 64)[:, :lanes]
            steps, same = np.arange(lanes), np.full(lanes, x[2])
            wanted = np.array([steps, 5 + 3 * steps, same, same, np.ones(lanes)], dtype)
            assert same_bits(found.copy(), wanted).all(), (t, lanes)


# ---- functions of two floats


def floor_mod(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    rest = np.fmod(x, y)
    return np.where((rest != 0) & ((y < 0) != (rest < 0)), rest + y, rest)


BINARY: dict[str, tuple[Callable[..., Any], float, str]] = {
    "pow": (np.power, 0.6, "pow"),
    "atan2": (np.arctan2, 4.0, "atan2"),
    "xlogy": (lambda x, y: np.where(x == 0, 0, x * np.log(y)), 2.0, "math.xlogy"),
    "xlog1py": (lambda x, y: np.where(x == 0, 0, x * np.log1p(y)), 2.0, "math.xlog1py"),
    "xdivy": (lambda x, y: np.where(x == 0, 0, x / y), 0.6, "math.xdivy"),
    "div_no_nan": (lambda x, y: np.where(y == 0, 0, x / y), 0.6, "math.divide_no_nan"),
    "mul_no_nan": (lambda x, y: np.where(y == 0, 0, x * y), 0.6, "math.multiply_no_nan"),
    "floor_div": (lambda x, y: np.floor((x / y).astype(np.float32)), 0.6, "math.floordiv"),
    "truncate_mod": (np.fmod, 0.6, "truncatemod"),
    "floor_mod": (floor_mod, 0.6, "math.floormod"),
}


@cache
def binary_source(type_: str) -> str:
    return BEGIN + "".join(
        kernel(f"{name}_{lanes}", type_, type_, lanes, f"{name}(x, y)") for name in BINARY for lanes in (1, 64)
    )


def float_pairs(dtype: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    special = [0, 0.5, 1, 1.5, 2, 3, 4, 100, 16777216, 16777217, 1e30, np.inf, np.nan]
    special = np.array([*special, *(-np.array(special))], dtype)
    random = np.random.default_rng(0)
    a, b = (m.ravel() for m in np.meshgrid(special, special))
    more = [random.uniform(0.01, 10, 4000), random.normal(size=4000) * 8]
    other = [random.uniform(-8, 8, 4000), random.normal(size=4000) * 3]
    a, b = np.concatenate([a, *more]).astype(dtype), np.concatenate([b, *other]).astype(dtype)
    return np.resize(a, a.size + -a.size % 64), np.resize(b, b.size + -b.size % 64)


@BY_VARIANT
@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_f32(name: str, variant: Variant) -> None:
    exact, bound, _ = BINARY[name]
    x, y = float_pairs(np.float32)
    library = build(binary_source("f32"), variant)
    with np.errstate(all="ignore"):
        wanted = exact(x.astype(np.float64), y.astype(np.float64))
    for lanes in (1, 64):
        found = call(library, f"{name}_{lanes}", x, y, out=np.float32)
        distance = ulps(found, wanted)
        at = int(np.argmax(distance))
        assert distance[at] <= bound, f"of {x[at]!r}, {y[at]!r}: {found[at]!r}, not {wanted[at]!r}"


@BY_VARIANT
@pytest.mark.parametrize("type_", FLOATS)
@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_floats_are_tensorflows(name: str, type_: str, variant: Variant) -> None:
    tf = pytest.importorskip("tensorflow")
    theirs_of: Any = tf
    for part in BINARY[name][2].split("."):
        theirs_of = getattr(theirs_of, part)
    dtype = NUMBERS[type_]
    x, y = (v[: 26 * 26 // 64 * 64] for v in float_pairs(dtype))
    theirs = tf.function(theirs_of)(tf.constant(x), tf.constant(y)).numpy()
    ours = call(build(binary_source(type_), variant), f"{name}_64", x, y, out=dtype)
    for a, b, our, their in zip(x, y, ours, theirs, strict=True):
        where = f"{name}({a!r}, {b!r}) is {our!r}, TensorFlow's {their!r}"
        assert np.isnan(our) == np.isnan(their), where
        if not np.isnan(our):
            assert our == their or np.isclose(our, their, rtol=8 * np.finfo(dtype).eps), where
            assert np.signbit(our) == np.signbit(their) or name in ("xlogy", "xlog1py", "xdivy"), where
