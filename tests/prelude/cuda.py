"""The CUDA prelude, compiled in two ways: by g++ as the emulator does, to run, and by NVRTC for real devices, to read.

Both print the same kernels from the op table: one for every function and storage dtype. The host's is a loop over an
array, the device's a thread for each element.
"""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.ops.agreement import operand_dtype
from tests.ops.samples import special
from tf_stitch.ir.types import DType
from tf_stitch.ops import FUNCTIONS, Function
from tf_stitch.render.c_family import STORAGE, literal, register
from tf_stitch.toolchain.device_compilers import OPTIONS, find_nvrtc
from tf_stitch.toolchain.nvrtc import Nvrtc

KERNELS = Path(__file__).parents[2] / "kernels"
FLAGS = "-std=c++20 -O2 -ffp-contract=off -fno-strict-aliasing -Wall -Wextra -Werror -DTF_STITCH_EMULATOR -fPIC -shared"
BEGIN = "".join(f'#include "prelude/cuda/{h}"\n' for h in ("core.h", "math.h", "divide.h")) + "namespace stitch {\n"
END = "}  // namespace stitch\n"

# Every function with every storage dtype: f16 and bf16 where it computes in f32.
CASES = [(f, d) for f in FUNCTIONS.values() for d in STORAGE if d.compute in f.dtypes]


def loop(name: str, inputs: list[str], output: str, value: str) -> str:
    """`value` of v0, v1, ... for every element of an array, on the host."""
    parameters = ", ".join(f"const {t}* a{i}" for i, t in enumerate(inputs))
    loads = " ".join(f"const auto v{i} = load(a{i} + at);" for i in range(len(inputs)))
    return (
        f'extern "C" void {name}({parameters}, {output}* out, i64 count) {{\n'
        f"  for (i64 at = 0; at < count; ++at) {{ {loads} store(out + at, {value}); }}\n}}\n"
    )


def thread(name: str, inputs: list[str], output: str, value: str) -> str:
    """`value` of v0, v1, ... for the element of each thread, on a device."""
    parameters = ", ".join(f"const {t}* __restrict__ a{i}" for i, t in enumerate(inputs))
    loads = " ".join(f"const auto v{i} = load_constant(a{i} + at);" for i in range(len(inputs)))
    return (
        f'extern "C" __global__ void {name}({parameters}, {output}* __restrict__ out, i64 count) {{\n'
        "  const i64 at = blockIdx.x * i64(blockDim.x) + threadIdx.x;\n"
        f"  if (at < count) {{ {loads} store(out + at, {value}); }}\n}}\n"
    )


def of_function(function: Function, dtype: DType, on_device: bool) -> str:
    inputs = [STORAGE[operand_dtype(function, dtype, i)] for i in range(function.arity)]
    output = DType.BOOL if function.to_bool else dtype
    value = (function.cuda or function.cpp).format(*(f"v{i}" for i in range(function.arity)))
    return (thread if on_device else loop)(f"{function.name}_{dtype.value}", inputs, STORAGE[output], value)


def of_cast(source: DType, target: DType, on_device: bool) -> str:
    """The register of one dtype as that of another; a store rounds to f16 and bf16."""
    value = "to_mask(v0)" if target is DType.BOOL else f"convert<{register(target)}>(v0)"
    name = f"cast_{source.value}_{target.value}"
    return (thread if on_device else loop)(name, [STORAGE[source]], STORAGE[target], value)


def of_literals(dtype: DType, on_device: bool) -> str:
    """The values that go wrong, each printed as a literal: element n is the n-th."""
    stores = "".join(
        f"  store(out + {n}, {literal(dtype, value.tobytes())});\n" for n, value in enumerate(special(dtype))
    )
    kind = "__global__ " if on_device else ""
    return f'extern "C" {kind}void literals_{dtype.value}({STORAGE[dtype]}* out) {{\n{stores}}}\n'


@cache
def table(on_device: bool) -> str:
    """One source with all of it."""
    casts = [of_cast(s, t, on_device) for s in STORAGE for t in STORAGE]
    literals = [of_literals(d, on_device) for d in STORAGE]
    return "".join([BEGIN, *(of_function(*case, on_device) for case in CASES), *casts, *literals, END])


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="cuda-prelude-tests-")


@cache
def built(source: str, flags: str = FLAGS, beside: str = "") -> ctypes.CDLL:
    """The library of `source`, which is compiled once a process; skips the test where there is no g++.

    beside: a second source, which defines what a -fsanitize among the flags calls, instead of its own library.
    """
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++ for the emulated prelude")
    base = Path(_folder().name) / hashlib.sha256(f"{flags}{source}{beside}".encode()).hexdigest()[:16]
    base.with_suffix(".cc").write_text(source)
    compile_ = [compiler, *flags.split(), "-I", str(KERNELS)]
    if not beside:
        subprocess.run([*compile_, f"{base}.cc", "-o", f"{base}.so"], check=True)
        return ctypes.CDLL(f"{base}.so")
    Path(f"{base}_beside.cc").write_text(beside)
    subprocess.run([*compile_, "-c", f"{base}.cc", "-o", f"{base}.o"], check=True)
    subprocess.run([compiler, "-fPIC", "-shared", f"{base}.o", f"{base}_beside.cc", "-o", f"{base}.so"], check=True)
    return ctypes.CDLL(f"{base}.so")


def call(library: ctypes.CDLL, name: str, *arrays: np.ndarray[Any, Any], out: Any) -> np.ndarray[Any, Any]:
    """`name(inputs..., output, count)` on arrays of one length."""
    result = np.empty(arrays[0].shape, out)
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*arrays, result)]
    getattr(library, name)(*pointers, ctypes.c_int64(result.size))
    return result


@cache
def nvrtc() -> Nvrtc:
    libraries = find_nvrtc()
    if not libraries:
        pytest.skip("no NVRTC: pip install 'nvidia-cuda-nvrtc-cu12>=12.5,<13'")
    return Nvrtc(str(libraries[0]))


@cache
def compiled(source: str, code: str) -> bytes:
    """A cubin or PTX, made without a warning."""
    if code.replace("compute_", "sm_") not in nvrtc().archs():
        pytest.skip(f"this NVRTC does not compile for {code}")
    image, log = nvrtc().compile(source.encode(), "table.cu", code, [*OPTIONS, f"-I{KERNELS}"])
    # That an architecture is old is no news.
    warnings = [line for line in log.splitlines() if line.strip("\0 ") and "are deprecated" not in line]
    assert not warnings, "\n".join(warnings)
    return image
