"""Pieces: what a concatenation is stored as.

    z = concat (exp x) y along 1          exp x   at 0 of z, strides (8, 1)        two stores, by whichever groups
    x: f32[B, 3], y: f32[B, 5]            y       at 3 of z, strides (8, 1)

Nothing computes a concatenation. Each of its pieces is stored where it belongs in the output, or in the scratch, that
the whole is kept in; later groups read the whole from there. What only moves a concatenation is stored in its pieces
as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tf_stitch.ir.body import Concat, Reshape, Transpose
from tf_stitch.ir.types import ONE, Dim, Shape, terms_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tf_stitch.ir.body import Body


@dataclass(frozen=True, slots=True)
class Piece:
    """A step, and where in the memory of the whole it lies: a stride for each axis, and the terms of its offset."""

    step: int
    strides: tuple[Dim, ...]
    offset: tuple[Dim, ...]


def memory_strides(shape: Shape) -> tuple[Dim, ...]:
    """Row-major."""
    strides: list[Dim] = []
    stride = ONE
    for dim in reversed(shape):
        strides.append(stride)
        stride = stride * dim
    return tuple(strides[::-1])


def pieces_of(body: Body, whole: int) -> tuple[Piece, ...]:
    """The pieces of a step that is kept in memory, in order: of most steps, itself alone."""
    return tuple(_pieces(body, whole, memory_strides(body.steps[whole].type.dims), ()))


def _pieces(body: Body, index: int, strides: tuple[Dim, ...], offset: tuple[Dim, ...]) -> Iterator[Piece]:
    step = body.steps[index]
    match step.op:
        case Concat(axis):
            for operand in step.operands:
                yield from _pieces(body, operand, strides, offset)
                offset = terms_of((*offset, body.steps[operand].type.dims[axis] * strides[axis]))
        case Transpose(permutation) if has_pieces(body, index):
            turned = tuple(strides[permutation.index(axis)] for axis in range(len(permutation)))
            yield from _pieces(body, step.operands[0], turned, offset)
        case Reshape() if has_pieces(body, index) and strides == memory_strides(step.type.dims):
            yield from _pieces(body, step.operands[0], memory_strides(body.steps[step.operands[0]].type.dims), offset)
        case _:
            yield Piece(index, strides, offset)


def has_pieces(body: Body, index: int) -> bool:
    """Whether a step only moves a concatenation, or is one."""
    while isinstance(body.steps[index].op, Reshape | Transpose):
        index = body.steps[index].operands[0]
    return isinstance(body.steps[index].op, Concat)


def stored_steps(body: Body, wholes: Iterable[int]) -> dict[int, None]:
    """The steps that are stored so that these are kept in memory, in order."""
    return dict.fromkeys(piece.step for whole in wholes for piece in pieces_of(body, whole))


def read_steps(body: Body) -> frozenset[int]:
    """The steps that something computes with: more than to say where they are stored."""
    found: set[int] = set()
    seen: set[int] = set()
    stack = [*stored_steps(body, body.outputs)]
    while stack:
        index = stack.pop()
        if index in seen:
            continue
        seen.add(index)
        step = body.steps[index]
        if isinstance(step.op, Concat):
            stack.extend(stored_steps(body, [index]))
        else:
            found.update(step.operands)
            stack.extend(step.operands)
    return frozenset(found)
