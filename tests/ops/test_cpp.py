"""The C++ of every function and reducer in the table, compiled at once, against its NumPy reference."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.ops.samples import special
from tf_stitch.ir.types import DType
from tf_stitch.ops import FUNCTIONS, REDUCERS, Function, Reducer

PRELUDE = Path(__file__).parents[2] / "kernels" / "prelude" / "cpu"
FLAGS = "-std=c++17 -O1 -march=native -ffp-contract=off -fwrapv -fno-math-errno -fno-trapping-math -fPIC -shared"
LANES = 8
COUNT = 4096
TYPE = {DType.F32: "f32", DType.F64: "f64", DType.I32: "i32", DType.I64: "i64", DType.BOOL: "boolean"}
ZEROS_ALIKE = {"xdivy", "xlog1py", "xlogy"}
INTEGER_DIVISIONS = {"floor_div", "floor_mod", "trunc_div", "trunc_mod"}
FUNCTION_CASES = [(f, d) for f in FUNCTIONS.values() for d in TYPE if d in f.dtypes]
REDUCER_CASES = [(r, d) for r in REDUCERS.values() for d in TYPE if d in r.dtypes]


def of_function(function: Function, dtype: DType) -> str:
    operands = range(function.arity)
    types = [TYPE[operand_dtype(function, dtype, i)] for i in operands]
    result = TYPE[DType.BOOL if function.to_bool else dtype]
    parameters = ", ".join(f"const {t}* a{i}" for i, t in enumerate(types))
    loads = " ".join(f"auto v{i} = load<{LANES}>(a{i} + at);" for i in operands)
    value = function.cpp.format(*(f"v{i}" for i in operands))
    return (
        f'extern "C" void {function.name}_{dtype.value}({parameters}, {result}* out, i64 count) {{\n'
        f"  for (i64 at = 0; at < count; at += {LANES}) {{ {loads} store(out + at, {value}); }}\n}}\n"
    )


def of_reducer(reducer: Reducer, dtype: DType) -> str:
    type_ = TYPE[dtype]
    return (
        f'extern "C" void reduce_{reducer.name}_{dtype.value}(const {type_}* a, {type_}* out, i64 count) {{\n'
        f"  for (i64 at = 0; at < count; at += {LANES})\n"
        f"    store(out + at / {LANES}, {reducer.horizontal}(load<{LANES}>(a + at)));\n}}\n"
    )


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    folder = tmp_path_factory.mktemp("cpp")
    source = ['#include "stitch.h"\nusing namespace stitch;\n']
    source += [of_function(*case) for case in FUNCTION_CASES] + [of_reducer(*case) for case in REDUCER_CASES]
    (folder / "table.cc").write_text("".join(source))
    command = [compiler, *FLAGS.split(), "-I", str(PRELUDE), "table.cc", "-o", "table.so"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "table.so"))


def operand_dtype(function: Function, dtype: DType, index: int) -> DType:
    return DType.BOOL if index < function.selectors else dtype


def values(dtype: DType, domain: tuple[float, float], seed: int) -> np.ndarray[Any, Any]:
    """A quarter of special values, the rest from the domain."""
    random = np.random.default_rng(seed)
    if dtype is DType.BOOL:
        return random.integers(0, 2, COUNT).astype(bool)
    result = random.uniform(*domain, COUNT).astype(dtype.numpy)
    result[: COUNT // 4] = random.choice(special(dtype), COUNT // 4)
    return result


def call(entry: Any, *arrays: np.ndarray[Any, Any]) -> None:
    entry(*(ctypes.c_void_p(a.ctypes.data) for a in arrays), ctypes.c_int64(COUNT))


@pytest.mark.parametrize(("function", "dtype"), FUNCTION_CASES, ids=lambda v: getattr(v, "name", v))
def test_function(library: ctypes.CDLL, function: Function, dtype: DType) -> None:
    operands = [values(operand_dtype(function, dtype, i), function.domain, seed=i) for i in range(function.arity)]
    if function.name in INTEGER_DIVISIONS and dtype in (DType.I32, DType.I64):
        operands[1][operands[1] == 0] = 3
    with np.errstate(all="ignore"):
        wanted = np.asarray(function.reference(*operands))
    found = np.empty_like(wanted)
    call(getattr(library, f"{function.name}_{dtype.value}"), *operands, found)
    if wanted.dtype.kind != "f":
        np.testing.assert_array_equal(found, wanted)
        return
    with np.errstate(all="ignore"):
        tiny = np.finfo(wanted.dtype).tiny
        same = (found == wanted) & ((np.signbit(found) == np.signbit(wanted)) | (function.name in ZEROS_ALIKE))
        same |= np.isnan(found) & np.isnan(wanted)
        flushed = (np.abs(found) <= tiny) & (np.abs(wanted) <= tiny) & (wanted != 0)
        allowed = function.ulps + (2 if dtype is DType.F64 else 0.5)  # the f64 reference has its own errors
        near = np.abs(found - wanted) <= allowed * np.spacing(np.abs(wanted))
        good = same | flushed | near & (wanted != 0)
    if not good.all():
        at = int(np.argmin(good))
        raise AssertionError(f"{function.name} of {[o[at] for o in operands]}: {found[at]!r}, not {wanted[at]!r}")


@pytest.mark.parametrize(("reducer", "dtype"), REDUCER_CASES, ids=lambda v: getattr(v, "name", v))
def test_reducer(library: ctypes.CDLL, reducer: Reducer, dtype: DType) -> None:
    operand = values(dtype, (0.5, 2.0), seed=0)
    found = np.empty(COUNT // LANES, operand.dtype)
    call(getattr(library, f"reduce_{reducer.name}_{dtype.value}"), operand, found)
    with np.errstate(all="ignore"):
        wanted = reducer.reference(operand.reshape(-1, LANES), axis=(1,), keepdims=False)
    if wanted.dtype.kind == "f":
        np.testing.assert_allclose(found, wanted, rtol=16 * np.finfo(wanted.dtype).eps, atol=1e-4)
    else:
        np.testing.assert_array_equal(found, wanted)
