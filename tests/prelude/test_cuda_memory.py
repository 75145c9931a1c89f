"""Loads and stores of the CUDA prelude: one element and several, by every path, and what the emulator counts."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from tests.prelude.cuda import BEGIN, END, FLAGS, built, call
from tf_stitch.ir.types import DType
from tf_stitch.render.c_family import STORAGE

LOADS = ("load", "load_constant", "load_fresh")
WIDTHS = (1, 2, 4, 8)

# What -fsanitize=thread calls before each access, here a count of accesses and bytes. So the emulator counts, too.
HOOKS = """
static long long loads, loaded, stores, stored;
extern "C" {
void read_counts(long long* counts) {
  counts[0] = loads, counts[1] = loaded, counts[2] = stores, counts[3] = stored;
  loads = loaded = stores = stored = 0;
}
#define HOOK(bytes)                                                  \
  void __tsan_read##bytes(void*) { ++loads, loaded += bytes; }       \
  void __tsan_write##bytes(void*) { ++stores, stored += bytes; }
HOOK(1) HOOK(2) HOOK(4) HOOK(8) HOOK(16)
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
}
"""


def copies() -> str:
    lines = [BEGIN]
    for dtype, type_ in STORAGE.items():
        for load in LOADS:
            for width in WIDTHS:
                what = f"{load}(in + at)" if width == 1 else f"{load}<{width}>(in + at)"
                lines.append(
                    f'extern "C" void {load}_{dtype.value}_{width}(const {type_}* in, {type_}* out, i64 count) {{\n'
                    f"  for (i64 at = 0; at < count; at += {width}) store(out + at, {what});\n}}\n"
                )
    return "".join([*lines, END])


def every_byte(dtype: DType, count: int = 64) -> np.ndarray[Any, Any]:
    """Elements that differ in each of their bytes, at an address that is a multiple of 16 and more."""
    if dtype is DType.BOOL:
        return np.arange(count) % 3 == 0
    limit = min(2 ** (8 * dtype.size - 1), 2**63)
    bits = np.array([(0x0123456789ABCDEF * (n + 1)) % limit for n in range(count)], f"u{dtype.size}")
    return bits.view(dtype.numpy)


def counting(source: str) -> ctypes.CDLL:
    return built(source, f"{FLAGS} -fsanitize=thread", HOOKS)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("dtype", STORAGE, ids=lambda d: d.value)
def test_copies(dtype: DType, load: str, width: int) -> None:
    """The bits arrive, in as few accesses as there can be: of 16 bytes at most, each."""
    library, x = counting(copies()), every_byte(dtype)
    counts = np.zeros(4, np.int64)
    library.read_counts(counts.ctypes)
    found = call(library, f"{load}_{dtype.value}_{width}", x, out=dtype.numpy)
    library.read_counts(counts.ctypes)
    bits = np.dtype(f"u{dtype.size}")
    nan = np.isnan(x.astype(np.float64)) if dtype.is_float else np.zeros(x.shape, bool)
    np.testing.assert_array_equal(found.view(bits)[~nan], x.view(bits)[~nan])
    accesses = x.nbytes // min(16, width * dtype.size)
    assert counts.tolist() == [accesses, x.nbytes, accesses, x.nbytes]


def test_a_boolean_is_any_byte_but_zero() -> None:
    x = np.array([0, 1, 2, 0x80, 0xFF, 0, 0, 7], np.uint8)
    for width in WIDTHS:
        found = call(built(copies()), f"load_bool_{width}", x, out=np.uint8)
        np.testing.assert_array_equal(found, (x != 0).astype(np.uint8))
