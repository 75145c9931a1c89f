"""Short rows on a CPU: what stays in registers, what in L1, and that neither changes a bit."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from tests.lower.building import compiled, lowered
from tests.lower.compiled import Host
from tf_stitch.ir.body import Body, BodyBuilder
from tf_stitch.ir.types import DType, TensorType, shape_of
from tf_stitch.lower.cpu import Driver
from tf_stitch.lower.kernel import Compute, Statement
from tf_stitch.lower.nests import tiles_in_place
from tf_stitch.ops import FUNCTIONS, REDUCERS
from tf_stitch.plan.target import Target
from tf_stitch.render.cpp import render

AVX512 = Target.baseline("x86-64-v4")
CHANNELS = (1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 33, 48, 64, 128, 192, 511, 512)


def normalised(channels: int) -> Body:
    """Batch norm and relu, of rows of `channels`."""
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x = b.input(TensorType(DType.F32, shape_of("B", channels)))
    scale, offset = (b.input(TensorType(DType.F32, shape_of(channels))) for _ in range(2))
    return b.finish([b.apply("relu", b.apply("add", b.apply("mul", x, scale), offset))])


@pytest.mark.parametrize("rows", [1, 5, 700])
def test_rows_of_any_length_have_the_same_bits(rows: int) -> None:
    kernels = compiled([lowered(normalised(channels), f"k{channels}") for channels in CHANNELS])
    rng = np.random.default_rng(rows)
    for channels, kernel in zip(CHANNELS, kernels, strict=True):
        x, scale, offset = (rng.standard_normal(s).astype(np.float32) for s in ((rows, channels), channels, channels))
        expected = np.maximum(x * scale + offset, np.float32(0))
        for host in (Host(), Host(threads=4, order="strided", cache_bytes=0)):
            (y,) = kernel([x, scale, offset], host)
            np.testing.assert_array_equal(y, expected, err_msg=f"{channels} channels")


@pytest.mark.parametrize("channels", [3, 8, 20, 24, 33])
def test_a_repeated_parameter_is_short(channels: int) -> None:
    """It is in L1 while the data passes through it."""
    made = lowered(normalised(channels), target=AVX512)
    (schedule,) = made.schedules
    assert schedule.driver is Driver.BLOCKS
    assert schedule.block % channels == 0
    assert schedule.block <= 16 * 33


@pytest.mark.parametrize(("channels", "down"), [(16, True), (32, True), (64, True), (128, False), (512, False)])
def test_memory_is_passed_through_once(channels: int, down: bool) -> None:
    """A vector of columns goes down the rows only where it is all of the row."""
    made = lowered(normalised(channels), target=AVX512)
    assert made.schedules[0].driver is Driver.COLUMNS
    loops = re.findall(r"for \(i64 (row|n) =", made.source.text)
    assert loops == (["n", "row"] if down else ["row", "n"])


@pytest.mark.parametrize(("function", "order"), [("neg", ["row", "n"]), ("exp", ["n", "row"])])
def test_what_is_dear_is_computed_once_for_all_rows(function: str, order: list[str]) -> None:
    """The planner keeps it in scratch; printers do not rely on that."""
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x, scale = (b.input(TensorType(DType.F32, shape_of(*dims))) for dims in (("B", 256), (256,)))
    made = lowered(b.finish([b.apply("mul", x, b.apply("neg", scale))]), target=AVX512)
    (nest,), (sweep,) = made.kernel.nests, made.kernel.nests[0].sweeps

    def of(s: Statement) -> Statement:
        return replace(s, function=function) if isinstance(s, Compute) and s.function == "neg" else s

    nest = replace(nest, sweeps=(replace(sweep, elements=tuple(map(of, sweep.elements))),))
    text = render(replace(made.kernel, nests=(nest,)), made.schedules).text
    assert re.findall(r"for \(i64 (row|n) =", text) == order


# -- tiles -----------------------------------------------------------------------------------------------------


def masked_softmax(columns: int | str, *, twice: bool = False) -> Body:
    """twice: what is exponentiated is read once more in the last sweep."""
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x, mask = (b.input(TensorType(DType.F32, shape_of("B", columns))) for _ in range(2))
    t = b.apply("add", b.apply("erf", x), mask)
    e = b.apply("exp", b.apply("sub", t, b.reduce("max", t, [1], keep_dims=True)))
    y = b.apply("div", e, b.reduce("sum", e, [1], keep_dims=True))
    return b.finish([b.apply("mul", y, t) if twice else y])


@pytest.mark.parametrize(("twice", "places"), [(False, [2]), (True, [1, 1])])
def test_a_tile_takes_the_place_of_one_that_is_read_for_the_last_time(twice: bool, places: list[int]) -> None:
    (nest,) = lowered(masked_softmax("N", twice=twice)).kernel.nests
    assert [len(place) for place in tiles_in_place(nest)] == places


@pytest.mark.parametrize("twice", [False, True])
def test_tiles_in_one_place_hold_what_they_should(twice: bool) -> None:
    (kernel,) = compiled([lowered(masked_softmax("N", twice=twice), f"twice{twice}")])
    rng = np.random.default_rng(7)
    for rows, columns in ((3, 40), (1, 30_000), (5, 4097)):
        x, mask = (rng.standard_normal((rows, columns)).astype(np.float32) for _ in range(2))
        t = np.vectorize(math.erf)(x) + mask.astype(np.float64)
        e = np.exp(t - t.max(axis=1, keepdims=True))
        expected = e / e.sum(axis=1, keepdims=True) * (t if twice else 1)
        (plain,) = kernel([x, mask])
        (split,) = kernel([x, mask], Host(threads=4, order="strided"))
        np.testing.assert_allclose(plain, expected, rtol=2e-5, atol=1e-9)
        np.testing.assert_array_equal(plain, split)
