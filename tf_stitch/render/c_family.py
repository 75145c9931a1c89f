"""What C++ and CUDA print alike: dims, literals, names of types, the expression of one statement."""

from __future__ import annotations

import math

import numpy as np

from tf_stitch.ir.types import Dim, DType
from tf_stitch.lower.gpu_launch import CeilDiv, Formula, Larger, Product, Sum
from tf_stitch.lower.kernel import Compute, Statement
from tf_stitch.ops import FUNCTIONS

STORAGE = {
    DType.F16: "f16",
    DType.BF16: "bf16",
    DType.F32: "f32",
    DType.F64: "f64",
    DType.I32: "i32",
    DType.I64: "i64",
    DType.BOOL: "boolean",
}


def register(dtype: DType) -> str:
    """The C type that a value of this dtype is computed in; bools are masks."""
    return "mask" if dtype is DType.BOOL else STORAGE[dtype.compute]


def dim(value: Dim, scope: str = "") -> str:
    """A dim as an expression, in parentheses where it is a product; `scope` goes before each symbol ("call.")."""
    factors = [f"{scope}{s}" for s in value.symbols]
    if value.coefficient != 1 or not factors:
        factors.insert(0, str(value.coefficient))
    return factors[0] if len(factors) == 1 else f"({' * '.join(factors)})"


def formula(value: Formula, scope: str = "") -> str:
    """A formula as an expression of i64, in parentheses where it is more than one factor."""
    match value:
        case Dim():
            return dim(value, scope)
        case Sum(terms):
            return f"({' + '.join(formula(t, scope) for t in terms)})"
        case Product(factors):
            return f"({' * '.join(formula(f, scope) for f in factors)})"
        case CeilDiv(dividend, divisor):
            by = formula(divisor, scope)
            less = str(divisor.coefficient - 1) if isinstance(divisor, Dim) and divisor.is_static else f"{by} - 1"
            return f"(({formula(dividend, scope)} + {less}) / {by})"
        case Larger(one, other):
            a, b = formula(one, scope), formula(other, scope)
            return f"({a} > {b} ? {a} : {b})"


def literal(dtype: DType, bits: bytes) -> str:
    """A constant, exactly: f16 and bf16 as the f32 that they are computed in."""
    value = np.frombuffer(bits, dtype.numpy)[0]
    if dtype is DType.BOOL:
        return "true" if value else "false"
    if dtype is DType.I64:
        return "(-9223372036854775807LL - 1)" if value == np.iinfo(np.int64).min else f"{int(value)}LL"
    if dtype is DType.I32:
        return "(-2147483647 - 1)" if value == np.iinfo(np.int32).min else str(int(value))
    number, suffix = float(value), "" if dtype is DType.F64 else "f"
    if math.isnan(number):
        return f'{"-" if math.copysign(1.0, number) < 0 else ""}__builtin_nan{suffix}("")'
    if math.isinf(number):
        return f"{'-' if number < 0 else ''}__builtin_inf{suffix}()"
    shortest = repr(number) if dtype is DType.F64 else str(np.float32(number))
    if "." not in shortest and "e" not in shortest:
        shortest += ".0"
    return shortest + suffix


def converted(operand: str, source: DType, target: DType) -> str:
    """The expression of a cast between dtypes, by way of their registers."""
    have, want = register(source), register(target)
    if have == want:
        expression = operand
    elif want == "mask":
        expression = f"to_mask({operand})"
    else:
        expression = f"convert<{want}>({operand})"
    narrow = target in (DType.F16, DType.BF16) and source is not target
    return f"round_to_{target.value}({expression})" if narrow else expression


def expression(statement: Compute, operands: list[str], dtypes: list[DType], scalars: bool = False) -> str:
    """The right-hand side of a Compute, its operands given as expressions.

    scalars: whether the operands are C++'s own scalars, as in CUDA, and no packs.
    """
    if statement.function == "convert":
        return converted(operands[0], dtypes[0], statement.dtype)
    function = FUNCTIONS[statement.function]
    template = function.cuda if scalars and function.cuda else function.cpp
    return template.format(*operands)


def headers(statements: list[Statement]) -> list[str]:
    """The prelude headers that the statements need besides the core, in a fixed order."""
    needed = {FUNCTIONS[s.function].header for s in statements if isinstance(s, Compute) and s.function in FUNCTIONS}
    return sorted(h for h in needed if h)
