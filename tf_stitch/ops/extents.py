"""Extents: what small integer tensors hold when they are computed from shapes, as dims.

    x: f32[B, 8]      n = tf.shape(x)[0]     ->     (B,)
                      [n * 4, -1]            ->     (4*B, -1)

A tensor of dims is a NumPy array of Dim objects, so that NumPy itself slices, stacks and gathers it.
`Dim(-1)` stands for a constant -1; negative dims are never multiplied by symbols.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tf_stitch.errors import Unsupported
from tf_stitch.ir.types import ONE, Dim, DType, product
from tf_stitch.ops.slicing import Index, New, Whole, entries_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tf_stitch.ir.graph import Node
    from tf_stitch.ir.types import TensorType

LARGEST = 64  # elements: more is no shape
IDLE = Dim.symbol("idle")
"""Among axes: perhaps others besides, over one element each. The axis of B is one that TensorFlow names if B is 1."""
DimArray = np.ndarray[Any, np.dtype[np.object_]]


def extents_of(
    node: Node,
    types: Sequence[TensorType],
    constants: Sequence[np.ndarray[Any, Any] | None],
    extents: Sequence[tuple[Dim, ...] | None],
) -> tuple[Dim, ...] | None:
    """The dims that the node's (first) output holds, flat; None where they are not known.

    types, constants, extents: of the node's operands.
    """
    if node.op in _OF_TYPES:
        return _OF_TYPES[node.op](types)
    if node.op not in _OF_DIMS or not node.types or node.types[0].dtype not in (DType.I32, DType.I64):
        return None
    operands = [_dims(t, c, e) for t, c, e in zip(types, constants, extents, strict=True)]
    try:
        result = _OF_DIMS[node.op](node, operands)
    except (_NotKnown, Unsupported, IndexError, ValueError):  # the last two: NumPy of a node that cannot run
        return None
    return tuple(result.ravel()) if result.size <= LARGEST else None


def extents_of_outputs(
    node: Node,
    types: Sequence[TensorType],
    constants: Sequence[np.ndarray[Any, Any] | None],
    extents: Sequence[tuple[Dim, ...] | None],
) -> tuple[tuple[Dim, ...] | None, ...]:
    """The dims that each output holds: `extents_of` for ops of several outputs, too (ShapeN, Unpack, ...).

    BroadcastGradientArgs names the axes over which the gradient of each operand of a broadcast is summed: IDLE is among
    them where some may be besides. ConcatOffset says where each operand of a concatenation begins in its result.
    """
    match node.op:
        case "ShapeN":
            return tuple(t.shape for t in types)
        case "Unpack":
            operand = _dims(types[0], constants[0], extents[0])
            if operand is None or operand.ndim != 1:
                return (None,) * int(node.attributes.get("num", 1))
            return tuple((dim,) for dim in operand)
        case "BroadcastGradientArgs":
            return _broadcast_axes(*(_dims(t, c, e) for t, c, e in zip(types, constants, extents, strict=True)))
        case "ConcatOffset":
            return _offsets(*(_dims(t, c, e) for t, c, e in zip(types, constants, extents, strict=True)))
        case _:
            return (extents_of(node, types, constants, extents),)


class _NotKnown(Exception):
    """The result is no tensor of dims."""


# -- tensors of dims ---------------------------------------------------------------------------------------


def _array(dims: Sequence[Dim], shape: Sequence[int]) -> DimArray:
    flat = np.empty(len(dims), dtype=object)
    for index, dim in enumerate(dims):  # not flat[:] = dims, which would look into the dims
        flat[index] = dim
    return np.reshape(flat, tuple(shape))


def _dims(type_: TensorType, constant: np.ndarray[Any, Any] | None, extents: tuple[Dim, ...] | None) -> DimArray | None:
    if constant is not None:
        if constant.dtype.kind not in "iu" or constant.size > LARGEST:
            return None
        return _array([Dim(int(i)) for i in constant.ravel()], constant.shape)
    if extents is None:
        return None
    if type_.shape is None or not all(d.is_static for d in type_.shape):
        return _array(extents, (len(extents),)) if type_.rank in (None, 1) else None
    shape = [d.coefficient for d in type_.shape]
    return _array(extents, shape) if int(np.prod(shape)) == len(extents) else None


def _known(operand: DimArray | None) -> DimArray:
    if operand is None:
        raise _NotKnown
    return operand


def _integers(operand: DimArray | None) -> list[int]:
    """The operand as plain integers, flat."""
    dims = list(_known(operand).ravel())
    if not all(d.is_static for d in dims):
        raise _NotKnown
    return [d.coefficient for d in dims]


def _integer(operand: DimArray | None) -> int:
    (value,) = _integers(operand)
    return value


# -- arithmetic on two dims --------------------------------------------------------------------------------


def dim_sum(a: Dim, b: Dim) -> Dim | None:
    """`a + b` where it is a dim: `2*B + B`, but not `B + 1`."""
    if a.is_static and a.coefficient == 0:
        return b
    if b.is_static and b.coefficient == 0:
        return a
    return Dim(a.coefficient + b.coefficient, a.symbols) if a.symbols == b.symbols else None


def _difference(a: Dim, b: Dim) -> Dim | None:
    left = dim_sum(a, Dim(-b.coefficient, b.symbols))
    if left is None or left.is_static:
        return left
    if left.coefficient == 0:
        return Dim(0)
    return left if left.coefficient > 0 else None


def _times(a: Dim, b: Dim) -> Dim | None:
    if a.is_static and b.is_static:
        return Dim(a.coefficient * b.coefficient)
    if 0 in (a.coefficient, b.coefficient):
        return Dim(0)
    return a * b if a.coefficient > 0 and b.coefficient > 0 else None


def _quotient(a: Dim, b: Dim) -> Dim | None:
    """Floor division: of integers, or exact. `B / B` is 1 but for B = 0, when the program fails anyway."""
    if a.is_static and b.is_static:
        return Dim(a.coefficient // b.coefficient) if b.coefficient else None
    return a.divided_by(b) if b.coefficient > 0 else None


def _remainder(a: Dim, b: Dim) -> Dim | None:
    if a.is_static and b.is_static:
        return Dim(a.coefficient % b.coefficient) if b.coefficient else None
    return Dim(0) if b.coefficient > 0 and a.divided_by(b) is not None else None


def _greater(a: Dim, b: Dim) -> Dim | None:
    if a.symbols == b.symbols:
        return max(a, b)
    for small, large in ((a, b), (b, a)):
        if small.is_static and small.coefficient <= 0:  # a dim is never negative
            return large
    return None


def _smaller(a: Dim, b: Dim) -> Dim | None:
    return min(a, b) if a.symbols == b.symbols else None


def _broadcast(a: Dim, b: Dim) -> Dim | None:
    """The extent of a broadcast. A symbol beside 5 is 1 or 5; beside another symbol nothing is known."""
    if a == b or b.is_one:
        return a
    if a.is_one:
        return b
    return a if a.is_static and not b.is_static else b if b.is_static and not a.is_static else None


def _broadcast_axes(a: DimArray | None, b: DimArray | None) -> tuple[tuple[Dim, ...] | None, ...]:
    """The axes along which `a`, and those along which `b`, has an extent of 1 that the other repeats."""
    if a is None or b is None or a.ndim != 1 or b.ndim != 1:
        return None, None
    if list(a) == list(b):
        return (), ()
    rank = max(len(a), len(b))
    pairs = list(zip([ONE] * (rank - len(a)) + list(a), [ONE] * (rank - len(b)) + list(b), strict=True))

    def repeated(pairs: Sequence[tuple[Dim, Dim]]) -> tuple[Dim, ...] | None:
        if not all(mine == theirs or mine.is_static or theirs.is_one for mine, theirs in pairs):
            return None  # B beside 5, or beside S: it may be 1
        idle = () if all(mine.is_static for mine, _ in pairs) else (IDLE,)
        return (*(Dim(axis) for axis, (mine, _) in enumerate(pairs) if mine.is_one), *idle)

    return repeated(pairs), repeated([(theirs, mine) for mine, theirs in pairs])


def _offsets(axis: DimArray | None, *shapes: DimArray | None) -> tuple[tuple[Dim, ...] | None, ...]:
    """A sum of unknown dims is no dim: behind the first operand that has one, nothing is known."""
    found: list[tuple[Dim, ...] | None] = [None] * len(shapes)
    before = 0
    for index, shape in enumerate(shapes):
        if axis is None or axis.size != 1 or shape is None or shape.ndim != 1:
            break
        (at,), dims = _integers(axis), [*map(_dim, shape)]
        if not -len(dims) <= at < len(dims):
            break
        found[index] = tuple(Dim(before if i == at % len(dims) else 0) for i in range(len(dims)))
        if not dims[at].is_static:
            break
        before += dims[at].coefficient
    return tuple(found)


def _dim(value: object) -> Dim:
    assert isinstance(value, Dim)
    return value


def _pairwise(
    function: Callable[[Dim, Dim], Dim | None],
) -> Callable[[Node, list[DimArray | None]], DimArray]:
    def rule(_: Node, operands: list[DimArray | None]) -> DimArray:
        left, right = np.broadcast_arrays(*(_known(o) for o in operands))
        results = [function(a, b) for a, b in zip(left.ravel(), right.ravel(), strict=True)]
        return _array([r for r in results if r is not None], left.shape) if None not in results else _unknown()

    return rule


def _unknown() -> DimArray:
    raise _NotKnown


# -- rules -------------------------------------------------------------------------------------------------


def _same(_: Node, operands: list[DimArray | None]) -> DimArray:
    return _known(operands[0])


def _flat(node: Node, operands: list[DimArray | None]) -> DimArray:
    """Reshape, Squeeze, ExpandDims: the elements in the node's own shape, where that is known."""
    value = _known(operands[0])
    shape = node.types[0].shape
    if shape is None or not all(d.is_static for d in shape):
        return value.ravel()
    return np.reshape(value, [d.coefficient for d in shape])


def _strided_slice(node: Node, operands: list[DimArray | None]) -> DimArray:
    value, steps = _known(operands[0]), _integers(operands[3])

    def bound(operand: int, position: int) -> int:
        return _integer(_known(operands[operand]).ravel()[position : position + 1])

    selectors: list[Any] = []
    for entry in entries_of(value.ndim, len(steps), node.attributes):
        match entry:
            case New():
                selectors.append(np.newaxis)
            case Whole():
                selectors.append(slice(None))
            case Index(position):
                selectors.append(bound(1, position))
            case _:
                begin = None if entry.begin_masked else bound(1, entry.position)
                end = None if entry.end_masked else bound(2, entry.position)
                selectors.append(slice(begin, end, steps[entry.position]))
    return _picked(value[tuple(selectors)])


def _slice(_: Node, operands: list[DimArray | None]) -> DimArray:
    value, begins, sizes = _known(operands[0]), _integers(operands[1]), _integers(operands[2])
    return value[tuple(slice(b, None if s == -1 else b + s) for b, s in zip(begins, sizes, strict=True))]


def _gather(node: Node, operands: list[DimArray | None]) -> DimArray:
    value, indices = _known(operands[0]), _known(operands[1])
    axis = _integer(operands[2]) if len(operands) > 2 else 0
    picks = _integers(indices)
    if node.attributes.get("batch_dims", 0) or min(picks, default=0) < 0:
        raise _NotKnown
    return _picked(np.take(value, np.reshape(np.array(picks, np.int64), indices.shape), axis=axis))


def _picked(result: Any) -> DimArray:
    """NumPy gives an element itself where the result has no axes."""
    return _array([result], ()) if isinstance(result, Dim) else result


def _pack(node: Node, operands: list[DimArray | None]) -> DimArray:
    return np.stack([_known(o) for o in operands], axis=int(node.attributes.get("axis", 0)))


def _transpose(_: Node, operands: list[DimArray | None]) -> DimArray:
    return np.transpose(_known(operands[0]), _integers(operands[1]))


def _concat(_: Node, operands: list[DimArray | None]) -> DimArray:
    return np.concatenate([_known(o) for o in operands[:-1]], axis=_integer(operands[-1]))


def _prod(node: Node, operands: list[DimArray | None]) -> DimArray:
    return _folded(node, operands, _times, ONE)


def _sum(node: Node, operands: list[DimArray | None]) -> DimArray:
    return _folded(node, operands, dim_sum, Dim(0))


def _folded(
    node: Node, operands: list[DimArray | None], function: Callable[[Dim, Dim], Dim | None], first: Dim
) -> DimArray:
    """A reduction of a vector to a scalar."""
    value = _known(operands[0])
    if value.ndim > 1 or (value.ndim == 1 and [a % 1 for a in _integers(operands[1])] != [0]):
        raise _NotKnown
    result = first
    for dim in value.ravel():
        folded = function(result, dim)
        if folded is None:
            raise _NotKnown
        result = folded
    return _array([result], (1,) if node.attributes.get("keep_dims", False) and value.ndim else ())


def _range(_: Node, operands: list[DimArray | None]) -> DimArray:
    numbers = range(*(_integer(o) for o in operands))
    if len(numbers) > LARGEST:
        raise _NotKnown
    return _array([Dim(i) for i in numbers], (len(numbers),))


def _filled(value: int) -> Callable[[Node, list[DimArray | None]], DimArray]:
    """ZerosLike, OnesLike."""

    def rule(_: Node, operands: list[DimArray | None]) -> DimArray:
        like = _known(operands[0])
        return _array([Dim(value)] * like.size, like.shape)

    return rule


def _dynamic_stitch(_: Node, operands: list[DimArray | None]) -> DimArray:
    """Pieces put where their indices say, later ones over earlier ones: a shape with ones for the axes reduced."""
    half = len(operands) // 2
    found: dict[int, Dim] = {}
    for indices, piece in zip(operands[:half], operands[half:], strict=True):
        places, dims = _integers(indices), _known(piece)
        if _known(indices).shape != dims.shape:
            raise _NotKnown
        found.update(zip(places, dims.ravel(), strict=True))
    return _array([found[i] for i in range(len(found))], (len(found),)) if _is_whole(found) else _unknown()


def _is_whole(found: Mapping[int, Dim]) -> bool:
    return sorted(found) == list(range(len(found)))


def _inverse(_: Node, operands: list[DimArray | None]) -> DimArray:
    permutation = _integers(operands[0])
    return _array([Dim(permutation.index(i)) for i in range(len(permutation))], (len(permutation),))


def _broadcast_shapes(_: Node, operands: list[DimArray | None]) -> DimArray:
    a, b = list(_known(operands[0])), list(_known(operands[1]))
    rank = max(len(a), len(b))
    dims = [_broadcast(x, y) for x, y in zip([ONE] * (rank - len(a)) + a, [ONE] * (rank - len(b)) + b, strict=True)]
    return _array([d for d in dims if d is not None], (rank,)) if None not in dims else _unknown()


def _fill(_: Node, operands: list[DimArray | None]) -> DimArray:
    shape, value = _integers(operands[0]), _known(operands[1])
    count = int(np.prod(shape, initial=1))
    if count > LARGEST:
        raise _NotKnown
    return _array([value.ravel()[0]] * count, shape)


def _shape(types: Sequence[TensorType]) -> tuple[Dim, ...] | None:
    return types[0].shape


def _rank(types: Sequence[TensorType]) -> tuple[Dim, ...] | None:
    return None if types[0].rank is None else (Dim(types[0].rank),)


def _size(types: Sequence[TensorType]) -> tuple[Dim, ...] | None:
    return None if types[0].shape is None else (product(types[0].shape),)


_OF_TYPES: dict[str, Callable[[Sequence[TensorType]], tuple[Dim, ...] | None]] = {
    "Shape": _shape,
    "ShapeN": _shape,  # of its first output
    "Rank": _rank,
    "Size": _size,
}
_OF_DIMS: dict[str, Callable[[Node, list[DimArray | None]], DimArray]] = {
    "Identity": _same,
    "StopGradient": _same,
    "Cast": _same,
    "Reshape": _flat,
    "Squeeze": _flat,
    "ExpandDims": _flat,
    "StridedSlice": _strided_slice,
    "Slice": _slice,
    "Gather": _gather,
    "GatherV2": _gather,
    "Pack": _pack,
    "Transpose": _transpose,
    "ConcatV2": _concat,
    "Prod": _prod,
    "Sum": _sum,
    "Range": _range,
    "Fill": _fill,
    "ZerosLike": _filled(0),
    "OnesLike": _filled(1),
    "DynamicStitch": _dynamic_stitch,
    "InvertPermutation": _inverse,
    "BroadcastArgs": _broadcast_shapes,
    "Add": _pairwise(dim_sum),
    "AddV2": _pairwise(dim_sum),
    "Sub": _pairwise(_difference),
    "Mul": _pairwise(_times),
    "FloorDiv": _pairwise(_quotient),
    "FloorMod": _pairwise(_remainder),
    "Maximum": _pairwise(_greater),
    "Minimum": _pairwise(_smaller),
}
