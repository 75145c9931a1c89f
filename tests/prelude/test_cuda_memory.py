"""Loads and stores of the CUDA prelude: one element and several, by every path, and what the emulator counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.prelude.cuda import BEGIN, END, built, call
from tf_stitch.ir.types import DType
from tf_stitch.render.c_family import STORAGE

LOADS = ("load", "load_constant", "load_fresh")
WIDTHS = (1, 2, 4, 8)
COUNTED = """
static long long loads, stores, loaded, stored;
#define STITCH_LOADED(address, bytes) (++loads, loaded += (bytes))
#define STITCH_STORED(address, bytes) (++stores, stored += (bytes))
extern "C" void read_counts(long long* counts) {
  counts[0] = loads, counts[1] = loaded, counts[2] = stores, counts[3] = stored;
  loads = loaded = stores = stored = 0;
}
"""


def copies() -> str:
    lines = [COUNTED, BEGIN]
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


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("dtype", STORAGE, ids=lambda d: d.value)
def test_copies(dtype: DType, load: str, width: int) -> None:
    """The bits arrive, and nothing wider than 16 bytes is asked for at once."""
    library, x = built(copies()), every_byte(dtype)
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
