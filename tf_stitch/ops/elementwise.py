"""Element-wise ops. Most are one Function; broadcasting, dtypes and rounding are the builder's.

NaN and signed zeros follow TensorFlow's CPU kernels (Eigen), not C: `maximum` propagates NaN from either side. Those
kernels do f32 and f64 in vectors and what is left over behind the last in scalars, and the two disagree on the sign
of `relu(-0.)` and of `maximum(0., -0.)`: we do as the vectors do. f16 and bf16 are done in scalars.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tf_stitch.errors import Reason
from tf_stitch.ir.types import ALL, FLOATS, INTEGERS, ONE, DType
from tf_stitch.ops.opdef import (
    Array,
    Cost,
    Function,
    Kind,
    OpDef,
    Operands,
    ZeroSign,
    define,
    define_op,
    elementwise,
    expand_function,
    same_shape,
    wide,
    with_halves,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tf_stitch.ir.body import BodyBuilder

HEAVY = Cost.HEAVY
PASSED, HIDDEN = ZeroSign.PASSED, ZeroSign.HIDDEN
BOOLS = frozenset({DType.BOOL})
HALVES_TOO = with_halves(FLOATS)


# -- references --------------------------------------------------------------------------------------------


def _precise(function: Callable[..., Array]) -> Callable[..., Array]:
    """`function` computed in float64 and rounded to the operands' dtype: the correctly rounded f32."""

    def reference(*operands: Array) -> Array:
        return np.asarray(function(*(x.astype(np.float64) for x in operands))).astype(operands[0].dtype)

    return reference


def _scalar(function: Callable[[float], float]) -> Callable[..., Array]:
    """A function of `math` on each element."""

    def reference(x: Array) -> Array:
        return np.asarray(np.frompyfunc(function, 1, 1)(x)).astype(np.float64)

    return reference


def _zero_where(condition: Array, otherwise: Array) -> Array:
    return np.where(condition, otherwise.dtype.type(0), otherwise)


def _div_no_nan(x: Array, y: Array) -> Array:
    return _zero_where(y == 0, np.divide(x, y))


def _mul_no_nan(x: Array, y: Array) -> Array:
    return _zero_where(y == 0, np.multiply(x, y))


def _xdivy(x: Array, y: Array) -> Array:
    return _zero_where(x == 0, np.divide(x, y))


def _xlogy(x: Array, y: Array) -> Array:
    return _zero_where(x == 0, x * np.log(y))


def _xlog1py(x: Array, y: Array) -> Array:
    return _zero_where(x == 0, x * np.log1p(y))


def _sign(x: Array) -> Array:
    return np.sign(x) + x.dtype.type(0)  # of -0: 0


def _square(x: Array) -> Array:
    return np.multiply(x, x)


def _reciprocal(x: Array) -> Array:
    return np.divide(x.dtype.type(1), x)


def _rsqrt(x: Array) -> Array:
    return 1 / np.sqrt(x)


def _softplus(x: Array) -> Array:
    return np.logaddexp(x, 0.0)


def _softsign(x: Array) -> Array:
    return np.divide(x, np.abs(x) + x.dtype.type(1))


def _relu(x: Array) -> Array:
    return _zero_where(x <= 0, x)  # of -0: 0


def _relu6(x: Array) -> Array:
    return _relu(_minimum(np.full_like(x, 6), x))


def _elu(x: Array) -> Array:
    return np.where(x < 0, np.expm1(x), x)


def _maximum(x: Array, y: Array) -> Array:
    """Of equal operands the second, as x86 has it."""
    return np.where((x > y) | np.isnan(x), x, y)


def _minimum(x: Array, y: Array) -> Array:
    return np.where((x < y) | np.isnan(x), x, y)


def _at_least(x: Array, number: Array) -> Array:
    return np.where(number > x, number, x)


def _at_most(x: Array, number: Array) -> Array:
    return np.where(number < x, number, x)


def _floor_mod(x: Array, y: Array) -> Array:
    """`google_floor_fmod` of core/kernels/cwise_ops.h: it keeps the sign of a zero, unlike NumPy's."""
    if x.dtype.kind == "i":
        return np.mod(x, y)
    rest = np.fmod(x, y)
    return np.where((rest != 0) & ((y < 0) != (rest < 0)), rest + y, rest)


def _trunc_div(x: Array, y: Array) -> Array:
    quotient = np.floor_divide(x, y)
    return quotient + ((quotient < 0) & (quotient * y != x)).astype(x.dtype)


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small / (1 + small), 1 / (1 + small))


_SELU_SCALE = 1.0507009873554804934193349852946
_SELU_SCALE_ALPHA = 1.7580993408473768599402175208123


def _selu(x: Array) -> Array:
    return np.where(x < 0, _SELU_SCALE_ALPHA * np.expm1(x), _SELU_SCALE * x)


# -- arithmetic --------------------------------------------------------------------------------------------

# Signed integers of a scalar do not wrap in C++, where the lanes of a pack do.
elementwise("Add AddV2", Function("add", 2, np.add, "{0} + {1}", cuda="plus({0}, {1})"))
elementwise("Sub", Function("sub", 2, np.subtract, "{0} - {1}", cuda="minus({0}, {1})"))
elementwise("Mul", Function("mul", 2, np.multiply, "{0} * {1}", cuda="times({0}, {1})", zero_sign=PASSED))
elementwise("RealDiv", Function("div", 2, np.divide, "{0} / {1}", HEAVY, FLOATS))
expand_function("Div", "div", "floats only: the integer op can fail")
elementwise("DivNoNan", Function("div_no_nan", 2, _div_no_nan, "div_no_nan({0}, {1})", HEAVY, FLOATS))
elementwise("MulNoNan", Function("mul_no_nan", 2, _mul_no_nan, "mul_no_nan({0}, {1})", dtypes=FLOATS))
define(
    Function("maximum", 2, _maximum, "max({0}, {1})", zero_sign=PASSED),
    Function("minimum", 2, _minimum, "min({0}, {1})", zero_sign=PASSED),
    # One instruction; of zeros the first, and of a {1} that is NaN. Put in by passes/zeros.py, for a number in {1}.
    Function("at_least", 2, _at_least, "at_least({0}, {1})", dtypes=FLOATS, zero_sign=PASSED),
    Function("at_most", 2, _at_most, "at_most({0}, {1})", dtypes=FLOATS, zero_sign=PASSED),
)


def _extreme(function: str) -> Callable[[BodyBuilder, Operands], int]:
    """Of zeros of different sign the second, but in f16 and bf16 the first."""

    def expand(b: BodyBuilder, x: Operands) -> int:
        return b.apply(function, x[1], x[0]) if _is_half(b, x) else b.apply(function, x[0], x[1])

    return expand


def _is_half(b: BodyBuilder, x: Operands) -> bool:
    return b.dtype(x[0]) in (DType.F16, DType.BF16)


define_op(
    OpDef(("Maximum",), Kind.ELEMENTWISE, _extreme("maximum")),
    OpDef(("Minimum",), Kind.ELEMENTWISE, _extreme("minimum")),
)
elementwise("Neg", Function("neg", 1, np.negative, "-{0}", cuda="negated({0})", zero_sign=PASSED))
elementwise("Abs", Function("abs", 1, np.abs, "abs({0})", zero_sign=HIDDEN, no_minus_zero=True))
elementwise("Sign", Function("sign", 1, _sign, "sign({0})", zero_sign=PASSED))
elementwise("Square", Function("square", 1, _square, "square({0})", zero_sign=HIDDEN, no_minus_zero=True))
elementwise(
    "Reciprocal Inv",
    Function("reciprocal", 1, _reciprocal, "reciprocal({0})", HEAVY, FLOATS),
    "TensorFlow's own f32 kernel is off by an ulp; ours is exact",
)
define(
    Function(
        "pow", 2, _precise(np.power), "pow({0}, {1})", HEAVY, FLOATS, domain=(0.1, 8.0), ulps=2.0, header="math_rare.h"
    )
)


def _pow(b: BodyBuilder, x: Operands) -> int:
    """A constant exponent becomes what TensorFlow's own optimizer makes of it.

    That is ConvertPowStage of core/grappler/optimizers/arithmetic_optimizer.cc.
    """
    exponent = x.constants[1]
    if exponent is not None and exponent.size == 1 and exponent.ndim <= len(b.shape(x[0])):
        match float(exponent.ravel()[0]):
            case 1.0:
                return x[0]
            case 2.0:
                return b.apply("square", x[0])
            case 3.0:
                return b.apply("mul", x[0], b.apply("square", x[0]))
            case 0.5:
                return b.apply("sqrt", x[0])
            case -0.5:
                return b.apply("rsqrt", x[0])
            case -1.0:
                return b.apply("reciprocal", x[0])
            case _:
                pass
    return b.apply("pow", x[0], x[1])


define_op(OpDef(("Pow",), Kind.ELEMENTWISE, _pow, dtypes=FLOATS, notes="floats only: the integer op can fail"))

define(
    Function("floor_div", 2, np.floor_divide, "floor_div({0}, {1})", HEAVY, INTEGERS, header="divide.h"),
    Function("floor_mod", 2, _floor_mod, "floor_mod({0}, {1})", HEAVY, header="divide.h"),
    Function("trunc_div", 2, _trunc_div, "truncate_div({0}, {1})", HEAVY, INTEGERS, header="divide.h"),
    Function("trunc_mod", 2, np.fmod, "truncate_mod({0}, {1})", HEAVY, header="divide.h"),
)


def _add_n(b: BodyBuilder, x: Operands) -> int:
    same_shape(b, "AddN", *(x[i] for i in range(len(x))))

    def total(b: BodyBuilder, first: int, *rest: int) -> int:
        for term in rest:
            first = b.apply("add", first, term)
        return first

    return wide(b, x, total)


def _squared_difference(b: BodyBuilder, x: Operands) -> int:
    return b.apply("square", b.apply("sub", x[0], x[1]))


define_op(
    OpDef(("AddN",), Kind.ELEMENTWISE, _add_n, notes="f16 and bf16: summed in f32, rounded once"),
    OpDef(("SquaredDifference",), Kind.ELEMENTWISE, _squared_difference),
)


def _division(tf_names: str, integer: str, expand_float: Callable[[BodyBuilder, int, int], int], halves: bool) -> None:
    """An integer division fails on a divisor of zero: only a constant one without zeros is ours."""

    def expand(b: BodyBuilder, x: Operands) -> int:
        if b.dtype(x[1]).is_float:
            return expand_float(b, x[0], x[1])
        divisor = x.constants[1]
        if divisor is None or not divisor.all():
            raise x.unsupported("an integer division, which can fail unless the divisor is a non-zero constant")
        return b.apply(integer, x[0], x[1])

    dtypes = with_halves(FLOATS) | INTEGERS if halves else INTEGERS | {DType.F32, DType.F64}
    notes = "integers: by a constant without zeros only"
    define_op(OpDef(tuple(tf_names.split()), Kind.ELEMENTWISE, expand, dtypes=dtypes, notes=notes))


_division("FloorDiv", "floor_div", lambda b, x, y: b.apply("floor", b.apply("div", x, y)), halves=True)
_division("FloorMod", "floor_mod", lambda b, x, y: b.apply("floor_mod", x, y), halves=True)
_division("TruncateDiv", "trunc_div", lambda b, x, y: b.apply("trunc", b.apply("div", x, y)), halves=True)
_division("Mod TruncateMod", "trunc_mod", lambda b, x, y: b.apply("trunc_mod", x, y), halves=False)


# -- functions of analysis ---------------------------------------------------------------------------------


def _analytic(
    header: str,
    tf_names: str,
    reference: Callable[..., Array],
    ulps: float,
    domain: tuple[float, float],
    notes: str = "",
    zeros: tuple[ZeroSign, bool] = (ZeroSign.PASSED, False),
) -> None:
    """A float function of one operand that is called in C++ as it is here.

    zeros: its `zero_sign` and `no_minus_zero`.
    """
    name = tf_names.split(maxsplit=1)[0].lower()
    elementwise(
        tf_names,
        Function(
            name,
            1,
            _precise(reference),
            f"{name}({{0}})",
            HEAVY,
            FLOATS,
            zero_sign=zeros[0],
            no_minus_zero=zeros[1],
            header=header,
            domain=domain,
            ulps=ulps,
        ),
        notes,
    )


_POSITIVE = (HIDDEN, True)
_analytic("math_exp.h", "Exp", np.exp, 1.0, (-80, 80), zeros=_POSITIVE)
_analytic("math_exp.h", "Expm1", np.expm1, 2.0, (-20, 20))
_analytic("math_exp.h", "Log", np.log, 1.0, (0, 1e6), zeros=(HIDDEN, False))
_analytic("math_exp.h", "Log1p", np.log1p, 2.0, (-0.999, 1e3))
_analytic("math_tanh.h", "Tanh", np.tanh, 3.0, (-10, 10))
_analytic("math_tanh.h", "Sigmoid", _sigmoid, 3.0, (-30, 30), zeros=_POSITIVE)
_analytic("math_exp.h", "Softplus", _softplus, 2.0, (-30, 30), zeros=_POSITIVE)
_analytic("math_tanh.h", "Erf", _scalar(math.erf), 3.5, (-5, 5), "of an infinite f64: ±1, where TensorFlow has NaN")
_analytic("math_erfc.h", "Erfc", _scalar(math.erfc), 7.1, (-5, 8), zeros=(HIDDEN, False))
_analytic("math_rare.h", "Sin", np.sin, 2.0, (-10, 10))
_analytic("math_rare.h", "Cos", np.cos, 2.0, (-10, 10), zeros=(HIDDEN, False))
_analytic("math_rare.h", "Tan", np.tan, 3.0, (-1.5, 1.5))
_analytic("math_rare.h", "Asin", np.arcsin, 3.0, (-1, 1))
_analytic("math_rare.h", "Acos", np.arccos, 3.0, (-1, 1), zeros=(HIDDEN, False))
_analytic("math_rare.h", "Atan", np.arctan, 3.0, (-10, 10))
_analytic("math_rare.h", "Sinh", np.sinh, 3.0, (-10, 10))
_analytic("math_rare.h", "Cosh", np.cosh, 3.0, (-10, 10), zeros=_POSITIVE)
_analytic("math_rare.h", "Asinh", np.arcsinh, 3.0, (-100, 100))
_analytic("math_rare.h", "Acosh", np.arccosh, 3.0, (1, 100))
_analytic("math_rare.h", "Atanh", np.arctanh, 3.0, (-0.99, 0.99))
elementwise(
    "Atan2",
    Function("atan2", 2, _precise(np.arctan2), "atan2({0}, {1})", HEAVY, FLOATS, ulps=3.0, header="math_rare.h"),
)
elementwise("Sqrt", Function("sqrt", 1, np.sqrt, "sqrt({0})", HEAVY, FLOATS, zero_sign=PASSED, domain=(0, 100)))
elementwise("Rsqrt", Function("rsqrt", 1, _precise(_rsqrt), "rsqrt({0})", HEAVY, FLOATS, domain=(0, 100), ulps=1.5))
elementwise(
    "Xlogy",
    Function(
        "xlogy", 2, _precise(_xlogy), "xlogy({0}, {1})", HEAVY, FLOATS, domain=(0, 10), ulps=2.0, header="math_exp.h"
    ),
)
elementwise(
    "Xlog1py",
    Function(
        "xlog1py",
        2,
        _precise(_xlog1py),
        "xlog1py({0}, {1})",
        HEAVY,
        FLOATS,
        domain=(0, 10),
        ulps=3.0,
        header="math_exp.h",
    ),
)
elementwise("Xdivy", Function("xdivy", 2, _xdivy, "xdivy({0}, {1})", HEAVY, FLOATS))

# -- rounding ----------------------------------------------------------------------------------------------

elementwise("Floor", Function("floor", 1, np.floor, "floor({0})", dtypes=FLOATS, zero_sign=PASSED))
elementwise("Ceil", Function("ceil", 1, np.ceil, "ceil({0})", dtypes=FLOATS, zero_sign=PASSED))
define(Function("rint", 1, np.rint, "rint({0})", dtypes=FLOATS, zero_sign=PASSED))
define_op(
    OpDef(
        ("Rint",),
        Kind.ELEMENTWISE,
        lambda b, x: b.apply("rint", x[0]),
        dtypes=frozenset({DType.F32, DType.F64}),
        notes="halves to even",
    )
)
define(Function("trunc", 1, np.trunc, "trunc({0})", dtypes=FLOATS, zero_sign=PASSED))


expand_function("Round", "rint", "halves to even; floats only, for of integers TensorFlow's kernel makes 0")

# -- activations -------------------------------------------------------------------------------------------

define(
    Function("relu", 1, _relu, "relu({0})", zero_sign=HIDDEN, no_minus_zero=True),
    Function("relu6", 1, _relu6, "relu6({0})", zero_sign=HIDDEN, no_minus_zero=True),
)


def _rectified(b: BodyBuilder, x: Operands, function: str) -> int:
    """In f32 and f64 -0 becomes 0, in f16 and bf16 it stays."""
    if not _is_half(b, x):
        return b.apply(function, x[0])
    zero = b.constant(0, DType.F32)
    capped = b.widen(x[0])
    if function == "relu6":
        capped = b.apply("minimum", b.constant(6, DType.F32), capped)
    return b.convert(b.apply("select", b.apply("less", capped, zero), zero, capped), b.dtype(x[0]))


define_op(
    OpDef(("Relu",), Kind.ELEMENTWISE, lambda b, x: _rectified(b, x, "relu")),
    OpDef(("Relu6",), Kind.ELEMENTWISE, lambda b, x: _rectified(b, x, "relu6")),
)
elementwise("Elu", Function("elu", 1, _precise(_elu), "elu({0})", HEAVY, FLOATS, ulps=2.0, header="math_exp.h"))
elementwise("Selu", Function("selu", 1, _precise(_selu), "selu({0})", HEAVY, FLOATS, ulps=3.0, header="math_exp.h"))
elementwise("Softsign", Function("softsign", 1, _softsign, "softsign({0})", HEAVY, FLOATS, ulps=1.5))


def _slope(b: BodyBuilder, x: Operands) -> int:
    """The attribute `alpha`, a float, in the op's dtype."""
    return b.constant(np.float32(x.attribute("alpha", 0.2)), b.dtype(x[0]))


def _leaky(b: BodyBuilder, positive: int, value: int, alpha: int) -> int:
    return b.apply("select", positive, value, b.apply("mul", value, alpha))


def _leaky_relu(b: BodyBuilder, x: Operands) -> int:
    return _leaky(b, _is_positive(b, x[0]), x[0], _slope(b, x))


def _is_positive(b: BodyBuilder, value: int) -> int:
    return b.apply("greater", value, b.constant(0, b.dtype(value)))


# -- comparisons and logic ---------------------------------------------------------------------------------

elementwise("Less", Function("less", 2, np.less, "{0} < {1}", to_bool=True, zero_sign=HIDDEN))
elementwise("LessEqual", Function("less_equal", 2, np.less_equal, "{0} <= {1}", to_bool=True, zero_sign=HIDDEN))
elementwise("Greater", Function("greater", 2, np.greater, "{0} > {1}", to_bool=True, zero_sign=HIDDEN))
elementwise(
    "GreaterEqual", Function("greater_equal", 2, np.greater_equal, "{0} >= {1}", to_bool=True, zero_sign=HIDDEN)
)
elementwise("LogicalAnd", Function("logical_and", 2, np.logical_and, "{0} & {1}", dtypes=BOOLS))
elementwise("LogicalOr", Function("logical_or", 2, np.logical_or, "{0} | {1}", dtypes=BOOLS))
elementwise("LogicalNot", Function("logical_not", 1, np.logical_not, "~{0}", cuda="!{0}", dtypes=BOOLS))
elementwise("IsNan", Function("is_nan", 1, np.isnan, "is_nan({0})", dtypes=FLOATS, to_bool=True, zero_sign=HIDDEN))
elementwise("IsInf", Function("is_inf", 1, np.isinf, "is_inf({0})", dtypes=FLOATS, to_bool=True, zero_sign=HIDDEN))
elementwise(
    "IsFinite", Function("is_finite", 1, np.isfinite, "is_finite({0})", dtypes=FLOATS, to_bool=True, zero_sign=HIDDEN)
)
define(
    Function("equal", 2, np.equal, "{0} == {1}", to_bool=True, zero_sign=HIDDEN),
    Function("not_equal", 2, np.not_equal, "{0} != {1}", to_bool=True, zero_sign=HIDDEN),
    Function("logical_xor", 2, np.logical_xor, "{0} ^ {1}", dtypes=BOOLS),
)


def _equality(tf_name: str, function: str) -> None:
    def expand(b: BodyBuilder, x: Operands) -> int:
        if not x.attribute("incompatible_shape_error", True) and b.shape(x[0]) != b.shape(x[1]):
            raise x.unsupported("incompatible_shape_error=False: the result may be a scalar", Reason.UNKNOWN_RANK)
        if b.dtype(x[0]) is not DType.BOOL:
            return b.apply(function, x[0], x[1])
        differ = b.apply("logical_xor", x[0], x[1])
        return differ if function == "not_equal" else b.apply("logical_not", differ)

    samples = ({"incompatible_shape_error": True}, {"incompatible_shape_error": False})
    define_op(OpDef((tf_name,), Kind.ELEMENTWISE, expand, samples=samples, dtypes=ALL))


_equality("Equal", "equal")
_equality("NotEqual", "not_equal")

# -- choice and casts --------------------------------------------------------------------------------------

elementwise(
    "SelectV2", Function("select", 3, np.where, "select({0}, {1}, {2})", dtypes=ALL, selectors=1, zero_sign=PASSED)
)


def _select(b: BodyBuilder, x: Operands) -> int:
    """Select (V1) does not broadcast, but for its condition: a scalar, or one bool for each row."""
    condition = x[0]
    same_shape(b, "Select", x[1], x[2])
    shape = b.shape(x[1])
    if b.type(condition).rank == 1 and len(shape) > 1:
        (rows,) = b.shape(condition)
        b.join(rows, shape[0], "Select's condition")
        condition = b.reshape(condition, (rows, *(ONE for _ in shape[1:])))
    elif b.type(condition).rank:
        same_shape(b, "Select", condition, x[1])
    return b.apply("select", condition, x[1], x[2])


def _clip(b: BodyBuilder, x: Operands) -> int:
    """`max(min(t, high), low)` as std::max and std::min: NaN in `t` stays, a NaN bound does not count.

    That is core/kernels/cwise_op_clip.cc. A bound is a scalar or has the shape of `t`.
    """
    value, low, high = x[0], x[1], x[2]
    for bound in (low, high):
        if b.type(bound).rank:
            same_shape(b, "ClipByValue", value, bound)
    value = b.apply("select", b.apply("less", high, value), high, value)
    return b.apply("select", b.apply("less", value, low), low, value)


def _cast(b: BodyBuilder, x: Operands) -> int:
    target = x.attribute("DstT")
    if target is DType.OTHER or x.attribute("Truncate", False):
        raise x.unsupported("a dtype that is not computed on, or Truncate=True", Reason.DTYPE)
    return b.convert(x[0], target)


def _identity(_: BodyBuilder, x: Operands) -> int:
    return x[0]


def _like(value: int) -> Callable[[BodyBuilder, Operands], int]:
    def expand(b: BodyBuilder, x: Operands) -> int:
        return b.broadcast(b.constant(value, b.dtype(x[0])), b.shape(x[0]))

    return expand


define_op(
    OpDef(("Select",), Kind.ELEMENTWISE, _select, dtypes=ALL),
    OpDef(("ClipByValue",), Kind.ELEMENTWISE, _clip),
    OpDef(
        ("Cast",),
        Kind.ELEMENTWISE,
        _cast,
        samples=tuple({"DstT": d} for d in sorted(ALL, key=lambda d: d.value)),
        dtypes=ALL,
        notes="float to int truncates; NaN and out of range give the least integer, as on x86",
    ),
    OpDef(("Identity", "StopGradient", "PreventGradient", "Snapshot"), Kind.ELEMENTWISE, _identity, dtypes=ALL),
    OpDef(("ZerosLike",), Kind.ELEMENTWISE, _like(0), dtypes=ALL),
    OpDef(("OnesLike",), Kind.ELEMENTWISE, _like(1), dtypes=ALL),
    OpDef(
        ("LeakyRelu",),
        Kind.ELEMENTWISE,
        _leaky_relu,
        samples=({"alpha": 0.25}, {"alpha": 1.5}, {"alpha": -0.5}),
        dtypes=HALVES_TOO,
    ),
)

# -- gradients ---------------------------------------------------------------------------------------------


def _gradient(tf_names: str, formula: Callable[..., int], samples: tuple[dict[str, float], ...] = ({},)) -> None:
    """An op of two operands of one shape, whose formula runs in the compute dtype."""

    def expand(b: BodyBuilder, x: Operands) -> int:
        same_shape(b, x.node.op, x[0], x[1])
        return wide(b, x, formula)

    notes = "f16 and bf16: computed in f32, rounded once"
    define_op(OpDef(tuple(tf_names.split()), Kind.ELEMENTWISE, expand, samples=samples, dtypes=HALVES_TOO, notes=notes))


def _number(b: BodyBuilder, value: float, like: int) -> int:
    return b.constant(value, b.dtype(like))


def _tanh_grad(b: BodyBuilder, y: int, dy: int) -> int:
    return b.apply("mul", dy, b.apply("sub", _number(b, 1, y), b.apply("square", y)))


def _sigmoid_grad(b: BodyBuilder, y: int, dy: int) -> int:
    return b.apply("mul", b.apply("mul", dy, y), b.apply("sub", _number(b, 1, y), y))


# In the three below a gradient of 0 stays 0, whatever y is: core/kernels/cwise_ops.h.


def _rsqrt_grad(b: BodyBuilder, y: int, dy: int) -> int:
    half = b.apply("mul_no_nan", y, b.apply("mul", _number(b, -0.5, y), dy))
    return b.apply("mul_no_nan", b.apply("square", y), half)


def _sqrt_grad(b: BodyBuilder, y: int, dy: int) -> int:
    return b.apply("xdivy", b.apply("mul", _number(b, 0.5, y), dy), y)


def _reciprocal_grad(b: BodyBuilder, y: int, dy: int) -> int:
    return b.apply("mul_no_nan", b.apply("square", y), b.apply("neg", dy))


def _masked(b: BodyBuilder, gradient: int, mask: int) -> int:
    """`gradient * mask`, which is no select: a NaN or infinite gradient where the mask is off gives NaN."""
    return b.apply("mul", gradient, b.convert(mask, b.dtype(gradient)))


def _relu_grad(b: BodyBuilder, gradient: int, features: int) -> int:
    return _masked(b, gradient, _is_positive(b, features))


def _relu6_grad(b: BodyBuilder, gradient: int, features: int) -> int:
    below = b.apply("less", features, _number(b, 6, features))
    return _masked(b, gradient, b.apply("logical_and", _is_positive(b, features), below))


def _negative(b: BodyBuilder, value: int) -> int:
    return b.apply("less", value, _number(b, 0, value))


def _elu_grad(b: BodyBuilder, gradient: int, output: int) -> int:
    scaled = b.apply("mul", b.apply("add", output, _number(b, 1, output)), gradient)
    return b.apply("select", _negative(b, output), scaled, gradient)


def _selu_grad(b: BodyBuilder, gradient: int, output: int) -> int:
    low = b.apply("mul", gradient, b.apply("add", output, _number(b, _SELU_SCALE_ALPHA, output)))
    return b.apply("select", _negative(b, output), low, b.apply("mul", gradient, _number(b, _SELU_SCALE, output)))


def _softplus_grad(b: BodyBuilder, gradient: int, features: int) -> int:
    return b.apply("div", gradient, b.apply("add", b.apply("exp", b.apply("neg", features)), _number(b, 1, features)))


def _softsign_grad(b: BodyBuilder, gradient: int, features: int) -> int:
    return b.apply(
        "div", gradient, b.apply("square", b.apply("add", b.apply("abs", features), _number(b, 1, features)))
    )


def _leaky_relu_grad(b: BodyBuilder, x: Operands) -> int:
    same_shape(b, "LeakyReluGrad", x[0], x[1])
    return _leaky(b, _is_positive(b, x[1]), x[0], _slope(b, x))


_gradient("TanhGrad", _tanh_grad)
_gradient("SigmoidGrad", _sigmoid_grad)
_gradient("RsqrtGrad", _rsqrt_grad)
_gradient("SqrtGrad", _sqrt_grad)
_gradient("ReciprocalGrad InvGrad", _reciprocal_grad)
_gradient("ReluGrad", _relu_grad)
_gradient("Relu6Grad", _relu6_grad)
_gradient("EluGrad", _elu_grad)
_gradient("SeluGrad", _selu_grad)
_gradient("SoftplusGrad", _softplus_grad)
_gradient("SoftsignGrad", _softsign_grad)
define_op(
    OpDef(
        ("LeakyReluGrad",),
        Kind.ELEMENTWISE,
        _leaky_relu_grad,
        samples=({"alpha": 0.25}, {"alpha": 1.5}),
        dtypes=HALVES_TOO,
    )
)
