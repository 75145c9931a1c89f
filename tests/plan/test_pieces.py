"""Concatenations: stored in pieces, whoever computes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tf_stitch.ir.body import Body, BodyBuilder
from tf_stitch.ir.types import Dim, DType, TensorType, shape_of
from tf_stitch.ir.verify import verify_body
from tf_stitch.lower import interp
from tf_stitch.lower.common import lower
from tf_stitch.lower.cpu import schedule
from tf_stitch.lower.kernel import Kernel
from tf_stitch.lower.verify import verify_kernel
from tf_stitch.ops import FUNCTIONS, REDUCERS
from tf_stitch.plan.groups import plan_groups
from tf_stitch.plan.plan import StitchPlan
from tf_stitch.plan.target import Target
from tf_stitch.plan.verify import verify_plan
from tf_stitch.render.cpp import render
from tf_stitch.runtime.reference import evaluate

Build = Callable[[BodyBuilder], Sequence[int]]
TARGET = Target.baseline("x86-64-v3")
F32 = DType.F32


def f32(*dims: int | str | Dim) -> TensorType:
    return TensorType(DType.F32, shape_of(*dims))


def built(build: Build) -> Body:
    builder = BodyBuilder(FUNCTIONS, REDUCERS)
    body = builder.finish(build(builder))
    verify_body(body, FUNCTIONS, REDUCERS)
    return body


def made(build: Build, **symbols: int) -> tuple[StitchPlan, Kernel]:
    """Planned, lowered and scheduled, all of it verified, and the same as the reference for these symbols."""
    body = built(build)
    plan = plan_groups(body)
    verify_plan(plan)
    kernel = lower(plan, "k")
    verify_kernel(kernel)
    scheduled, schedules = schedule(kernel, TARGET)
    verify_kernel(scheduled, schedules)
    render(scheduled, schedules)
    random = np.random.default_rng(0)
    inputs = [
        None if t is None else random.normal(size=[d.evaluate(symbols) for d in t.dims]).astype(t.dtype.numpy)
        for t in body.inputs
    ]
    wanted = evaluate(body, inputs, symbols)
    for each in (kernel, scheduled):
        for mine, theirs in zip(interp.run(each, inputs), wanted, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
    return plan, kernel


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("size", [0, 1, 3])
def test_along_any_axis(axis: int, size: int) -> None:
    def build(b: BodyBuilder) -> list[int]:
        dims = [Dim.symbol("B"), Dim(5), Dim.symbol("N")]
        others = [d if a == axis and d.symbols else Dim(3) if a == axis else d for a, d in enumerate(dims)]
        x, y = b.input(TensorType(F32, tuple(dims))), b.input(TensorType(F32, tuple(others)))
        return [b.concat([b.apply("exp", x), b.apply("neg", y), x], axis)]

    made(build, B=size, N=2)


def test_computed_and_plain_pieces_of_other_widths() -> None:
    def build(b: BodyBuilder) -> list[int]:
        x, y, z = (b.input(f32("B", n)) for n in (18, 7, 1))
        mean = b.reduce("sum", x, [1], keep_dims=True)
        return [b.concat([b.apply("sub", x, mean), y, mean, b.apply("exp", z)], 1)]

    _, kernel = made(build, B=5)
    assert len(kernel.scratch) == 0
    assert kernel.forwards == ()


def test_pieces_that_are_outputs_themselves_and_come_twice() -> None:
    def build(b: BodyBuilder) -> list[int]:
        x = b.input(f32("B", 3))
        y = b.apply("exp", x)
        return [y, b.concat([y, x, y], 1), b.concat([y, x], 0), x]

    made(build, B=4)


def test_a_concatenation_of_concatenations_is_one() -> None:
    def build(b: BodyBuilder) -> list[int]:
        x, y = b.input(f32(2, "B", 3)), b.input(f32(2, "B", 5))
        inner = b.concat([b.apply("exp", x), y], 2)
        return [b.concat([inner, b.input(f32(4, "B", 8)), inner], 0)]

    plan, _ = made(build, B=3)
    assert not plan.scratch


def test_what_computes_with_a_concatenation_reads_it_from_memory() -> None:
    def build(b: BodyBuilder) -> list[int]:
        x, y = b.input(f32("B", 6)), b.input(f32("B", 2))
        whole = b.concat([b.apply("exp", x), b.apply("neg", y)], 1)
        return [b.apply("div", whole, b.reduce("sum", whole, [1], keep_dims=True))]

    plan, kernel = made(build, B=3)
    assert len(plan.scratch) == 1
    assert len(kernel.scratch) == 1


def test_what_reads_a_concatenation_may_be_a_piece_of_the_next() -> None:
    def build(b: BodyBuilder) -> list[int]:
        x, y = b.input(f32("B", 6)), b.input(f32("B", 2))
        whole = b.concat([b.apply("exp", x), y], 1)
        return [b.concat([whole, b.apply("tanh", b.reduce("sum", whole, [1], keep_dims=True))], 1)]

    plan, _ = made(build, B=3)
    assert len(plan.groups) > 1


def test_a_piece_may_be_read_by_the_nest_that_stores_another() -> None:
    def build(b: BodyBuilder) -> list[int]:
        total = b.reduce("sum", b.input(f32("B", 6)), [0], keep_dims=True)
        return [b.concat([total, b.apply("sub", total, b.reduce("max", total, [1], keep_dims=True))], 1)]

    plan, kernel = made(build, B=3)
    assert len(plan.groups) == 2
    assert not kernel.scratch


def test_reshaped_and_transposed_pieces() -> None:
    def build(b: BodyBuilder) -> list[int]:
        x, y = b.input(f32("B", 6, 4)), b.input(f32(6, "B", 4))
        turned = b.transpose(b.apply("exp", y), (1, 0, 2))
        flat = b.reshape(b.apply("neg", x), shape_of("B", 24))
        return [b.concat([b.reshape(flat, shape_of("B", 6, 4)), turned], 1), b.concat([flat, flat], 1)]

    made(build, B=3)


def test_a_concatenation_that_is_moved_is_stored_in_pieces_as_well() -> None:
    def build(b: BodyBuilder) -> list[int]:
        x, y = b.input(f32("B", 6, 4)), b.input(f32("B", 6, 3))
        whole = b.concat([b.apply("exp", x), b.apply("neg", y)], 2)
        turned = b.transpose(whole, (1, 2, 0))
        twice = b.reshape(b.concat([turned, turned], 0), shape_of(84, "B"))
        return [b.reshape(whole, shape_of("B", 42)), turned, twice]

    plan, kernel = made(build, B=3)
    assert not plan.scratch
    assert len(kernel.outputs) == 3


def test_a_concatenation_that_is_moved_and_computed_with() -> None:
    def build(b: BodyBuilder) -> list[int]:
        x, y = b.input(f32("B", 6, 4)), b.input(f32("B", 6, 3))
        flat = b.reshape(b.concat([b.apply("exp", x), y], 2), shape_of("B", 42))
        return [flat, b.apply("tanh", flat), b.reduce("max", flat, [1])]

    made(build, B=3)


def test_a_constant_is_a_piece() -> None:
    def build(b: BodyBuilder) -> list[int]:
        x = b.input(f32("B", 6))
        zeros = b.broadcast(b.constant(0.0, F32), shape_of("B", 2))
        return [b.concat([zeros, b.apply("exp", x)], 1)]

    made(build, B=3)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("sizes", [(3, 2), (0, 4), (1, 0), (0, 0)])
def test_of_unknown_lengths(axis: int, sizes: tuple[int, int]) -> None:
    """What reads the whole of them, and a slice of that: what is stored behind S is at no product of dims."""

    def build(b: BodyBuilder) -> list[int]:
        x, y = (b.input(TensorType(F32, (*[Dim(3)] * axis, Dim.symbol(s), *[Dim(5)] * (2 - axis)))) for s in "ST")
        whole = b.concat([b.apply("exp", x), y, b.apply("neg", x)], axis)
        shape = b.shape(whole)
        cut = (*shape[:axis], b.derived([shape[axis], Dim(-1)]), *shape[axis + 1 :])
        return [whole, b.slice(b.apply("tanh", whole), [int(a == axis) for a in range(3)], cut)]

    made(build, S=sizes[0], T=sizes[1])


def test_pieces_of_one_form_are_printed_once() -> None:
    def build(b: BodyBuilder) -> list[int]:
        pieces = [b.apply("exp", b.input(f32("B", 16))) for _ in range(12)]
        return [b.concat(pieces, 1)]

    _, kernel = made(build, B=3)
    assert len(kernel.nests) > 1
    scheduled, schedules = schedule(kernel, TARGET)
    assert render(scheduled, schedules).text.count("struct Call") == 1
