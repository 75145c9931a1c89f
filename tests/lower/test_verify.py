"""The verifier of kernels: each rule, broken once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.lower.handmade import scaled_rows, softmax, with_access, with_nest, with_sweep
from tf_stitch.ir.body import BodyBuilder
from tf_stitch.ir.types import ONE, Dim, DType, TensorType, shape_of
from tf_stitch.ir.verify import BrokenInvariant
from tf_stitch.lower.common import lower
from tf_stitch.lower.cpu import Driver, schedule
from tf_stitch.lower.kernel import (
    Accumulate,
    Buffer,
    Compute,
    Guard,
    Kernel,
    Literal,
    Load,
    Place,
    Reduced,
    Store,
    SymbolSource,
)
from tf_stitch.lower.verify import verify_kernel
from tf_stitch.ops import FUNCTIONS, REDUCERS
from tf_stitch.plan.groups import plan_groups
from tf_stitch.plan.target import Target

B, N = Dim.symbol("B"), Dim.symbol("N")


def without(kind: type) -> Callable[[Any], Any]:
    return lambda statements: tuple(s for s in statements if not isinstance(s, kind))


def first(*added: Any) -> Callable[[Any], Any]:
    return lambda statements: (*added, *statements)


def last(*added: Any) -> Callable[[Any], Any]:
    return lambda statements: (*statements, *added)


def changed(kind: type, **changes: Any) -> Callable[[Any], Any]:
    return lambda statements: tuple(replace(s, **changes) if isinstance(s, kind) else s for s in statements)


def backwards(statements: Any) -> Any:
    return statements[::-1]


def again(statements: Any) -> Any:
    return statements + statements[:1]


SCRATCH = Buffer(Place.SCRATCH, 0, "scratch", DType.F32, B * N)


def pieces(*offsets: int) -> Kernel:
    """[B, 2] and [B, 3] as one, the second of which is stored at each of `offsets`."""
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x, y = (b.input(TensorType(DType.F32, shape_of("B", n))) for n in (2, 3))
    kernel = lower(plan_groups(b.finish([b.concat([b.apply("exp", x), b.apply("neg", y)], 1)])), "pieces")
    first, second = kernel.nests
    *rest, store = second.sweeps[0].elements
    assert isinstance(store, Store)
    stores = [replace(store, access=replace(store.access, offset=(Dim(offset),))) for offset in offsets]
    sweep = replace(second.sweeps[0], elements=(*rest, *stores))
    return replace(kernel, nests=(first, replace(second, sweeps=(sweep,))))


def halves() -> Kernel:
    """Both halves of each row of [B, 8], each computed in place."""
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x = b.input(TensorType(DType.F32, shape_of("B", 8)))
    parts = [b.slice(x, (0, at), shape_of("B", 4)) for at in (0, 4)]
    return lower(plan_groups(b.finish([b.concat([b.apply("exp", parts[0]), b.apply("neg", parts[1])], 1)])), "halves")


BROKEN: list[tuple[str, Callable[[], Kernel], str]] = [
    ("use before assignment", lambda: with_sweep(softmax(), 1, elements=backwards), "used after it is assigned"),
    ("assigned twice", lambda: with_sweep(softmax(), 1, elements=again), "assigned once"),
    ("unknown name", lambda: with_sweep(softmax(), 0, elements=changed(Accumulate, value="nobody")), "nobody is used"),
    ("accumulated twice", lambda: with_sweep(softmax(), 0, elements=lambda e: (*e, e[-1])), "accumulated once"),
    ("never accumulated", lambda: with_sweep(softmax(), 0, elements=without(Accumulate)), "in their sweeps"),
    ("in another sweep", lambda: with_nest(softmax(), reductions=tuple(
        replace(r, sweep=1 - r.sweep) for r in softmax().nests[0].reductions)), "is complete|in their sweeps"),
    ("read too early", lambda: with_sweep(softmax(), 0, row=first(Reduced("early", DType.F32, 0))), "is complete"),
    ("no such reduction", lambda: with_sweep(softmax(), 2, row=first(Reduced("none", DType.F32, 9))), "exists"),
    ("another dtype", lambda: with_sweep(softmax(), 2, row=first(Reduced("double", DType.F64, 0))), "dtype of the red"),
    ("a varying scalar", lambda: with_sweep(softmax(), 0, row=first(Load("v", DType.F32, next(
        s.access for s in softmax().nests[0].sweeps[0].elements if isinstance(s, Load))))), "does not vary"),
    ("a store in the head", lambda: with_sweep(softmax(), 2, elements=without(Store), row=last(
        Literal("one", DType.F32, bytes(4)),
        *(replace(s, value="one") for s in softmax().nests[0].sweeps[2].elements if isinstance(s, Store)))),
        "the head of a sweep stores"),
    ("a literal too long", lambda: with_sweep(softmax(), 0, row=first(Literal("one", DType.F32, bytes(8)))), "bytes"),
    ("operands of two dtypes", lambda: with_sweep(softmax(), 0, row=first(
        Literal("one", DType.F32, bytes(4)), Literal("two", DType.F64, bytes(8)),
        Compute("both", DType.F32, "add", ("one", "two")))), "one dtype"),
    ("too few operands", lambda: with_sweep(softmax(), 0, row=first(
        Literal("one", DType.F32, bytes(4)), Compute("both", DType.F32, "add", ("one",)))), "2 operands"),
    ("before the buffer", lambda: with_access(softmax(), Load, Place.INPUT, offset=(Dim(-1),)), "-1 to"),
    ("behind the buffer", lambda: with_access(softmax(), Load, Place.INPUT, offset=(Dim(1),)), "of 1 elements"),
    ("a stride too long", lambda: with_access(softmax(), Load, Place.INPUT, strides=(N, Dim(2))), "elements"),
    ("a stride too few", lambda: with_access(softmax(), Load, Place.INPUT, strides=(ONE,)), "a stride for each axis"),
    ("stored over", lambda: with_access(softmax(), Store, Place.OUTPUT, strides=(ONE, ONE)), "stored once"),
    ("stored twice", lambda: with_sweep(softmax(), 2, elements=lambda e: (*e, e[-1])), "stored once"),
    ("pieces that overlap", lambda: pieces(1), "stored once"),
    ("a piece stored twice", lambda: pieces(2, 2), "stored once"),
    ("a piece that is not stored", pieces, "stored once"),
    ("a piece behind the buffer", lambda: pieces(3), "elements"),
    ("pieces into an input's buffer", lambda: replace(halves(), forwards=((0, 0),)), "not stored in pieces"),
    ("not stored", lambda: with_sweep(softmax(), 2, elements=without(Store)), "all outputs"),
    ("stored to an input", lambda: with_access(softmax(), Store, Place.OUTPUT, buffer=next(
        s.access.buffer for s in softmax().nests[0].sweeps[0].elements if isinstance(s, Load))), "no store goes to"),
    ("read before stored", lambda: with_access(softmax(), Load, Place.INPUT, buffer=SCRATCH), "by an earlier nest"),
    ("another nest's scratch", lambda: with_access(softmax(), Store, Place.OUTPUT, buffer=SCRATCH), "all outputs"),
    ("a tile that is not filled", lambda: with_sweep(softmax(), 1, elements=without(Store)), "filled by an earlier"),
    ("a tile of no use", lambda: with_nest(softmax(), tiles=(
        *softmax().nests[0].tiles, Buffer(Place.TILE, 9, "unused", DType.F32, N))), "every tile is used"),
    ("a tile read elsewhere", lambda: with_access(
        softmax(), Load, Place.TILE, strides=(ONE, Dim(0))), "as it was stored"),
    ("a symbol of nothing", lambda: replace(softmax(), symbols=softmax().symbols[:1]), "symbols"),
    ("a symbol of another dim", lambda: replace(softmax(), symbols=(
        SymbolSource("B", 0, 1, ONE), SymbolSource("N", 0, 0, ONE))), "the rest of the dim"),
    ("no guard", lambda: replace(softmax(4, "N"), guards=()), "is guarded"),
    ("another guard", lambda: replace(softmax(4, "N"), guards=(Guard(0, 0, Dim(5), ""),)), "is guarded"),
    ("an output of another size", lambda: replace(softmax(), outputs=(
        TensorType(DType.F32, shape_of("B", "B")),)), "out is a"),
    ("forwarded to what is read by row", lambda: replace(
        with_access(softmax(), Load, Place.INPUT, strides=(Dim(0), ONE)), forwards=((0, 0),)), "by another row"),
    ("forwarded to what is read later", lambda: replace(scaled_rows(), forwards=((0, 1),)), "of one size"),
]  # fmt: skip


@pytest.mark.parametrize(("kernel", "rule"), [pytest.param(k, r, id=name) for name, k, r in BROKEN])
def test_broken_kernels_are_caught(kernel: Callable[[], Kernel], rule: str) -> None:
    with pytest.raises(BrokenInvariant, match=rule):
        verify_kernel(kernel())


def test_pieces_that_fit_are_sound() -> None:
    verify_kernel(pieces(2))
    verify_kernel(halves())


@pytest.mark.parametrize("kernel", [softmax, scaled_rows])
def test_kernels_as_lowered_are_sound(kernel: Callable[[], Kernel]) -> None:
    verify_kernel(kernel())


def test_broken_schedules_are_caught() -> None:
    kernel, (made,) = schedule(softmax(), Target.baseline("x86-64-v3"))
    verify_kernel(kernel, (made,))
    for changes, rule in (
        ({"lanes": 12}, "powers of two"),
        ({"block": 8200}, "number of vectors"),
        ({"body": "wide"}, "without a tail"),
        ({"driver": Driver.BLOCKS}, "goes by rows"),
        ({"block": 0}, "holds something"),
    ):
        with pytest.raises(BrokenInvariant, match=rule):
            verify_kernel(kernel, (replace(made, **changes),))


def test_a_streaming_store_to_what_is_read_again_is_caught() -> None:
    """Its bytes may still be on their way when another thread reads them."""
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x = b.input(TensorType(DType.F32, shape_of("R", "C")))
    y = b.apply("sub", x, b.reduce("sum", x, [1], keep_dims=True))
    body = b.finish([y, b.reduce("sum", y, [0])])
    kernel, schedules = schedule(lower(plan_groups(body), "centred"), Target.baseline("x86-64-v3"))
    verify_kernel(kernel, schedules)
    with pytest.raises(BrokenInvariant, match="streamed"):
        verify_kernel(kernel, tuple(replace(s, streams=True) for s in schedules))
