"""Short reductions become arithmetic: a sum over an axis of 2 is one addition of two slices.

    %1 = sum %0 over (2) : f32[B, N, 1]   ->   %1 = slice %0 from (0, 0, 0) : f32[B, N, 1]
         (%0 : f32[B, N, 2])                   %2 = slice %0 from (0, 0, 1) : f32[B, N, 1]
                                               %3 = add %1 %2

As a reduction it would use 2 of the 16 lanes of a vector and leave the loop after each pair. As arithmetic its rows
go through the lanes side by side, and it joins the loop nest of its readers.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

from tf_stitch.ir.body import Body, Elementwise, Reduce, Slice, Step
from tf_stitch.ir.types import product

_LONGEST = 8  # from here on a vector of rows takes longer to gather than a row to reduce
_MOST_ROWS = 9  # of which neighbours are reduced side by side: a window of 3 x 3 pixels
_FUNCTIONS = {
    "sum": "add",
    "prod": "mul",
    "max": "maximum",
    "min": "minimum",
    "all": "logical_and",
    "any": "logical_or",
}


def unroll_short_reductions(body: Body) -> Body:
    """The body without its reductions over at most 8 elements, or 9 that lie in other rows than their neighbours."""
    if not any(isinstance(step.op, Reduce) and _is_short(body.steps[step.operands[0]], step.op) for step in body.steps):
        return body
    steps: list[Step] = []
    place: list[int] = []
    for step in body.steps:
        step = replace(step, operands=tuple(place[o] for o in step.operands))
        if isinstance(step.op, Reduce) and _is_short(steps[step.operands[0]], step.op):
            place.append(_unroll(steps, step, step.op))
        else:
            place.append(len(steps))
            steps.append(step)
    return replace(body, steps=tuple(steps), outputs=tuple(place[o] for o in body.outputs))


def _is_short(operand: Step, op: Reduce) -> bool:
    dims = operand.type.dims
    count = product(dims[a] for a in op.axes)
    lies_along_rows = len(dims) - 1 in op.axes or dims[-1].is_one
    longest = _LONGEST if lies_along_rows else _MOST_ROWS
    return op.function in _FUNCTIONS and count.is_static and 1 <= count.coefficient <= longest


def _unroll(steps: list[Step], step: Step, op: Reduce) -> int:
    """Appends the slices of the operand, in order, and what combines them; returns the last."""
    dims = steps[step.operands[0]].type.dims
    function = Elementwise(_FUNCTIONS[op.function])
    total = -1
    for at in itertools.product(*(range(dims[a].coefficient) for a in op.axes)):
        begin = [0] * len(dims)
        for axis, coordinate in zip(op.axes, at, strict=True):
            begin[axis] = coordinate
        steps.append(replace(step, op=Slice(tuple(begin), (1,) * len(dims))))
        piece = len(steps) - 1
        if total >= 0:
            steps.append(replace(step, op=function, operands=(total, piece)))
        total = len(steps) - 1
    return total
