"""Padding: a tensor with something around it, as concatenations along each axis.

Nothing is copied for it where the middle is computed in the same kernel: it is stored in its place (plan/pieces.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tf_stitch.errors import Reason
from tf_stitch.ir.types import ALL, Dim
from tf_stitch.ops.opdef import Kind, OpDef, Operands, define_op

if TYPE_CHECKING:
    from tf_stitch.ir.body import BodyBuilder

_NONE = Dim(0)
Around = Sequence[tuple[Dim | int, Dim | int]]  # elements before and behind, for each axis


def padded(
    b: BodyBuilder, value: int, around: Around, fill: int | None = None, lengths: Mapping[int, Dim] | None = None
) -> int:
    """`value` with `fill`, a scalar, around it: zero where none is given.

    lengths: what comes out along an axis, where a sum does not say it.
    """
    fill = b.constant(0, b.dtype(value)) if fill is None else fill
    for axis, given in enumerate(around):
        shape, ends = b.shape(value), [n if isinstance(n, Dim) else Dim(n) for n in given]
        before, behind = (b.broadcast(fill, (*shape[:axis], n, *shape[axis + 1 :])) for n in ends)
        pieces = [*([] if ends[0] == _NONE else [before]), value, *([] if ends[1] == _NONE else [behind])]
        value = b.concat(pieces, axis, (lengths or {}).get(axis))
    return value


def _around(b: BodyBuilder, x: Operands) -> list[tuple[int, int]]:
    """Of each axis, what operand 1 says."""
    ends = x.integers(1)
    found = list(zip(ends[::2], ends[1::2], strict=True))
    if len(found) != len(b.shape(x[0])) or any(n < 0 for n in ends):
        raise x.unsupported("paddings that do not fit the operand")
    return found


def _pad(b: BodyBuilder, x: Operands) -> int:
    return padded(b, x[0], _around(b, x), x[2] if len(x) > 2 else None)


def _mirror_pad(b: BodyBuilder, x: Operands) -> int:
    """What is next to the edge, turned around; with the edge itself (SYMMETRIC) or without (REFLECT)."""
    value, skipped = x[0], 0 if x.attribute("mode") == "SYMMETRIC" else 1
    for axis, (before, behind) in enumerate(_around(b, x)):
        if not (before or behind):
            continue
        shape = b.shape(value)
        if not shape[axis].is_static:
            raise x.unsupported(f"{shape[axis]} has to be known", Reason.UNKNOWN_DIM)
        length = shape[axis].coefficient
        if max(before, behind) > length - skipped:
            raise x.unsupported("more than there is to mirror")

        def mirrored(begin: int, size: int, value: int = value, axis: int = axis, shape: Sequence[Dim] = shape) -> int:
            begins, steps = [0] * len(shape), [1] * len(shape)
            begins[axis], steps[axis] = begin, -1
            return b.slice(value, begins, (*shape[:axis], Dim(size), *shape[axis + 1 :]), steps)

        first = [mirrored(before - 1 + skipped, before)] if before else []
        last = [mirrored(length - 1 - skipped, behind)] if behind else []
        value = b.concat([*first, value, *last], axis)
    return value


define_op(
    OpDef(("Pad", "PadV2"), Kind.MOVEMENT, _pad, static=(1,), gathers=True, dtypes=ALL),
    OpDef(
        ("MirrorPad",),
        Kind.MOVEMENT,
        _mirror_pad,
        static=(1,),
        gathers=True,
        samples=({"mode": "REFLECT"}, {"mode": "SYMMETRIC"}),
        dtypes=ALL,
        notes="along dims that are known",
    ),
)
