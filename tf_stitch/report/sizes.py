"""A kernel is made for more shapes than one: here is what its symbols are in the graph that it was made from.

the kernel's      x: f32[d0, 64*d1]
the graph's       x: f32[?, 768]          {d1: 12}
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tf_stitch.ir.body import Extent
from tf_stitch.ir.symbols import completed
from tf_stitch.lower.kernel import DerivedSymbol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tf_stitch.ir.body import Body, Step
    from tf_stitch.ir.graph import Graph, Value
    from tf_stitch.ir.types import TensorType
    from tf_stitch.lower.kernel import Kernel

Sizes = dict[str, int]


def known_sizes(graph: Graph, kernel: Kernel, inputs: Sequence[Value]) -> Sizes:
    """The symbols of a kernel that the graph has numbers for."""
    sizes: Sizes = {}
    for source in kernel.symbols:
        if isinstance(source, DerivedSymbol):
            sizes = completed(sizes, ((source.symbol, source.derivation),))
            continue
        shape = graph.type_of(inputs[source.input]).shape
        divisor = source.divisor.given(sizes)
        if shape is None or not (shape[source.axis].is_static and divisor.is_static):
            continue
        quotient = shape[source.axis].divided_by(divisor)
        if quotient is not None:
            sizes[source.symbol] = quotient.coefficient
    return sizes


def typed(type_: TensorType, sizes: Mapping[str, int]) -> TensorType:
    """A type with these sizes in."""
    return type_ if type_.shape is None else replace(type_, shape=tuple(d.given(sizes) for d in type_.shape))


def sized(body: Body, sizes: Mapping[str, int]) -> Body:
    """A body with these sizes in; for reading, since one that is to be planned has more to it."""

    def here(step: Step) -> Step:
        op = Extent(step.op.dim.given(sizes)) if isinstance(step.op, Extent) else step.op
        return replace(step, op=op, type=typed(step.type, sizes))

    return replace(body, steps=tuple(map(here, body.steps)))
