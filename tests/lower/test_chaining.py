"""Nests that follow each other row by row: which do, and that the bits are the same whoever takes which rows."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from tests.lower.building import Lowered, lowered
from tests.lower.columns import Kernels, assert_bits_do_not_depend_on_threads, assert_right, kernels_of
from tf_stitch.ir.body import Body, BodyBuilder
from tf_stitch.ir.types import Dim, DType, TensorType, shape_of
from tf_stitch.ir.verify import BrokenInvariant
from tf_stitch.lower.chaining import chained
from tf_stitch.lower.kernel import Load, Store, Sweep
from tf_stitch.lower.launches import launches
from tf_stitch.lower.verify import verify_kernel
from tf_stitch.ops import FUNCTIONS, REDUCERS
from tf_stitch.ops.products import matrix_product


def builder() -> BodyBuilder:
    return BodyBuilder(FUNCTIONS, REDUCERS)


def f32(*dims: int | str) -> TensorType:
    return TensorType(DType.F32, shape_of(*dims))


def gru(width: int = 36, batch: int | str = "B") -> Body:
    """Both products read concatenations, the second what follows from the first: rows are all that they share."""
    b = builder()
    x, h, w, v = (b.input(f32(*s)) for s in ((batch, width), (batch, width), (2 * width,) * 2, (2 * width, width)))
    gates = b.apply("sigmoid", matrix_product(b, b.concat([x, h], 1), w))
    size = (b.shape(x)[0], Dim(width))
    reset, update = (b.slice(gates, (0, n), size) for n in (0, width))
    candidate = b.apply("tanh", matrix_product(b, b.concat([x, b.apply("mul", reset, h)], 1), v))
    kept = b.apply("mul", update, b.apply("sub", h, candidate))
    return b.finish([b.apply("add", candidate, kept)])


def layers(*widths: int) -> Body:
    """Dense layers, each with its activation."""
    b = builder()
    x = b.input(f32("B", widths[0]))
    for before, width in itertools.pairwise(widths):
        x = b.apply("relu", b.apply("add", matrix_product(b, x, b.input(f32(before, width))), b.input(f32(width))))
    return b.finish([x])


def of_pages() -> Body:
    """Rows of rows: a product for each word of a page, and a softmax over the page's words."""
    b = builder()
    x, w = b.input(f32("B", 5, 12)), b.input(f32(12, 20))
    found = b.apply(
        "tanh", b.reshape(matrix_product(b, b.reshape(x, shape_of(Dim(5, ("B",)), 12)), w), f32("B", 5, 20).dims)
    )
    parts = b.apply("exp", b.apply("sub", found, b.reduce("max", found, [1], keep_dims=True)))
    return b.finish([b.apply("div", parts, b.reduce("sum", parts, [1], keep_dims=True))])


def with_a_norm() -> Body:
    """A product, and over its rows a reduction."""
    b = builder()
    x, w, gamma = b.input(f32("B", 24)), b.input(f32(24, 40)), b.input(f32(40))
    y = matrix_product(b, x, w)
    norm = b.apply("rsqrt", b.reduce("sum", b.apply("square", y), [1], keep_dims=True))
    return b.finish([b.apply("mul", b.apply("mul", y, norm), gamma), matrix_product(b, y, b.input(f32(40, 7)))])


BODIES = {
    "gru": gru(),
    "gru_16": gru(16),
    "gru_of_64_rows": gru(8, 64),
    "layers": layers(20, 33, 16, 8, 1),
    "pages": of_pages(),
    "norm": with_a_norm(),
}
SIZES = [{"B": n} for n in (0, 1, 2, 23, 24, 25, 200, 401)]


def of(made: Lowered) -> list[list[int]]:
    return launches(made.kernel, made.schedules)


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    return kernels_of(BODIES)


@pytest.mark.parametrize("name", BODIES)
def test_any_number_of_rows(name: str, kernels: Kernels) -> None:
    made, kernel = kernels[name]
    assert_right(made, kernel, BODIES[name], SIZES)


@pytest.mark.parametrize("name", BODIES)
def test_bits_do_not_depend_on_who_takes_which_rows(name: str, kernels: Kernels) -> None:
    assert_bits_do_not_depend_on_threads(kernels[name][1], BODIES[name], SIZES)


def test_a_recurrent_step_is_one_launch(kernels: Kernels) -> None:
    made, _ = kernels["gru"]
    assert len(made.kernel.nests) > 3
    assert len(of(made)) == 1
    assert [s.chained for s in made.schedules] == [False, *[True] * (len(made.schedules) - 1)]


def test_layers_are_one_launch(kernels: Kernels) -> None:
    assert len(of(kernels["layers"][0])) == 1


def test_what_waits_for_none_of_them_is_no_link() -> None:
    b = builder()
    x, y = b.input(f32("B", 20)), b.input(f32("B", 20))
    made = lowered(b.finish([b.apply("exp", x), b.reduce("sum", y, [1])]))
    assert not any(s.chained for s in made.schedules)


def test_flat_loops_alone_are_no_chain() -> None:
    """What a row is only a nest behind them would say, which is no link. No body is planned so today."""
    b = builder()
    flat = lowered(b.finish([b.apply("exp", b.input(f32(192)))]))
    b = builder()
    rows = lowered(b.finish([b.apply("neg", b.reduce("sum", b.input(f32(12, 16)), [1]))]))
    (first,), (last,) = flat.kernel.nests, rows.kernel.nests
    load, *others, store = first.sweeps[0].elements
    assert isinstance(load, Load)
    assert isinstance(store, Store)
    again = replace(load, access=store.access)
    other = replace(store, access=replace(store.access, buffer=replace(store.access.buffer, index=1)))
    second = replace(first, sweeps=(Sweep((), (again, *others, other)),))
    kernel = replace(flat.kernel, nests=(first, second, last))
    schedules = (*flat.schedules, *flat.schedules, *rows.schedules)
    assert not any(s.chained for s in chained(kernel, schedules, [True] * 3))
    assert not any(s.chained for s in chained(kernel, schedules, [True, True, False]))


def test_what_reads_all_rows_ends_a_chain() -> None:
    """The sum over a batch, and what is left of each row without it."""
    b = builder()
    y = b.apply("tanh", matrix_product(b, b.input(f32("B", 12)), b.input(f32(12, 20))))
    z = b.apply("sub", y, b.reduce("sum", y, [0], keep_dims=True))
    made = lowered(b.finish([matrix_product(b, z, b.input(f32(20, 9)))]))
    stored = [n for n, s in enumerate(made.schedules) if s.driver.value == "down"]
    assert stored
    assert all(not made.schedules[n].chained and not made.schedules[n + 1].chained for n in stored)


def test_what_lies_crosswise_is_no_row() -> None:
    """The transpose of a batch of rows: each row of the next product is of all rows of the one before."""
    b = builder()
    y = b.apply("tanh", matrix_product(b, b.input(f32(16, 12)), b.input(f32(12, 16))))
    made = lowered(b.finish([matrix_product(b, b.transpose(y, (1, 0)), b.input(f32(16, 9)))]))
    assert not any(s.chained for s in made.schedules)


def test_long_rows_are_handed_on_through_memory_that_others_use_again() -> None:
    made = lowered(layers(20, 3000, 20))
    assert not any(s.chained for s in made.schedules)


def test_a_chain_of_what_is_none_is_caught() -> None:
    b = builder()
    y = b.apply("tanh", matrix_product(b, b.input(f32(16, 12)), b.input(f32(12, 16))))
    made = lowered(b.finish([matrix_product(b, b.transpose(y, (1, 0)), b.input(f32(16, 9)))]))
    assert len(made.schedules) == 2
    first, second = made.schedules
    with pytest.raises(BrokenInvariant, match="reads its own part"):
        verify_kernel(made.kernel, (first, replace(second, chained=True)))
