"""The C++ of every function and reducer in the table, compiled at once, against its NumPy reference."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.ops.agreement import (
    COUNT,
    FUNCTION_CASES,
    REDUCER_CASES,
    assert_agrees,
    assert_reduces,
    operand_dtype,
    operands_of,
    values,
)
from tf_stitch.ir.types import DType
from tf_stitch.ops import Function, Reducer
from tf_stitch.render.c_family import STORAGE

PRELUDE = Path(__file__).parents[2] / "kernels" / "prelude" / "cpu"
FLAGS = "-std=c++17 -O1 -march=native -ffp-contract=off -fwrapv -fno-math-errno -fno-trapping-math -fPIC -shared"
LANES = 8


def of_function(function: Function, dtype: DType) -> str:
    operands = range(function.arity)
    types = [STORAGE[operand_dtype(function, dtype, i)] for i in operands]
    result = STORAGE[DType.BOOL if function.to_bool else dtype]
    parameters = ", ".join(f"const {t}* a{i}" for i, t in enumerate(types))
    loads = " ".join(f"auto v{i} = load<{LANES}>(a{i} + at);" for i in operands)
    value = function.cpp.format(*(f"v{i}" for i in operands))
    return (
        f'extern "C" void {function.name}_{dtype.value}({parameters}, {result}* out, i64 count) {{\n'
        f"  for (i64 at = 0; at < count; at += {LANES}) {{ {loads} store(out + at, {value}); }}\n}}\n"
    )


def of_reducer(reducer: Reducer, dtype: DType) -> str:
    type_ = STORAGE[dtype]
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


def call(entry: Any, *arrays: np.ndarray[Any, Any]) -> None:
    entry(*(ctypes.c_void_p(a.ctypes.data) for a in arrays), ctypes.c_int64(COUNT))


@pytest.mark.parametrize(("function", "dtype"), FUNCTION_CASES, ids=lambda v: getattr(v, "name", v))
def test_function(library: ctypes.CDLL, function: Function, dtype: DType) -> None:
    operands = operands_of(function, dtype)
    result = DType.BOOL if function.to_bool else dtype
    found = np.empty(COUNT, result.numpy)
    call(getattr(library, f"{function.name}_{dtype.value}"), *operands, found)
    assert_agrees(function, dtype, operands, found)


@pytest.mark.parametrize(("reducer", "dtype"), REDUCER_CASES, ids=lambda v: getattr(v, "name", v))
def test_reducer(library: ctypes.CDLL, reducer: Reducer, dtype: DType) -> None:
    operand = values(dtype, (0.5, 2.0), seed=0)
    found = np.empty(COUNT // LANES, operand.dtype)
    call(getattr(library, f"reduce_{reducer.name}_{dtype.value}"), operand, found)
    with np.errstate(all="ignore"):
        wanted = reducer.reference(operand.reshape(-1, LANES), axis=(1,), keepdims=False)
    assert_reduces(np.asarray(wanted), found)
