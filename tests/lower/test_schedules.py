"""Short rows on a CPU: what stays in registers, what in L1, and that neither changes a bit."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.lower.building import compiled, lowered
from tests.lower.compiled import Host
from tf_stitch.ir.body import Body, BodyBuilder
from tf_stitch.ir.types import DType, TensorType, shape_of
from tf_stitch.lower.cpu import Driver
from tf_stitch.ops import FUNCTIONS, REDUCERS
from tf_stitch.plan.target import Target

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
        for host in (Host(), Host(threads=4, order="strided")):
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


def test_what_is_dear_is_computed_once_for_all_rows() -> None:
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x, scale = (b.input(TensorType(DType.F32, shape_of(*dims))) for dims in (("B", 256), (256,)))
    made = lowered(b.finish([b.apply("mul", x, b.apply("exp", scale))]), target=AVX512)
    for nest, schedule in zip(made.kernel.nests, made.schedules, strict=True):
        assert schedule.driver is not Driver.COLUMNS or nest.outer
    text = made.source.text
    of_rows = text[text.rindex("for (i64 row = begin_row") :] if "begin_row" in text else ""
    assert "exp(" not in of_rows
