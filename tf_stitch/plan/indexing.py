"""Index maps: where a value is read, in terms of the coordinates of a loop nest.

    loop axes  b < B, s < S, h < 12, d < 64             an output of shape [B, S, 768]
    index of its last axis: h*64 + d                    Index({h: 64, d: 1})

A map holds one Index per axis of the value. Movement ops never move anything: they turn the map of their
result into the map of their operand (`operand_map`). A reshape linearises the index and splits it again; where a
loop axis lies across the boundary of a split (`s` in 0..B*S, to be split in B and S), `Straddle` says how to cut
the axis, and the planner starts over with the two parts.

Invariant: for all coordinates in range, an index is within its axis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tf_stitch.errors import Reason, Unsupported
from tf_stitch.ir.body import Broadcast, Elementwise, Gather, Op, Reshape, Slice, Transpose, Windows
from tf_stitch.ir.types import ONE, Dim, Shape


@dataclass(frozen=True, slots=True)
class Axis:
    """A loop axis. `identity` tells axes apart: two axes of one extent are two axes."""

    identity: int
    extent: Dim


@dataclass(frozen=True, slots=True)
class Index:
    """The sum of `coordinate * stride` over `terms` (axis identity, stride; sorted) plus `offset`."""

    terms: tuple[tuple[int, Dim], ...] = ()
    offset: int = 0

    def scaled(self, factor: int) -> Index:
        return Index(tuple((a, s * Dim(factor)) for a, s in self.terms), self.offset * factor)

    def plus(self, other: Index) -> Index:
        """Their sum.

        Raises:
          Unsupported: where one axis is in both.
        """
        if {a for a, _ in self.terms} & {a for a, _ in other.terms}:
            raise Unsupported(Reason.SCHEME, "a diagonal of windows")
        return Index(tuple(sorted((*self.terms, *other.terms))), self.offset + other.offset)


ZERO = Index()
IndexMap = tuple[Index, ...]


class Straddle(Exception):
    """Axis `axis` must be cut in two, the inner part being `inner` long."""

    def __init__(self, axis: int, inner: Dim) -> None:
        super().__init__(f"axis {axis} must be cut at {inner}")
        self.axis = axis
        self.inner = inner


def axes_of(index_map: IndexMap) -> frozenset[int]:
    return frozenset(axis for index in index_map for axis, _ in index.terms)


def row_major(axes: Sequence[Axis]) -> Index:
    """The linear index of a loop nest, first axis outermost."""
    terms: list[tuple[int, Dim]] = []
    stride = ONE
    for axis in reversed(axes):
        terms.append((axis.identity, stride))
        stride = stride * axis.extent
    return Index(tuple(sorted(terms)))


def linearise(index_map: IndexMap, shape: Shape) -> Index:
    """The row-major linear index of a map over a value of this shape."""
    strides: dict[int, Dim] = {}
    scale = ONE
    offset = 0
    for index, extent in zip(reversed(index_map), reversed(shape), strict=True):
        if index.offset and not scale.is_static:
            raise Unsupported(Reason.SCHEME, "a slice under a reshape of unknown dims")
        offset += index.offset * (scale.coefficient if scale.is_static else 0)
        for axis, stride in index.terms:
            if axis in strides:
                raise Unsupported(Reason.SCHEME, "a diagonal under a reshape")
            strides[axis] = stride * scale
        scale = scale * extent
    return Index(tuple(sorted(strides.items())), offset)


def delinearise(linear: Index, shape: Shape, extents: Mapping[int, Dim]) -> IndexMap:
    """The map over `shape` whose linear index is `linear`.

    Raises:
      Straddle: where an axis has to be cut first.
      Unsupported: where no affine index does it.
    """
    if linear.offset:
        raise Unsupported(Reason.SCHEME, "a reshape of a slice")
    rest = list(linear.terms)
    result: list[Index] = []
    for position in range(len(shape) - 1, -1, -1):
        extent = shape[position]
        if position == 0:
            result.append(Index(tuple(sorted(rest))))
            break
        low: list[tuple[int, Dim]] = []
        high: list[tuple[int, Dim]] = []
        for axis, stride in rest:
            quotient = stride.divided_by(extent)
            if quotient is not None:
                high.append((axis, quotient))
                continue
            span = stride * extents[axis]
            if extent.divided_by(span) is not None:
                low.append((axis, stride))
                continue
            inner = extent.divided_by(stride)
            if inner is not None and extents[axis].divided_by(inner) is not None:
                raise Straddle(axis, inner)
            raise Unsupported(Reason.SCHEME, f"a reshape that cuts {span} at {extent}")
        result.append(Index(tuple(sorted(low))))
        rest = high
    return tuple(reversed(result))


def operand_map(
    op: Op, index_map: IndexMap, shape: Shape, operand_shape: Shape, extents: Mapping[int, Dim]
) -> IndexMap:
    """The map at which an operand is read when the step's result is read at `index_map`.

    shape, operand_shape: of the result and of the operand. Reductions are the planner's own matter.
    """
    match op:
        case Elementwise() | Gather():  # of a Gather, what its indices are read at
            return index_map
        case Broadcast():
            return tuple(ZERO if d.is_one else i for i, d in zip(index_map, operand_shape, strict=True))
        case Transpose(permutation):
            result = [ZERO] * len(permutation)
            for position, source in enumerate(permutation):
                result[source] = index_map[position]
            return tuple(result)
        case Reshape():
            return _reshape(index_map, shape, operand_shape, extents)
        case Slice(begin, step):
            return tuple(
                Index(scaled.terms, scaled.offset + b)
                for b, scaled in zip(begin, (i.scaled(s) for i, s in zip(index_map, step, strict=True)), strict=True)
            )
        case Windows(axis, step, dilation):
            place = index_map[axis].scaled(step).plus(index_map[axis + 1].scaled(dilation))
            return (*index_map[:axis], place, *index_map[axis + 2 :])
        case _:
            raise AssertionError(f"{op} has no operand map")


def result_map(op: Op, index_map: IndexMap, operand_shape: Shape, shape: Shape, extents: Mapping[int, Dim]) -> IndexMap:
    """The inverse of `operand_map` for the ops that have one.

    Raises:
      Unsupported: for the others.
    """
    match op:
        case Elementwise():
            return index_map
        case Transpose(permutation):
            return tuple(index_map[source] for source in permutation)
        case Reshape():
            return _reshape(index_map, operand_shape, shape, extents)
        case _:
            raise Unsupported(Reason.SCHEME, f"{type(op).__name__} has no inverse")


def _reshape(index_map: IndexMap, shape: Shape, target: Shape, extents: Mapping[int, Dim]) -> IndexMap:
    """Most reshapes add or drop dims of 1: then the indices are handed over as they are, offsets and all."""
    kept = [(i, d) for i, d in zip(index_map, shape, strict=True) if not d.is_one]
    wanted = [d for d in target if not d.is_one]
    if [d for _, d in kept] == wanted:
        indices = iter([i for i, _ in kept])
        return tuple(ZERO if d.is_one else next(indices) for d in target)
    return delinearise(linearise(index_map, shape), target, extents)
