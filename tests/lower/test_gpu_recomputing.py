"""Values of long rows that are computed again: where that is cheaper, by the same statements, with the same bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.lower.comparison import assert_near, same_bits
from tests.lower.emulated import emulated, lowered_for_gpu
from tests.lower.test_gpu import early_softmax, softmax
from tf_stitch.ir.body import Body, BodyBuilder
from tf_stitch.ir.types import DType, TensorType, shape_of
from tf_stitch.lower import interp
from tf_stitch.lower.common import lower
from tf_stitch.lower.gpu_launch import evaluate
from tf_stitch.lower.gpu_recomputing import recomputed
from tf_stitch.lower.kernel import Compute, Kernel, Load, Nest, Place, Store
from tf_stitch.ops import FUNCTIONS, REDUCERS
from tf_stitch.plan.gpu_target import GpuTarget
from tf_stitch.plan.groups import plan_groups

A100 = GpuTarget.named("a100")


def kernel_of(body: Body) -> Kernel:
    return lower(plan_groups(body), "kernel")


def masked_softmax(*dims: int | str) -> Body:
    """Of x * mask: what the maximum is taken of is worth a tile, where that is near."""
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x = b.input(TensorType(DType.F32, shape_of(*dims)))
    mask = b.broadcast(b.input(TensorType(DType.F32, shape_of(dims[-1]))), shape_of(*dims))
    t = b.apply("mul", x, mask)
    e = b.apply("exp", b.apply("sub", t, b.reduce("max", t, [-1], keep_dims=True)))
    return b.finish([b.apply("div", e, b.reduce("sum", e, [-1], keep_dims=True))])


def streamed(nest: Nest) -> list[tuple[int, int]]:
    """What each sweep loads and stores of inputs' and tiles' elements."""
    return [tuple(sum(isinstance(s, kind) for s in sweep.elements) for kind in (Load, Store)) for sweep in nest.sweeps]


def test_a_softmax_reads_its_input_three_times_and_keeps_nothing() -> None:
    (nest,) = kernel_of(softmax("B", "N")).nests
    assert len(nest.tiles) == 1
    found = recomputed(nest, A100)
    assert found.tiles == ()
    assert streamed(found) == [(1, 0), (1, 0), (1, 1)]


def test_what_is_dear_and_made_of_much_is_kept() -> None:
    """Ten inputs are more to read again than one tile."""
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    xs = [b.input(TensorType(DType.F32, shape_of("B", "N"))) for _ in range(10)]
    t = xs[0]
    for x in xs[1:]:
        t = b.apply("add", t, x)
    e = b.apply("exp", t)
    (nest,) = kernel_of(b.finish([b.apply("div", e, b.reduce("sum", e, [-1], keep_dims=True))])).nests
    assert nest.tiles
    assert recomputed(nest, A100) == nest


def test_a_gpu_whose_arithmetic_is_slow_keeps_what_is_heavy() -> None:
    (nest,) = kernel_of(softmax("B", "N")).nests
    assert recomputed(nest, replace(A100, heavy_per_ns=0.1)) == nest


def test_inputs_are_not_read_again_once_a_result_may_be_in_their_place() -> None:
    (nest,) = kernel_of(early_softmax("B", "N")).nests
    early = [s for sweep in nest.sweeps[:-1] for s in sweep.elements if isinstance(s, Store)]
    assert any(s.access.buffer.place is Place.OUTPUT for s in early)
    assert recomputed(nest, A100) == nest


def test_nothing_is_computed_twice_in_a_sweep() -> None:
    (nest,) = kernel_of(masked_softmax("B", "N")).nests
    for sweep in recomputed(nest, A100).sweeps:
        names = [s.name for s in sweep.elements if isinstance(s, Compute | Load)]
        assert len(names) == len(set(names))


@pytest.mark.parametrize("body", [softmax("B", "N"), masked_softmax("B", "N")], ids=["softmax", "masked softmax"])
@pytest.mark.parametrize(("rows", "length"), [(1, 1), (3, 33), (2, 4097), (0, 5)])
def test_bits_are_those_of_what_was_kept(body: Body, rows: int, length: int) -> None:
    kernel = kernel_of(body)
    random = np.random.default_rng(1)
    shapes = [[d.evaluate({"B": rows, "N": length}) for d in t.dims] for t in kernel.inputs if t is not None]
    inputs = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    again = replace(kernel, nests=tuple(recomputed(nest, A100) for nest in kernel.nests))
    assert again != kernel
    for one, other in zip(interp.run(kernel, inputs), interp.run(again, inputs), strict=True):
        assert same_bits(one, other)


def test_long_rows_on_the_emulator() -> None:
    """In pieces, and a row to a block: the same bits, and nothing of a row in scratch."""
    length = 40_001
    made = lowered_for_gpu(masked_softmax("B", "N"))
    random = np.random.default_rng(2)
    inputs = [random.standard_normal(shape).astype(np.float32) for shape in ((1, length), (length,))]
    kernel = emulated(made)
    variants = kernel.variants(inputs)
    assert len(variants) > 1
    (wanted,) = interp.run(made.kernel, inputs)
    results = [kernel(inputs, variant)[0] for variant in variants]
    assert_near(results[0], wanted)
    assert all(same_bits(result, results[0]) for result in results)
    assert evaluate(variants[0].scratch, {"B": 1, "N": length}) < 4 * length  # what pieces leave of their sums alone
