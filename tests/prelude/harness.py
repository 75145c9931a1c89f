"""Builds small kernels on the prelude, for several instruction sets and compilers, and calls them on arrays."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

PRELUDE = Path(__file__).parents[2] / "kernels" / "prelude" / "cpu"
FLAGS = "-std=c++17 -O3 -ffp-contract=off -fwrapv -fno-math-errno -fno-trapping-math -Wall -Wextra -Werror"
BEGIN = '#include "stitch.h"\nusing namespace stitch;\n'

# What each instruction set needs of the CPU that runs it.
FEATURES = {"x86-64-v2": {"sse4_2"}, "x86-64-v3": {"avx2", "fma", "f16c"}, "native": set[str]()}

# Flushes subnormals to zero for one call, as TensorFlow's threads do.
MXCSR = """
extern "C" void call_flushed(void (*kernel)(const void*, void*, i64), const void* in, void* out, i64 count) {
#ifdef __x86_64__
  unsigned saved = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(saved | 0x8040);
  kernel(in, out, count);
  __builtin_ia32_ldmxcsr(saved);
#else
  kernel(in, out, count);
#endif
}
"""


@dataclass(frozen=True)
class Variant:
    """A compiler and the instruction set it compiles for."""

    compiler: str  # g++ or zig
    march: str

    def __str__(self) -> str:
        return f"{self.compiler}-{self.march}"

    @property
    def command(self) -> list[str]:
        if self.compiler == "g++":
            return ["g++", f"-march={self.march}"]
        return [*zig(), f"-march={self.march.replace('-', '_')}", "-Wno-unused-command-line-argument"]


def zig() -> list[str]:
    return [sys.executable, "-m", "ziglang", "cc", "-x", "c++", "-nostdinc++"]


@cache
def cpu_features() -> frozenset[str]:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if platform.system() == "Linux" else []
    flags = next((line for line in lines if line.startswith("flags")), "")
    return frozenset(flags.split())


@cache
def variants() -> tuple[Variant, ...]:
    """All that this machine can compile and run."""
    compilers = ["g++"] if shutil.which("g++") else []
    if importlib.util.find_spec("ziglang"):
        compilers.append("zig")
    if platform.machine() != "x86_64":
        return tuple(Variant(c, "native") for c in compilers)
    sets = [march for march, needed in FEATURES.items() if needed <= cpu_features()]
    everything = [Variant(c, march) for c in compilers for march in sets]
    return tuple(v for v in everything if len(compilers) == 1 or v != Variant("zig", "x86-64-v2"))


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="prelude-tests-")


@cache
def build(source: str, variant: Variant) -> ctypes.CDLL:
    """The library of `source`, which is compiled once a process."""
    name = hashlib.sha256(f"{variant}{source}".encode()).hexdigest()[:16]
    base = Path(_folder().name) / name
    base.with_suffix(".cc").write_text(source)
    compile_ = [*variant.command, *FLAGS.split(), "-fPIC", f"-I{PRELUDE}"]
    subprocess.run([*compile_, "-c", f"{base}.cc", "-o", f"{base}.o"], check=True)
    linker = ["ld"] if variant.compiler == "g++" else [sys.executable, "-m", "ziglang", "ld.lld"]
    subprocess.run([*linker, "-shared", f"{base}.o", "-o", f"{base}.so"], check=True)
    ctypes.CDLL("libm.so.6", mode=ctypes.RTLD_GLOBAL)  # as in any process with TensorFlow
    return ctypes.CDLL(f"{base}.so")


def pointer(array: np.ndarray[Any, Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def call(library: ctypes.CDLL, name: str, *arrays: np.ndarray[Any, Any], out: Any, flushed: bool = False) -> Any:
    """`name(inputs..., output, count)` on arrays whose length is a multiple of every Pack's."""
    result = np.empty(arrays[0].shape, out)
    count = ctypes.c_longlong(arrays[0].size)
    function = getattr(library, name)
    if flushed:
        (array,) = arrays
        library.call_flushed(function, pointer(array), pointer(result), count)
    else:
        function(*map(pointer, arrays), pointer(result), count)
    return result


def ulps(found: np.ndarray[Any, Any], exact: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """How many units in the last place `found` is from `exact` (float64).

    Where `exact` is subnormal, 0 is as good. A wrong NaN or infinity is infinitely far.
    """
    limits = np.finfo(found.dtype)
    with np.errstate(all="ignore"):
        wanted = exact.astype(found.dtype)
        spacing = np.spacing(np.maximum(np.abs(wanted), limits.tiny)).astype(np.float64)
        distance = np.abs(found.astype(np.float64) - exact) / spacing
    same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
    subnormal = (np.abs(exact) < limits.tiny) & (np.abs(found) <= limits.tiny)
    huge = float(limits.max) * (1 - 4 * float(limits.eps))
    overflow = (np.abs(exact) >= huge) & (np.abs(found) >= huge) & (np.sign(found) == np.sign(exact))
    distance = np.where(np.isfinite(found) & np.isfinite(wanted), distance, np.inf)
    return np.where((same & ~np.isfinite(distance)) | subnormal | overflow, 0, distance)
