"""The float functions of the prelude: what each is in float64, where it is tested, and how far it may be off."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from mpmath import mp

if TYPE_CHECKING:
    from collections.abc import Callable

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Unary:
    """ulps: the bounds of the README's table, for f32 and f64. tensorflow: a name under tf, or none to compare."""

    name: str
    exact: Callable[[Array], Array]
    ulps: tuple[float, float]
    tensorflow: str

    def precise(self, x: Any) -> Any:
        """The function of an mpmath number."""
        return PRECISE[self.name](x) if self.name in PRECISE else getattr(mp, self.name)(x)


def each(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """A function of `math` on every element; what it refuses is NaN."""

    def of(x: float) -> float:
        try:
            return function(x)
        except ValueError:
            return math.nan

    return lambda x: np.frompyfunc(of, 1, 1)(x).astype(np.float64)


def sigmoid(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e / (1 + e), 1 / (1 + e))


SELU_SCALE, SELU_SCALE_ALPHA = 1.0507009873554804934193349852946, 1.7580993408473768599402175208123

PRECISE: dict[str, Callable[[Any], Any]] = {  # what mpmath calls otherwise, or has not
    "sigmoid": lambda x: 1 / (1 + mp.exp(-x)),
    "softplus": lambda x: mp.log1p(mp.exp(x)),
    "softsign": lambda x: x / (1 + abs(x)),
    "rsqrt": lambda x: 1 / mp.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "elu": lambda x: mp.expm1(x) if x < 0 else x,
    "selu": lambda x: SELU_SCALE_ALPHA * mp.expm1(x) if x < 0 else SELU_SCALE * x,
    "relu": lambda x: max(x, mp.mpf(0)),
    "relu6": lambda x: min(max(x, mp.mpf(0)), mp.mpf(6)),
    "rint": mp.nint,
    "abs": abs,
    "square": lambda x: x * x,
}

UNARY = (
    Unary("exp", np.exp, (1.0, 1.0), "exp"),
    Unary("expm1", np.expm1, (1.8, 2.0), "math.expm1"),
    Unary("log", np.log, (1.03, 1.0), "math.log"),
    Unary("log1p", np.log1p, (1.03, 1.0), "math.log1p"),
    Unary("tanh", np.tanh, (3.9, 2.6), "tanh"),
    Unary("sigmoid", sigmoid, (2.5, 2.2), "sigmoid"),
    Unary("softplus", lambda x: np.logaddexp(x, 0), (1.8, 1.7), "nn.softplus"),
    Unary("softsign", lambda x: x / (1 + np.abs(x)), (1.5, 1.5), "nn.softsign"),
    Unary("erf", each(math.erf), (3.9, 1.0), "math.erf"),
    Unary("erfc", each(math.erfc), (7.1, 3.0), "math.erfc"),
    Unary("sin", np.sin, (1.6, 0.6), "sin"),
    Unary("cos", np.cos, (1.6, 0.6), "cos"),
    Unary("tan", np.tan, (1.2, 0.7), "tan"),
    Unary("asin", np.arcsin, (2.5, 0.6), "asin"),
    Unary("acos", np.arccos, (1.2, 0.6), "acos"),
    Unary("atan", np.arctan, (3.8, 0.6), "atan"),
    Unary("sinh", np.sinh, (0.51, 2.0), "sinh"),
    Unary("cosh", np.cosh, (0.51, 2.0), "cosh"),
    Unary("asinh", np.arcsinh, (0.51, 2.0), "asinh"),
    Unary("acosh", np.arccosh, (0.51, 2.0), "acosh"),
    Unary("atanh", np.arctanh, (0.51, 2.0), "atanh"),
    Unary("rsqrt", lambda x: 1 / np.sqrt(x), (1.5, 1.5), "math.rsqrt"),
    Unary("sqrt", np.sqrt, (0.51, 0.51), "sqrt"),
    Unary("reciprocal", lambda x: 1 / x, (0.51, 0.51), "math.reciprocal"),
    Unary("elu", lambda x: np.where(x < 0, np.expm1(x), x), (1.6, 2.0), "nn.elu"),
    Unary(
        "selu",
        lambda x: np.where(x < 0, SELU_SCALE_ALPHA * np.expm1(x), SELU_SCALE * x),
        (3.0, 3.5),
        "nn.selu",
    ),
    Unary("relu", lambda x: np.where(x < 0, 0, x), (0, 0), "nn.relu"),
    Unary("relu6", lambda x: np.where(x < 0, 0, np.where(x > 6, 6, x)), (0, 0), "nn.relu6"),
    Unary("floor", np.floor, (0, 0), "floor"),
    Unary("ceil", np.ceil, (0, 0), "math.ceil"),
    Unary("rint", np.rint, (0, 0), "round"),
    Unary("sign", lambda x: np.sign(x) + 0.0, (0, 0), "sign"),
    Unary("abs", np.abs, (0, 0), "abs"),
    Unary("square", np.square, (0.51, 0.51), "square"),
)
