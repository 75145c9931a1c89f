"""Every function, cast and reducer of the table on the CUDA prelude's scalars, run on the host, against its reference.

On a device the math library is CUDA's; here it is the host's. What is tested is all else: the expressions of the table,
NaN, zeros, wrap-around, conversions, and what the prelude makes of the library's functions.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tests.ops.agreement import (
    COUNT,
    FUNCTION_CASES,
    REDUCER_CASES,
    assert_agrees,
    assert_reduces,
    operands_of,
    values,
)
from tests.ops.samples import samples, special
from tests.prelude.cuda import BEGIN, CASES, END, FLAGS, built, call, table
from tests.prelude.harness import ulps
from tf_stitch.ir.body import converted
from tf_stitch.ir.types import DType
from tf_stitch.ops import Function, Reducer
from tf_stitch.render.c_family import STORAGE

NAMED = {"ids": lambda v: getattr(v, "name", v)}
REDUCERS = {"add": "Sum", "mul": "Product", "max": "Largest", "min": "Smallest", "and": "AllOf", "or": "AnyOf"}
ROW = 8
EVERY = np.arange(2**16, dtype=np.uint16)
HALVES = (DType.F16, DType.BF16)
UNARY_HALVES = [(f, d) for f, d in CASES if f.arity == 1 and d in HALVES]


@pytest.mark.parametrize(("function", "dtype"), FUNCTION_CASES, **NAMED)
def test_function(function: Function, dtype: DType) -> None:
    operands = operands_of(function, dtype)
    result = DType.BOOL if function.to_bool else dtype
    found = call(built(table(False)), f"{function.name}_{dtype.value}", *operands, out=result.numpy)
    assert_agrees(function, dtype, operands, found)


@pytest.mark.parametrize(("function", "dtype"), UNARY_HALVES, **NAMED)
def test_every_half(function: Function, dtype: DType) -> None:
    """All 65,536 values: the f32 result rounded to f16 or bf16, or its neighbour where it lies near the middle.

    A subnormal f32 may be 0, as in `assert_agrees`.
    """
    halves = EVERY.view(dtype.numpy)
    result = DType.BOOL if function.to_bool else dtype
    found = call(built(table(False)), f"{function.name}_{dtype.value}", halves, out=result.numpy)
    with np.errstate(all="ignore"):
        wanted = np.asarray(function.reference(halves.astype(np.float32)))
        if function.to_bool:
            np.testing.assert_array_equal(found, wanted)
            return
        off = np.float32(function.ulps) * np.spacing(np.abs(wanted))
        exact, near = wanted.astype(dtype.numpy), [(wanted + d).astype(dtype.numpy) for d in (-off, off)]
    good = np.isnan(found.astype(np.float32)) & np.isnan(wanted)
    good |= (np.abs(wanted) < np.finfo(np.float32).tiny) & (found == 0)
    for candidate in (exact, *near):
        good |= found.view(np.uint16) == candidate.view(np.uint16)
    assert good.all(), f"{function.name} of {halves[~good][:4]}: {found[~good][:4]}, not {exact[~good][:4]}"


@pytest.mark.parametrize("target", STORAGE, **NAMED)
@pytest.mark.parametrize("source", STORAGE, **NAMED)
def test_cast(source: DType, target: DType) -> None:
    """To the bit, NaN and what is out of range included. To f16 and bf16 by way of f32, as TensorFlow goes."""
    sample = np.concatenate([s.operands[0].ravel() for s in samples("Cast", source)])
    operand = np.concatenate([sample, EVERY.view(source.numpy)]) if source in HALVES else sample
    found = call(built(table(False)), f"cast_{source.value}_{target.value}", operand, out=target.numpy)
    with np.errstate(all="ignore"):
        wanted = converted(operand if target.compute is target else converted(operand, DType.F32), target)
    if target.is_float:
        nan = np.isnan(wanted.astype(np.float64))
        assert np.isnan(found[nan].astype(np.float64)).all()
        found, wanted = found[~nan], wanted[~nan]
    bits = np.dtype(f"u{found.itemsize}")
    np.testing.assert_array_equal(found.view(bits), wanted.view(bits))


@pytest.mark.parametrize("dtype", STORAGE, **NAMED)
def test_literals(dtype: DType) -> None:
    """What the printer spells out arrives to the bit: infinities, NaN, -0, the least integer."""
    wanted = special(dtype)
    found = np.empty_like(wanted)
    getattr(built(table(False)), f"literals_{dtype.value}")(found.ctypes)
    nan = np.isnan(wanted.astype(np.float64))
    assert np.isnan(found[nan].astype(np.float64)).all()
    assert found[~nan].tobytes() == wanted[~nan].tobytes()


def of_reducers() -> str:
    lines = [BEGIN]
    for reducer, dtype in REDUCER_CASES:
        type_, name = STORAGE[dtype], REDUCERS[reducer.combine]
        lines.append(
            f'extern "C" void {reducer.name}_{dtype.value}(const {type_}* in, {type_}* out, i64 rows) {{\n'
            "  for (i64 row = 0; row < rows; ++row) {\n"
            f"    auto total = {name}::neutral<Register<{type_}>>();\n"
            f"    for (i64 n = 0; n < {ROW}; ++n) total = {name}::of(total, load(in + row * {ROW} + n));\n"
            "    store(out + row, total);\n  }\n}\n"
        )
    return "".join([*lines, END])


@pytest.mark.parametrize(("reducer", "dtype"), REDUCER_CASES, **NAMED)
def test_reducer(reducer: Reducer, dtype: DType) -> None:
    operand = values(dtype, (0.5, 2.0), seed=0)
    library = built(of_reducers())
    found = np.empty(COUNT // ROW, dtype.numpy)
    getattr(library, f"{reducer.name}_{dtype.value}")(operand.ctypes, found.ctypes, found.size)
    with np.errstate(all="ignore"):
        wanted = reducer.reference(operand.reshape(-1, ROW), axis=(1,), keepdims=False)
    assert_reduces(np.asarray(wanted), found)


@pytest.mark.parametrize("dtype", [DType.I32, DType.I64], **NAMED)
def test_integers_never_trap(dtype: DType) -> None:
    """The least by -1 is itself; by zero a quotient is 0 and so is a rest, for TensorFlow's error is the host's."""
    least = np.iinfo(dtype.numpy).min
    left, right = np.array([least, least, 7, least], dtype.numpy), np.array([-1, 0, 0, 1], dtype.numpy)
    for name, wanted in {
        "trunc_div": [least, 0, 0, least],
        "floor_div": [least, 0, 0, least],
        "trunc_mod": [0, 0, 0, 0],
        "floor_mod": [0, 0, 0, 0],
    }.items():
        assert call(built(table(False)), f"{name}_{dtype.value}", left, right, out=dtype.numpy).tolist() == wanted


def test_nothing_is_undefined(capfd: pytest.CaptureFixture[str]) -> None:
    """g++'s checker finds no signed overflow and no cast out of range, which may mean anything on a device."""
    library = built(table(False), f"{FLAGS} -fsanitize=undefined,float-cast-overflow")
    for function, dtype in FUNCTION_CASES:
        odd = special(dtype)
        pairs = np.repeat(odd, odd.size), np.tile(odd, odd.size)
        operands: list[Any] = [pairs[i % 2] for i in range(function.arity)]
        if function.selectors:
            operands[0] = pairs[0] > 0
        result = DType.BOOL if function.to_bool else dtype
        call(library, f"{function.name}_{dtype.value}", *operands, out=result.numpy)
    for source, target in itertools.product(STORAGE, STORAGE):
        for sample in samples("Cast", source)[:1]:
            call(library, f"cast_{source.value}_{target.value}", *sample.operands, out=target.numpy)
    assert not capfd.readouterr().err


def test_rsqrt_of_all_magnitudes() -> None:
    """Subnormals too, which a device does not flush; within an ulp, whatever the estimate it starts from."""
    x = np.arange(0, 2**32, 20011, dtype=np.uint64).astype(np.uint32).view(np.float32)
    found = call(built(table(False)), "rsqrt_f32", x, out=np.float32)
    with np.errstate(all="ignore"):
        exact = 1 / np.sqrt(x.astype(np.float64))
    assert ulps(found, exact).max() <= 1.0
