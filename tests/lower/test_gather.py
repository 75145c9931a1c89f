"""Elements looked up in a table: in every kind of loop, beside arithmetic and reductions, and never out of range."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.lower.building import compiled, lowered
from tests.lower.comparison import same_bits
from tests.lower.compiled import Host
from tf_stitch.ir.body import Body, BodyBuilder
from tf_stitch.ir.graph import Node
from tf_stitch.ir.types import DType, TensorType, shape_of
from tf_stitch.ir.verify import BrokenInvariant, verify_body
from tf_stitch.lower import interp
from tf_stitch.lower.verify import verify_kernel
from tf_stitch.ops import FUNCTIONS, OPS, REDUCERS, Operands
from tf_stitch.runtime.reference import GuardFailed, evaluate

Array = np.ndarray[Any, np.dtype[Any]]
Build = Callable[[BodyBuilder], list[int]]
KINDS = (DType.F32, DType.F16, DType.BF16, DType.F64, DType.I32, DType.I64, DType.BOOL)


def typed(dtype: DType, *dims: int | str) -> TensorType:
    return TensorType(dtype, shape_of(*dims))


def gather(b: BodyBuilder, table: int, indices: int, axis: int = 0) -> int:
    return _expanded(b, "GatherV2", (table, indices, None), (None, None, np.array(axis)))


def gather_nd(b: BodyBuilder, table: int, indices: int) -> int:
    return _expanded(b, "GatherNd", (table, indices), (None, None))


def _expanded(
    b: BodyBuilder, op: str, values: tuple[int | None, ...], constants: tuple[Array | None, ...], **attributes: int
) -> int:
    node = Node(op, op, (), (), attributes=attributes)
    result = OPS[op].expand(b, Operands(node, values, constants, (None,) * len(values)))
    assert isinstance(result, int)
    return result


def body_of(build: Build) -> Body:
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    body = b.finish(build(b))
    verify_body(body, FUNCTIONS, REDUCERS)
    return body


def embedding(b: BodyBuilder) -> list[int]:
    """Words and their places, normalised: rows of the table, in a reduction."""
    words = gather(b, b.input(typed(DType.F32, 50, "H")), b.input(typed(DType.I32, "B", "S")))
    x = b.apply("add", words, b.input(typed(DType.F32, "S", "H")))
    mean = b.reduce("sum", x, [-1], keep_dims=True)
    return [b.apply("sub", x, mean)]


def elements(b: BodyBuilder) -> list[int]:
    """The index changes from lane to lane."""
    x = gather(b, b.input(typed(DType.F32, 50)), b.input(typed(DType.I64, "N")))
    return [b.apply("mul", x, b.input(typed(DType.F32, "N")))]


def last_axis(b: BodyBuilder) -> list[int]:
    """The index changes from lane to lane, and the row with the loop around them."""
    return [b.apply("neg", gather(b, b.input(typed(DType.F32, "B", 50)), b.input(typed(DType.I32, "K")), 1))]


def scalar_index(b: BodyBuilder) -> list[int]:
    return [b.apply("exp", gather(b, b.input(typed(DType.F32, 5, "S")), b.input(typed(DType.I32))))]


def beams(b: BodyBuilder) -> list[int]:
    """Several tables at the same indices."""
    indices = b.input(typed(DType.I32, 2, "K", 2))
    return [gather_nd(b, b.input(typed(d, 2, 7, 3, 16)), indices) for d in KINDS]


def columns(b: BodyBuilder) -> list[int]:
    """The table's rows lie across the vectors that go down the columns of a sum."""
    x = gather(b, b.input(typed(DType.F32, 9, 40)), b.input(typed(DType.I32, 300)))
    return [b.reduce("sum", x, [0])]


def channels(b: BodyBuilder) -> list[int]:
    """What is looked up for all rows, beside what a row has of its own."""
    scale = gather(b, b.input(typed(DType.F32, 9, 32)), b.input(typed(DType.I32)))
    return [b.apply("add", b.input(typed(DType.F32, "B", 32)), scale)]


def short_rows(b: BodyBuilder) -> list[int]:
    """Rows that would be packed, were their bias not looked up."""
    scale = gather(b, b.input(typed(DType.F32, 9, 5)), b.input(typed(DType.I32)))
    x = b.apply("add", b.input(typed(DType.F32, "B", 5)), scale)
    return [b.apply("mul", x, b.input(typed(DType.F32, 5)))]


def long_rows(b: BodyBuilder) -> list[int]:
    x = gather(b, b.input(typed(DType.F32, 50)), b.input(typed(DType.I32, 2, "N")))
    return [b.apply("div", x, b.reduce("max", x, [1], keep_dims=True))]


def step_of_a_loop(b: BodyBuilder) -> list[int]:
    """x[:, t], of which the loop knows the t."""
    x, t = b.input(typed(DType.F32, "B", 50, "S")), b.input(typed(DType.I32, 3))
    masks = {"begin_mask": 5, "end_mask": 5, "shrink_axis_mask": 2}
    at_t = _expanded(b, "StridedSlice", (x, t, None, None), (None, None, None, np.ones(3, np.int32)), **masks)
    return [b.apply("mul", at_t, b.input(typed(DType.F32, "B", "S")))]


def slice_of_one(b: BodyBuilder) -> list[int]:
    """A begin for each axis: of the one that is whole it is 0."""
    x, begin = b.input(typed(DType.F32, 3, 50, 16)), b.input(typed(DType.I64, 3))
    piece = _expanded(b, "Slice", (x, begin, None), (None, None, np.array([1, 1, 16])))
    return [b.apply("exp", piece)]


CASES = [
    step_of_a_loop,
    slice_of_one,
    embedding,
    elements,
    last_axis,
    scalar_index,
    beams,
    columns,
    channels,
    short_rows,
    long_rows,
]
SIZES = (
    {"B": 3, "S": 5, "H": 67, "N": 20_011, "K": 4},
    {"B": 1, "S": 1, "H": 1, "N": 1, "K": 1},
    {"B": 700, "S": 2, "H": 16, "N": 33, "K": 67},
)


def inputs_of(body: Body, symbols: dict[str, int]) -> list[Array]:
    rng = np.random.default_rng(7)
    found: list[Array] = []
    for number, type_ in enumerate(body.inputs):
        assert type_ is not None
        shape = [d.evaluate(symbols) for d in type_.dims]
        limits = [w.below.evaluate(symbols) for w in body.indices if w.input == number]
        if limits:
            found.append(rng.integers(0, min(limits), shape).astype(type_.dtype.numpy))
        else:
            found.append((rng.standard_normal(shape) * 4).astype(type_.dtype.numpy))
    return found


@pytest.mark.parametrize("build", CASES)
def test_compiled_is_interpreted_is_referenced(build: Build) -> None:
    body = body_of(build)
    made = lowered(body)
    (kernel,) = compiled([made])
    for symbols in SIZES:
        inputs = inputs_of(body, symbols)
        wanted = evaluate(body, inputs, symbols)
        seen = interp.run(made.kernel, inputs)
        alone = kernel(inputs)
        for mine, inner, other in zip(alone, seen, wanted, strict=True):
            np.testing.assert_allclose(plain(inner), plain(other), rtol=2e-5, atol=1e-4)
            np.testing.assert_allclose(plain(mine), plain(other), rtol=2e-5, atol=1e-4)
        for host in (Host(threads=8, order="reversed", chunk=2), Host(threads=8, order="strided")):
            for forward in (False, True):
                results = kernel(inputs, host, forward=forward)
                assert all(map(same_bits, results, alone))


def plain(array: Array) -> Array:
    return array.astype(np.float64)


@pytest.mark.parametrize("build", CASES)
@pytest.mark.parametrize("wrong", [-1, "below", -(2**31)])
def test_an_index_out_of_range_is_the_fallbacks(build: Build, wrong: int | str) -> None:
    body, symbols = body_of(build), SIZES[0]
    made = lowered(body)
    (kernel,) = compiled([made])
    for within in body.indices:
        inputs = inputs_of(body, symbols)
        flat = inputs[within.input].reshape(-1)
        last = within.first + (flat.size - 1 - within.first) // within.step * within.step
        flat[last] = within.below.evaluate(symbols) if wrong == "below" else wrong
        inputs[within.input] = flat.reshape(inputs[within.input].shape)
        runs = (kernel, partial(interp.run, made.kernel), partial(evaluate, body, symbols=symbols))
        for run in runs:
            with pytest.raises(GuardFailed, match=f"of input {within.input} are in"):
                run(inputs)


@pytest.mark.parametrize("build", CASES)
def test_a_kernel_without_the_guard_is_broken(build: Build) -> None:
    with pytest.raises(BrokenInvariant, match="is guarded"):
        verify_kernel(replace(lowered(body_of(build)).kernel, indices=()))
