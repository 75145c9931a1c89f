"""A softmax, lowered; and kernels made of it that no lowering may produce."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tf_stitch.ir.body import BodyBuilder
from tf_stitch.ir.types import Dim, DType, TensorType, shape_of
from tf_stitch.lower.common import lower
from tf_stitch.lower.kernel import Kernel, Load, Place, Statement, Store, Sweep
from tf_stitch.ops import FUNCTIONS, REDUCERS
from tf_stitch.plan.groups import plan_groups


def softmax(*dims: int | str | Dim) -> Kernel:
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x = b.input(TensorType(DType.F32, shape_of(*(dims or ("B", "N")))))
    parts = b.apply("exp", b.apply("sub", x, b.reduce("max", x, [-1], keep_dims=True)))
    body = b.finish([b.apply("div", parts, b.reduce("sum", parts, [-1], keep_dims=True))])
    return lower(plan_groups(body), "softmax")


def scaled_rows() -> Kernel:
    """x[B, N] - max over N, and the maxima: a store per element and one per row."""
    b = BodyBuilder(FUNCTIONS, REDUCERS)
    x = b.input(TensorType(DType.F32, shape_of("B", "N")))
    most = b.reduce("max", x, [1], keep_dims=True)
    return lower(plan_groups(b.finish([b.apply("sub", x, most), most])), "scaled_rows")


def with_nest(kernel: Kernel, **changes: Any) -> Kernel:
    return replace(kernel, nests=(replace(kernel.nests[0], **changes), *kernel.nests[1:]))


def with_sweep(kernel: Kernel, number: int, *, row: Any = None, elements: Any = None) -> Kernel:
    """One sweep's statements changed by functions of them."""
    sweeps = list(kernel.nests[0].sweeps)
    sweep = sweeps[number]
    sweeps[number] = Sweep(
        row(sweep.row) if row else sweep.row, elements(sweep.elements) if elements else sweep.elements
    )
    return with_nest(kernel, sweeps=tuple(sweeps))


def with_access(kernel: Kernel, kind: type[Load | Store], place: Place, **changes: Any) -> Kernel:
    """All loads, or all stores, of a place with another access."""

    def changed(s: Statement) -> Statement:
        if isinstance(s, kind) and s.access.buffer.place is place:
            return replace(s, access=replace(s.access, **changes))
        return s

    nest = kernel.nests[0]
    sweeps = tuple(Sweep(tuple(map(changed, s.row)), tuple(map(changed, s.elements))) for s in nest.sweeps)
    return with_nest(kernel, sweeps=sweeps, finish=tuple(map(changed, nest.finish)))
