"""Loads and stores: whole, partial and strided, at the edge of what may be touched."""

from __future__ import annotations

import ctypes
import mmap
from functools import cache
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from tests.prelude.harness import BEGIN, Variant, build, variants

if TYPE_CHECKING:
    from collections.abc import Iterator

LANES = (1, 2, 4, 8, 16, 32, 64)
TYPES: dict[str, Any] = {
    "f32": np.float32,
    "f64": np.float64,
    "i32": np.int32,
    "i64": np.int64,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "boolean": np.bool_,
}
PAGE = mmap.PAGESIZE
BY_TYPE = pytest.mark.parametrize("type_", TYPES)
BY_VARIANT = pytest.mark.parametrize("variant", variants(), ids=str)


@cache
def source(type_: str) -> str:
    s = type_
    lines = [BEGIN]
    for n in LANES:
        lines += [
            f'extern "C" void partial_{n}(const {s}* in, {s}* out, i64 count)'
            f" {{ store(out, load<{n}>(in, count), count); }}\n",
            # every lane of a partial load, so that those past `count` are seen too
            f'extern "C" void padded_{n}(const {s}* in, {s}* out, i64 count) {{ store(out, load<{n}>(in, count)); }}\n',
            f'extern "C" void strided_{n}(const {s}* in, {s}* out, i64 from, i64 to)'
            f" {{ store_strided(out, to, load_strided<{n}>(in, from)); }}\n",
            f'extern "C" void strided_partial_{n}(const {s}* in, {s}* out, i64 from, i64 to, i64 count)'
            f" {{ store_strided(out, to, load_strided<{n}>(in, from, count), count); }}\n",
        ]
        lines.append(
            f'extern "C" void stream_{n}(const {s}* in, {s}* out, i64 past)'
            f" {{ stream(out, load<{n}>(in), past != 0); settle(); }}\n"
        )
        twice = "~x" if s == "boolean" else "x + x"
        lines += [
            f'extern "C" void known_{n}_{count}(const {s}* in, {s}* out)'
            f" {{ auto x = load<{n}>(in, i64({count})); store(out, {twice}, i64({count})); }}\n"
            for count in known_counts(n)
        ]
    return "".join(lines)


def known_counts(lanes: int) -> set[int]:
    """The length of a row's tail may be known when its kernel is compiled."""
    return {1, lanes // 2, lanes - 1}


class Guarded:
    """A page between two that must not be touched."""

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, 3 * PAGE)
        self.view = (ctypes.c_char * (3 * PAGE)).from_buffer(self.memory)
        self.start = ctypes.addressof(self.view) + PAGE
        self.libc = ctypes.CDLL(None, use_errno=True)
        for edge in (self.start - PAGE, self.start + PAGE):
            assert self.libc.mprotect(ctypes.c_void_p(edge), PAGE, 0) == 0
        self.bytes = np.frombuffer(self.memory, np.uint8)[PAGE : 2 * PAGE]

    def close(self) -> None:
        for edge in (self.start - PAGE, self.start + PAGE):
            self.libc.mprotect(ctypes.c_void_p(edge), PAGE, mmap.PROT_READ | mmap.PROT_WRITE)


@pytest.fixture(scope="module")
def pages() -> Iterator[tuple[Guarded, Guarded]]:
    pair = (Guarded(), Guarded())
    yield pair
    for page in pair:
        page.close()


def values(type_: str, count: int) -> np.ndarray[Any, Any]:
    numbers = np.arange(1, count + 1)
    return (numbers % 3 != 0 if type_ == "boolean" else numbers).astype(TYPES[type_])


def assert_written(page: Guarded, begin: int, x: np.ndarray[Any, Any], what: object) -> None:
    """`x` is at byte `begin` of a page that was all 0xAA, and nothing else is changed."""
    end = begin + x.nbytes
    assert bytes(page.bytes[begin:end]) == x.tobytes(), what
    assert (page.bytes[:begin] == 0xAA).all(), what
    assert (page.bytes[end:] == 0xAA).all(), what


@BY_VARIANT
@BY_TYPE
def test_partial_touches_only_its_lanes(type_: str, variant: Variant, pages: tuple[Guarded, Guarded]) -> None:
    library = build(source(type_), variant)
    size = np.dtype(TYPES[type_]).itemsize
    inside, outside = pages
    for lanes in LANES:
        for count in range(2 * lanes + 1):
            valid = min(count, lanes)
            x = values(type_, valid)
            inside.bytes[PAGE - valid * size :] = x.view(np.uint8)
            outside.bytes[:] = 0xAA
            end = PAGE - valid * size
            arguments = (ctypes.c_void_p(inside.start + end), ctypes.c_void_p(outside.start + end))
            getattr(library, f"partial_{lanes}")(*arguments, ctypes.c_longlong(count))
            assert_written(outside, end, x, (lanes, count))
            # the same at the front of the page, where lanes below must not be touched either
            inside.bytes[: valid * size] = x.view(np.uint8)
            outside.bytes[:] = 0xAA
            arguments = (ctypes.c_void_p(inside.start), ctypes.c_void_p(outside.start))
            getattr(library, f"partial_{lanes}")(*arguments, ctypes.c_longlong(count))
            assert_written(outside, 0, x, (lanes, count))


@BY_VARIANT
@BY_TYPE
def test_a_streaming_store_may_have_any_address(type_: str, variant: Variant, pages: tuple[Guarded, Guarded]) -> None:
    """An instruction that goes past the caches faults where its address is not a multiple of its size."""
    library = build(source(type_), variant)
    size = np.dtype(TYPES[type_]).itemsize
    _, outside = pages
    for lanes in LANES:
        x = values(type_, lanes)
        for past in (0, 1):
            for first in (0, 1, 2, 3, 4, 8, 16, PAGE // size - lanes):
                outside.bytes[:] = 0xAA
                arguments = (ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(outside.start + first * size))
                getattr(library, f"stream_{lanes}")(*arguments, ctypes.c_longlong(past))
                assert_written(outside, first * size, x, (lanes, past, first))


@BY_VARIANT
@BY_TYPE
def test_a_partial_store_of_a_known_count_touches_only_its_lanes(type_: str, variant: Variant) -> None:
    """Of a single lane that was computed as i32, clang 22 stored all four bytes."""
    library = build(source(type_), variant)
    for lanes in LANES:
        for count in known_counts(lanes):
            x, found = values(type_, count), values(type_, lanes + 8)
            expected = found.copy()
            expected[:count] = ~x if type_ == "boolean" else x + x
            getattr(library, f"known_{lanes}_{count}")(
                ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(found.ctypes.data)
            )
            assert found.tobytes() == expected.tobytes(), (lanes, count)


@BY_VARIANT
@BY_TYPE
def test_lanes_that_are_not_loaded_are_zero(type_: str, variant: Variant) -> None:
    library = build(source(type_), variant)
    for lanes in LANES:
        x = values(type_, lanes)
        for count in (-(2**40), -1, *range(lanes + 1), 2**40):
            found = np.ones(lanes, TYPES[type_])
            getattr(library, f"padded_{lanes}")(
                ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(found.ctypes.data), ctypes.c_longlong(count)
            )
            expected = np.where(np.arange(lanes) < count, x, np.zeros((), TYPES[type_]))
            assert found.tobytes() == expected.astype(TYPES[type_]).tobytes(), (lanes, count)


@BY_VARIANT
@BY_TYPE
def test_misaligned(type_: str, variant: Variant) -> None:
    library = build(source(type_), variant)
    size = np.dtype(TYPES[type_]).itemsize
    for lanes in LANES:
        for shift in range(0, 64, size):
            memory, target = np.zeros(1024, np.uint8), np.zeros(1024, np.uint8)
            x = values(type_, lanes)
            memory[shift : shift + lanes * size] = x.view(np.uint8)
            to = target.ctypes.data + 63 - shift // size
            getattr(library, f"partial_{lanes}")(
                ctypes.c_void_p(memory.ctypes.data + shift), ctypes.c_void_p(to), ctypes.c_longlong(lanes)
            )
            at = to - target.ctypes.data
            assert bytes(target[at : at + lanes * size]) == x.tobytes()


@BY_VARIANT
@BY_TYPE
def test_strided(type_: str, variant: Variant) -> None:
    library = build(source(type_), variant)
    for lanes in LANES:
        for from_, to in ((1, 3), (3, 1), (7, 2), (0, 1)):
            x = values(type_, lanes * max(from_, 1))
            for count in (lanes, 0, 1, lanes // 2, lanes + 3, None):
                found = np.zeros(lanes * to, TYPES[type_])
                name = f"strided_{lanes}" if count is None else f"strided_partial_{lanes}"
                arguments = [ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(found.ctypes.data)]
                numbers = [from_, to] + ([] if count is None else [count])
                getattr(library, name)(*arguments, *map(ctypes.c_longlong, numbers))
                expected = np.zeros(lanes * to, TYPES[type_])
                for i in range(lanes if count is None else min(count, lanes)):
                    expected[i * to] = x[i * from_]
                assert found.tobytes() == expected.tobytes(), (lanes, from_, to, count)
