"""Nests that do not wait for each other are one parallel loop; those that do are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.lower.building import Lowered, compiled, lowered
from tests.lower.comparison import same_bits
from tests.lower.compiled import Host
from tf_stitch.ir.body import Body, BodyBuilder
from tf_stitch.ir.types import DType, TensorType, shape_of
from tf_stitch.lower.kernel import Kernel
from tf_stitch.lower.launches import launches
from tf_stitch.ops import FUNCTIONS, REDUCERS


def builder() -> BodyBuilder:
    return BodyBuilder(FUNCTIONS, REDUCERS)


def f32(*dims: int | str) -> TensorType:
    return TensorType(DType.F32, shape_of(*dims))


def of(made: Lowered) -> list[list[int]]:
    return launches(made.kernel, made.schedules)


def columns() -> Body:
    """Of many shapes: rows, blocks, columns, packed rows, and a sum down columns between them."""
    b = builder()
    outputs: list[int] = []
    for number in range(4):
        x = b.input(f32(5 + number, 7 + number))
        outputs.append(b.apply("exp", x))
        outputs.append(b.apply("add", b.input(f32(300 + number, 3)), b.input(f32(3))))
        outputs.append(b.apply("mul", b.input(f32(40 + number, 64)), b.input(f32(64))))
        rows = b.input(f32(30 + number, 100))
        outputs.append(b.apply("sub", rows, b.reduce("max", rows, [1], keep_dims=True)))
        outputs.append(b.apply("neg", b.input(f32("N", 5000 + number))))
    outputs.append(b.reduce("sum", b.input(f32(64, 48)), [0]))
    return b.finish(outputs)


def test_independent_nests_are_one_loop() -> None:
    b = builder()
    made = lowered(b.finish([b.apply("exp", b.input(f32(n, 3))) for n in (10, 2000, 30)]))
    assert of(made) == [list(range(len(made.kernel.nests)))]
    assert len(made.kernel.nests) == 3
    (kernel,) = compiled([made])
    host = Host()
    kernel([np.ones((n, 3), np.float32) for n in (10, 2000, 30)], host)
    assert len(host.loops) == 1


def test_what_reads_scratch_waits() -> None:
    b = builder()
    x, v = b.input(f32("B", 24)), b.input(f32(24))
    made = lowered(b.finish([b.apply("mul", x, b.apply("exp", v))]))
    assert len(made.kernel.nests) == 2
    assert of(made) == [[0], [1]]


def test_pieces_of_one_output_are_one_loop() -> None:
    b = builder()
    inputs = [b.input(f32("B", width)) for width in (3, 18, 64)]
    made = lowered(b.finish([b.concat([b.apply("neg", x) for x in inputs], 1)]))
    assert of(made) == [[0, 1, 2]]
    (kernel,) = compiled([made])
    arrays = [np.random.default_rng(width).standard_normal((50, width)).astype(np.float32) for width in (3, 18, 64)]
    for host in (Host(), Host(threads=2, order="reversed", chunk=7), Host(threads=3, pool=3, chunk=1)):
        (found,) = kernel(list(arrays), host)
        np.testing.assert_array_equal(found, -np.concatenate(arrays, 1))


def test_a_piece_that_another_reads_is_waited_for() -> None:
    b = builder()
    total = b.reduce("sum", b.input(f32(10, 6)), [0], keep_dims=True)
    shifted = b.apply("sub", total, b.reduce("max", total, [1], keep_dims=True))
    made = lowered(b.finish([b.concat([total, shifted], 1)]))
    assert of(made) == [[0], [1]]


def test_what_is_more_than_a_loop_stands_alone() -> None:
    b = builder()
    outputs = [b.apply("exp", b.input(f32(n))) for n in (10, 20)]
    outputs += [b.reduce("sum", b.input(f32("B", "N")), [1])]
    outputs += [b.apply("exp", b.input(f32(n))) for n in (30, 40)]
    made = lowered(b.finish(outputs))
    split = next(n for n, s in enumerate(made.schedules) if s.driver.value == "rows or split")
    assert [split] in of(made)
    assert sorted(n for together in of(made) for n in together) == list(range(5))


def test_what_stands_alone_is_passed_over_by_what_does_not_wait_for_it() -> None:
    """Norms of large and small variables: the small ones are one loop, wherever the large one stands."""
    b = builder()
    sums = [b.reduce("sum", b.input(f32(*dims)), [1]) for dims in ((10, 100), (2, 100_000), (20, 200))]
    made = lowered(b.finish([*sums, b.apply("neg", sums[1])]))
    assert of(made) == [[0, 2], [1]]


def test_an_input_whose_memory_another_nest_may_store_into_is_waited_for() -> None:
    """No pass makes such a kernel today; the rule does not rely on that."""
    b = builder()
    made = lowered(b.finish([b.apply("exp", b.input(f32(10))), b.apply("exp", b.input(f32(20)))]))
    assert of(made) == [[0, 1]]

    def forwarding(*pairs: tuple[int, int]) -> Kernel:
        return replace(made.kernel, forwards=pairs)

    assert launches(forwarding((0, 0), (1, 1)), made.schedules) == [[0, 1]]
    assert launches(forwarding((0, 1)), made.schedules) == [[0], [1]]
    assert launches(forwarding((1, 0)), made.schedules) == [[0], [1]]


@pytest.mark.parametrize("order", ["whole", "forward", "reversed", "strided"])
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_however_the_loop_is_cut_the_bits_are_the_same(order: str, rows: int) -> None:
    made = lowered(columns())
    assert max(map(len, of(made))) >= 5
    assert len({s.driver for s in made.schedules}) >= 4
    (kernel,) = compiled([made])
    rng = np.random.default_rng(rows)
    shapes = [tuple(d.evaluate(dict.fromkeys(d.symbols, rows)) for d in t.dims) for t in made.kernel.inputs if t]
    inputs = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    expected = kernel(list(inputs))
    for host in (Host(threads=2, order=order, chunk=7), Host(threads=3, pool=3, order=order, chunk=1)):
        found = kernel(list(inputs), host, forward=order == "reversed")
        assert all(same_bits(a, b) for a, b in zip(found, expected, strict=True))
