"""The interpreter: right results, guards by name, and no read or write of memory that a kernel may not do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.lower.handmade import scaled_rows, softmax, with_access, with_sweep
from tf_stitch.ir.body import BodyBuilder
from tf_stitch.ir.types import ONE, Dim, DType, TensorType, shape_of
from tf_stitch.lower.common import lower
from tf_stitch.lower.interp import Fault, bind, run
from tf_stitch.lower.kernel import Accumulate, Kernel, Load, Place, Reduced, Store
from tf_stitch.ops import FUNCTIONS, REDUCERS
from tf_stitch.plan.groups import plan_groups
from tf_stitch.runtime.reference import GuardFailed

X = np.linspace(-3, 3, 21, dtype=np.float32).reshape(3, 7)


def rows(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (31, 33), (0, 5), (2, 1023)])
def test_a_softmax(shape: tuple[int, int]) -> None:
    x = rows(*shape)
    parts = np.exp(x - x.max(1, keepdims=True, initial=-np.inf))
    (found,) = run(softmax(), [x])
    np.testing.assert_allclose(found, parts / parts.sum(1, keepdims=True), rtol=2e-6)


def test_a_row_of_no_elements_gives_neutral_elements() -> None:
    centred, most = run(scaled_rows(), [rows(4, 0)])
    assert centred.shape == (4, 0)
    np.testing.assert_array_equal(most, np.full((4, 1), -np.inf, np.float32))


def test_inputs_that_the_kernel_does_not_read_may_be_left_out() -> None:
    kernel = softmax()
    with_hole = replace(kernel, inputs=(*kernel.inputs, None))
    (found,) = run(with_hole, [X, None])
    np.testing.assert_array_equal(found, run(kernel, [X])[0])


def test_arrays_of_any_layout_are_read_in_order() -> None:
    (found,) = run(softmax(), [np.asfortranarray(X)])
    np.testing.assert_array_equal(found, run(softmax(), [X])[0])


# -- guards ----------------------------------------------------------------------------------------------------


def summed() -> Kernel:
    """[B, N] + [B, N], and a slice of two rows."""
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x, y = (b.input(TensorType(DType.F32, shape_of(*dims))) for dims in (("B", "N"), ("C", "M")))
    b.require(Dim(2), Dim.symbol("B"), "a slice")
    return lower(plan_groups(b.finish([b.slice(b.apply("add", x, y), [0, 0], (Dim(2), b.shape(x)[1]))])), "summed")


@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        (((3, 7), (3, 7, 1)), "ranks"),
        (((3, 7), (2, 7)), "dim 0 of input 1"),
        (((3, 7), (3, 1)), "dim 1 of input 1"),
        (((1, 7), (1, 7)), "2 is at most"),
    ],
)
def test_guards_are_named(shapes: tuple[tuple[int, ...], ...], text: str) -> None:
    inputs = [np.zeros(shape, np.float32) for shape in shapes]
    with pytest.raises(GuardFailed, match=text):
        run(summed(), inputs)


def test_symbols_are_bound_and_divided() -> None:
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    batch, rest = Dim.symbol("B"), Dim(4, ("B", "S"))
    x, y = b.input(TensorType(DType.F32, (batch,))), b.input(TensorType(DType.F32, (rest, Dim(2))))
    kernel = lower(plan_groups(b.finish([b.apply("neg", y), b.apply("neg", x)])), "divided")
    assert bind(kernel, [np.zeros(3), np.zeros((24, 2))]) == {"B": 3, "S": 2}
    with pytest.raises(GuardFailed, match="multiple of"):
        bind(kernel, [np.zeros(3), np.zeros((25, 2))])
    with pytest.raises(GuardFailed):
        bind(kernel, [np.zeros(0), np.zeros((0, 2))])


# -- faults ----------------------------------------------------------------------------------------------------


def test_reads_outside_a_buffer_are_faults() -> None:
    for kernel in (
        with_access(softmax(), Load, Place.INPUT, offset=(Dim(1),)),
        with_access(softmax(), Load, Place.INPUT, offset=(Dim(-1),)),
        with_access(softmax(), Load, Place.INPUT, strides=(Dim(8), ONE)),
    ):
        with pytest.raises(Fault, match="outside of 21 elements"):
            run(kernel, [X])


def test_writes_to_one_element_twice_are_faults() -> None:
    with pytest.raises(Fault, match="written twice"):
        run(with_access(softmax(), Store, Place.OUTPUT, strides=(Dim(1), ONE)), [X])


def test_elements_that_are_never_written_are_faults() -> None:
    kernel = softmax()
    last = len(kernel.nests[0].sweeps) - 1

    def without_stores(elements: Any) -> Any:
        return tuple(s for s in elements if not isinstance(s, Store))

    with pytest.raises(Fault, match="21 elements are never written"):
        run(with_sweep(kernel, last, elements=without_stores), [X])


def test_tiles_that_are_read_before_they_are_written_are_faults() -> None:
    def without_stores(elements: Any) -> Any:
        return tuple(s for s in elements if not (isinstance(s, Store) and s.access.buffer.place is Place.TILE))

    kernel = softmax()
    assert kernel.nests[0].tiles, "the exponentials are kept"
    with pytest.raises(Fault, match="read before it is written"):
        run(with_sweep(kernel, 1, elements=without_stores), [X])


def test_results_of_reductions_that_are_not_complete_are_faults() -> None:
    def too_early(row: Any) -> Any:
        return (*row, Reduced("sum_too_early", DType.F32, 1))

    with pytest.raises(Fault, match="before its reduction is complete"):
        run(with_sweep(softmax(), 1, row=too_early), [X])


def test_values_of_another_dtype_are_faults() -> None:
    def in_double(elements: Any) -> Any:
        return tuple(s if isinstance(s, Load | Store | Accumulate) else replace(s, dtype=DType.F64) for s in elements)

    with pytest.raises(Fault, match="was to be f64"):
        run(with_sweep(softmax(), 1, elements=in_double), [X])
