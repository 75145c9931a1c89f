"""Derives the polynomials of the math functions, and prints `cpu/coefficients.h`.

    python kernels/prelude/minimax.py > kernels/prelude/cpu/coefficients.h

Every function is reduced to a short interval (or is odd and clamped), where

    N(x)        sum of a_i x^i
    ----   =    -------------------      comes as near to the target as that shape can, by Remez' exchange:
    D(x)        s + sum of b_j x^j

1. Solve for coefficients and a level E, so that the weighted error is +E, -E, +E, ... at the reference points
   (one more than there are coefficients).
2. Move each reference point to the largest error of its sign run. Repeat until no error is above |E|.
3. A quotient is not linear in b: fit N - target D with the weight over the D of the time before, a few times, with
   s = 1. Then scale by the s that is asked for, and round D; from here on only N is sought. (The s below are, of a
   hundred whose s a_0 is nearly a number of the working precision, those with the least measured error.)
4. Round one coefficient to the working precision, hold it, and fit the others again, until none is left: the highest
   power first, as the lower powers alone still approximate anything, whereas the higher ones vanish at 0.

Invariant: the weight times the error of N/D is the relative error of the function itself, so the level E of a fit is
what the polynomial adds to the rounding errors. E times 2^24 (f32) or 2^53 (f64) is the number of half ulps.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mpmath import mp, mpf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

mp.prec = 200

MANTISSA = {"f32": 24, "f64": 53}
GRID = 300  # points of the interval, Chebyshev-spaced; even, so that 0 is not one of them

Column = list[mpf]  # a function's values on the grid


@dataclass(frozen=True)
class Fit:
    """What to approximate: `target` on `interval`, by powers `numerator` over 1 + powers `denominator`."""

    name: str
    dtype: str
    what: str  # for the comment
    target: Callable[[mpf], mpf]
    weight: Callable[[mpf], mpf]
    interval: tuple[mpf, mpf]
    numerator: tuple[int, ...]
    denominator: tuple[int, ...] = ()
    scale: str = "1"


@dataclass(frozen=True)
class Solution:
    """Coefficients by power, and the largest weighted error over the grid."""

    numerator: dict[int, mpf]
    denominator: dict[int, mpf]
    error: mpf


def combine(columns: Sequence[Column], coefficients: Sequence[mpf]) -> Column:
    return [mp.fdot(zip(coefficients, values, strict=True)) for values in zip(*columns, strict=True)]


def exchange(errors: Column, count: int) -> list[int] | None:
    """Step 2: the largest error of each sign run; the outermost smaller ones go until `count` are left."""
    peaks: list[int] = []
    for i, error in enumerate(errors):
        if not peaks or (error >= 0) != (errors[peaks[-1]] >= 0):
            peaks.append(i)
        elif abs(error) > abs(errors[peaks[-1]]):
            peaks[-1] = i
    while len(peaks) > count:
        peaks.pop(0 if abs(errors[peaks[0]]) < abs(errors[peaks[-1]]) else -1)
    return peaks if len(peaks) == count else None


def remez(columns: Sequence[Column], target: Column, weight: Column) -> list[mpf]:
    """Steps 1 and 2: the coefficients of `columns` that are nearest to `target`."""
    count = len(columns) + 1
    reference = [round((GRID - 1) * i / (count - 1)) for i in range(count)]
    best: tuple[mpf, list[mpf]] | None = None
    for _ in range(20):
        matrix, right = mp.matrix(count, count), mp.matrix(count, 1)
        for row, i in enumerate(reference):
            for column, values in enumerate(columns):
                matrix[row, column] = values[i]
            matrix[row, count - 1] = (-1) ** row / weight[i]
            right[row] = target[i]
        solved = mp.lu_solve(matrix, right)
        coefficients, level = [solved[i] for i in range(count - 1)], abs(solved[count - 1])
        errors = [(v - t) * w for v, t, w in zip(combine(columns, coefficients), target, weight, strict=True)]
        worst = max(abs(e) for e in errors)
        if best is None or worst < best[0]:
            best = (worst, coefficients)
        peaks = exchange(errors, count)
        if worst <= level * mpf("1.01") or peaks is None or peaks == reference:
            break
        reference = peaks
    assert best is not None
    return best[1]


def rounded(value: mpf, dtype: str) -> mpf:
    with mp.workprec(MANTISSA[dtype]):
        return +value


def derive(fit: Fit) -> Solution:
    """Coefficients that the working precision holds exactly."""
    low, high = fit.interval
    x = [(low + high) / 2 - (high - low) / 2 * mp.cos(mp.pi * i / (GRID - 1)) for i in range(GRID)]
    target = [fit.target(v) for v in x]
    weight = [fit.weight(v) for v in x]
    power = {e: [v**e for v in x] for e in {0, *fit.numerator, *fit.denominator}}

    below: dict[int, mpf] = {}
    divisor: Column = [mpf(1)] * GRID
    if fit.denominator:
        above_columns = [power[e] for e in fit.numerator]
        below_columns = [[-t * v for t, v in zip(target, power[e], strict=True)] for e in fit.denominator]
        for _ in range(6):
            found = remez(above_columns + below_columns, target, [w / d for w, d in zip(weight, divisor, strict=True)])
            b = found[len(fit.numerator) :]
            divisor = [1 + v for v in combine([power[e] for e in fit.denominator], b)]
        s = mpf(float.fromhex(fit.scale))
        below = {0: s} | {e: rounded(s * v, fit.dtype) for e, v in zip(fit.denominator, b, strict=True)}
        divisor = combine([power[e] for e in below], list(below.values()))

    # N approximates target D, with the weight over D
    wanted = [t * d for t, d in zip(target, divisor, strict=True)]
    relative = [w / d for w, d in zip(weight, divisor, strict=True)]
    left, above = wanted, dict[int, mpf]()
    for e in sorted(fit.numerator, reverse=True):
        free = [f for f in sorted(fit.numerator) if f <= e]
        coefficient = remez([power[f] for f in free], left, relative)[-1]
        above[e] = rounded(coefficient, fit.dtype)
        left = [v - above[e] * p for v, p in zip(left, power[e], strict=True)]
    return Solution(above, below, max(abs(v * w) for v, w in zip(left, relative, strict=True)))


# ---- the functions


def expm1_remainder(r: mpf) -> mpf:
    """q in e^r - 1 = r + r^2 q."""
    return (mp.expm1(r) - r) / r**2


def log1p_remainder(f: mpf) -> mpf:
    """p in log(1 + f) = f - f^2/2 + f^3 p."""
    return (mp.log1p(f) - f + f * f / 2) / f**3


def atanh_remainder(s: mpf) -> mpf:
    """p in log((1 + s) / (1 - s)) = 2 s + s^3 p."""
    return (2 * mp.atanh(s) - 2 * s) / s**3


HALF_LN2 = mp.log(2) / 2 * mpf("1.0002")  # a little more: the multiple of ln 2 is not always the nearest one
QUARTER_PI = mp.pi / 4 * mpf("1.0005")
ZERO = mpf("0.0001")  # where a fit that divides by x begins


def powers(first: int, count: int, step: int = 1) -> tuple[int, ...]:
    return tuple(range(first, first + count * step, step))


def exp_fit(name: str, dtype: str, function: Callable[[mpf], mpf], count: int) -> Fit:
    return Fit(
        name,
        dtype,
        f"(e^r - 1 - r) / r^2, |r| <= ln 2 / 2, for {name.lower()}",
        expm1_remainder,
        lambda r: abs(r**2 / function(r)),
        (-HALF_LN2, HALF_LN2),
        powers(0, count),
    )


def half_angle(
    name: str, half: Callable[[mpf], mpf], slope: Callable[[mpf], mpf], end: str, count: tuple[int, int], scale: str
) -> Fit:
    """t(x) = x N(x^2) / D(x^2) with f(x) = 2 t / (1 + t^2).

    f hardly depends on t where it is near 1: an error of t counts (1 - t^2) / (1 + t^2) times, which is `slope`.
    """
    return Fit(
        name,
        "f32",
        f"t(x) / x with {name.lower()}(x) = 2 t / (1 + t^2), 0 < x <= {end}: powers of x^2, above and below",
        lambda x: half(x) / x,
        lambda x: x / half(x) * slope(x),
        (ZERO, mpf(end)),
        powers(0, count[0], 2),
        powers(2, count[1], 2),
        scale,
    )


def half_erf(x: mpf) -> mpf:
    """t with erf(x) = 2 t / (1 + t^2)."""
    return mp.erf(x) / (1 + slope_of_erf(x))


def slope_of_erf(x: mpf) -> mpf:
    c = mp.erfc(x)
    return mp.sqrt(c * (2 - c))


FITS = (
    exp_fit("Exp", "f32", mp.exp, 5),
    exp_fit("Expm1", "f32", mp.expm1, 5),
    exp_fit("Exp", "f64", mp.exp, 10),
    exp_fit("Expm1", "f64", mp.expm1, 11),
    Fit(
        "Log",
        "f32",
        "(log(1 + f) - f + f^2/2) / f^3, -1/4 <= f <= 1/2",
        log1p_remainder,
        lambda f: abs(f**3 / mp.log1p(f)),
        (mpf("-0.25"), mpf("0.5")),
        powers(0, 8),
    ),
    Fit(
        "Log",
        "f64",
        "(2 atanh(s) - 2 s) / s^3, |s| <= 1/5: powers of s^2",
        atanh_remainder,
        lambda s: abs(s**3 / (2 * mp.atanh(s))),
        (ZERO, mpf("0.2")),
        powers(0, 8, 2),
    ),
    Fit(
        "Sin",
        "f32",
        "(sin(r) - r) / r^3, |r| <= pi / 4: powers of r^2",
        lambda r: (mp.sin(r) - r) / r**3,
        lambda r: r**3 / mp.sin(r),
        (ZERO, QUARTER_PI),
        powers(0, 3, 2),
    ),
    Fit(
        "Cos",
        "f32",
        "(cos(r) - 1 + r^2/2) / r^4, |r| <= pi / 4: powers of r^2",
        lambda r: (mp.cos(r) - 1 + r * r / 2) / r**4,
        lambda r: r**4 / mp.cos(r),
        (ZERO, QUARTER_PI),
        powers(0, 3, 2),
    ),
    Fit(
        "Asin",
        "f32",
        "(asin(s) - s) / s^3, |s| <= 1/2: powers of s^2",
        lambda s: (mp.asin(s) - s) / s**3,
        lambda s: s**3 / mp.asin(s),
        (ZERO, mpf("0.5")),
        powers(0, 5, 2),
    ),
    Fit(
        "Atan",
        "f32",
        "atan(s) / s, |s| <= 1: powers of s^2, above and below",
        lambda s: mp.atan(s) / s,
        lambda s: s / mp.atan(s),
        (ZERO, mpf(1)),
        powers(0, 4, 2),
        powers(2, 3, 2),
    ),
    Fit(
        "Erfc",
        "f32",
        "e^(x^2) erfc(x), 0 <= x <= 10.1: above and below",
        lambda x: mp.exp(x * x) * mp.erfc(x),
        lambda x: 1 / (mp.exp(x * x) * mp.erfc(x)),
        (mpf(0), mpf("10.1")),
        powers(0, 5),
        powers(1, 5),
    ),
    half_angle("Tanh", lambda x: mp.tanh(x / 2), mp.sech, "9.02", (3, 3), "0x1.b398c0p+0"),
    half_angle("Erf", half_erf, slope_of_erf, "3.93", (5, 3), "0x1.b35258p+0"),
)


def literal(value: mpf, dtype: str) -> str:
    return f"{float(value).hex()}{'f' if dtype == 'f32' else ''}"


def array(name: str, dtype: str, coefficients: dict[int, mpf]) -> Iterator[str]:
    yield f"constexpr {dtype} k{name}{dtype.upper()}[] = {{"
    for power in sorted(coefficients):
        yield f"    {literal(coefficients[power], dtype)},  // {mp.nstr(coefficients[power], 9)}"
    yield "};"


def render(fits: tuple[Fit, ...]) -> Iterator[str]:
    """The text of coefficients.h, line by line."""
    yield "// Printed by kernels/prelude/minimax.py, lowest power first. Do not edit."
    yield "#ifndef TF_STITCH_CPU_COEFFICIENTS_H_"
    yield "#define TF_STITCH_CPU_COEFFICIENTS_H_"
    yield ""
    yield '#include "types.h"'
    yield ""
    yield "namespace stitch {"
    for fit in fits:
        solution = derive(fit)
        yield ""
        yield f"// {fit.what}. Relative error of the function 2^{mp.nstr(mp.log(solution.error, 2), 4)}."
        yield from array(fit.name, fit.dtype, solution.numerator)
        if solution.denominator:
            yield from array(f"{fit.name}Below", fit.dtype, solution.denominator)
    yield ""
    yield "}  // namespace stitch"
    yield "#endif  // TF_STITCH_CPU_COEFFICIENTS_H_"


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in render(FITS))
