"""Ops that move elements and compute nothing: index maps.

Begins, ends and target shapes are constants or extents (dims). Slicing assumes where it cannot know: the
first 128 of an axis of unknown extent `S` are a slice of 128 under the requirement `128 <= S`; where it does
not hold at run time, the fallback runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tf_stitch.errors import Reason
from tf_stitch.ir.types import ALL, INTEGERS, ONE, Dim, product
from tf_stitch.ops.opdef import Kind, OpDef, Operands, axis_of, define_op, same_shape
from tf_stitch.ops.slicing import Index, New, Span, Whole, entries_of, span_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tf_stitch.ir.body import BodyBuilder
    from tf_stitch.ir.types import Shape

UNKNOWN = Dim(-1)

# -- shapes ------------------------------------------------------------------------------------------------


def _reshape(b: BodyBuilder, x: Operands) -> int:
    target = [b.canonical(d) for d in x.dims(1)]
    if UNKNOWN in target:
        rest = product(d for d in target if d != UNKNOWN)
        missing = b.quotient(product(b.shape(x[0])), rest)
        if target.count(UNKNOWN) > 1 or missing is None:
            raise x.unsupported(f"-1 beside {rest} elements of {b.type(x[0])}", Reason.UNKNOWN_DIM)
        target[target.index(UNKNOWN)] = missing
    return b.reshape(x[0], tuple(target))


def _squeeze(b: BodyBuilder, x: Operands) -> int:
    shape = b.shape(x[0])
    axes = {axis_of(int(a), len(shape), "Squeeze") for a in x.attribute("squeeze_dims", ())}
    if not axes:
        if not all(d.is_static for d in shape):
            raise x.unsupported("which dims are 1 is not known", Reason.UNKNOWN_RANK)
        axes = {a for a, d in enumerate(shape) if d.is_one}
    for axis in axes:
        b.join(shape[axis], ONE, "Squeeze")
    return b.reshape(x[0], tuple(d for a, d in enumerate(shape) if a not in axes))


def _expand_dims(b: BodyBuilder, x: Operands) -> int:
    shape = b.shape(x[0])
    axis = axis_of(x.integers(1)[0], len(shape) + 1, "ExpandDims")
    return b.reshape(x[0], (*shape[:axis], ONE, *shape[axis:]))


def _transpose(b: BodyBuilder, x: Operands) -> int:
    permutation = x.integers(1)
    if sorted(permutation) != list(range(len(b.shape(x[0])))):
        raise x.unsupported(f"{permutation} is no permutation of the axes")
    return b.transpose(x[0], permutation)


# -- repetition --------------------------------------------------------------------------------------------


def _broadcast_to(b: BodyBuilder, x: Operands) -> int:
    return b.broadcast(x[0], _checked(x, x.dims(1)))


def _fill(b: BodyBuilder, x: Operands) -> int:
    return b.broadcast(x[1], _checked(x, x.dims(0)))


def _checked(x: Operands, dims: Shape) -> Shape:
    """`dims`, none of them negative: TensorFlow raises for those."""
    if any(d.coefficient < 0 for d in dims):
        raise x.unsupported("a negative dim")
    return dims


def _tile(b: BodyBuilder, x: Operands) -> int:
    shape, multiples = b.shape(x[0]), _checked(x, x.dims(1))
    if len(shape) != len(multiples):
        raise x.unsupported("as many multiples as axes are needed")
    if not all(d.is_one or m.is_one for d, m in zip(shape, multiples, strict=True)):
        raise x.unsupported("repeats more than dims of 1")
    return b.broadcast(x[0], tuple(m if d.is_one else d for d, m in zip(shape, multiples, strict=True)))


def _range(b: BodyBuilder, x: Operands) -> int:
    """Integers: 0, 1, ... up to a dim, or numbers that are all known."""
    dtype = next((d for d in INTEGERS if d.numpy == x.static(2).dtype), None)
    if dtype is None:
        raise x.unsupported("floats", Reason.DTYPE)
    (start,), (limit,), (delta,) = (x.dims(i) for i in range(3))
    if (start, delta) == (Dim(0), ONE) and limit.coefficient >= 0:
        return b.iota(limit, dtype)
    if not (start.is_static and limit.is_static and delta.is_static and delta.coefficient):
        raise x.unsupported("numbers that are not known", Reason.UNKNOWN_DIM)
    count = len(range(start.coefficient, limit.coefficient, delta.coefficient))
    if (limit.coefficient - start.coefficient) * delta.coefficient < 0:
        raise x.unsupported("a range that leads away from its end")
    scaled = b.apply("mul", b.iota(Dim(count), dtype), b.constant(delta.coefficient, dtype))
    return b.apply("add", scaled, b.constant(start.coefficient, dtype))


# -- slices ------------------------------------------------------------------------------------------------


def _strided_slice(b: BodyBuilder, x: Operands) -> int:
    shape = b.shape(x[0])
    steps = x.integers(3)
    looked_up: dict[int, int] = {}  # axis -> the position of its begin, which is not known
    axes = iter(shape)
    begins: list[int] = []
    sizes: list[Dim] = []
    strides: list[int] = []
    result: list[Dim] = []
    for entry in entries_of(len(shape), len(steps), x.node.attributes):
        if isinstance(entry, New):
            result.append(ONE)
            continue
        extent, step = next(axes), 1
        match entry:
            case Whole():
                begin, size = 0, extent
            case Index(position):
                if steps[position] <= 0:
                    raise x.unsupported("an index with a negative stride")
                begin, size = 0, ONE
                if x.values[1] is None:
                    begin = _index(b, x, position, extent)
                else:
                    looked_up[len(begins)] = position
            case Span(position):
                step = steps[position]
                begin, size = _span(b, x, entry, step, extent)
        if not isinstance(entry, Index):
            result.append(size)
        begins.append(begin)
        sizes.append(size)
        strides.append(step)
    value = _looked_up(b, x, looked_up) if looked_up else x[0]
    return b.reshape(b.slice(value, begins, tuple(sizes), strides), tuple(result))


def _looked_up(b: BodyBuilder, x: Operands, positions: Mapping[int, int]) -> int:
    """Operand 0 with one element along some axes: which, operand 1 says at these positions when the kernel runs."""
    shape, (count,) = b.shape(x[0]), b.shape(x[1])
    if not count.is_static:
        raise x.unsupported("begins of unknown number", Reason.UNKNOWN_RANK)
    rank = len(shape)
    at: dict[int, int] = {}
    for axis, position in positions.items():
        b.require_indices(x[1], shape[axis], position, count.coefficient)
        at[axis] = b.reshape(b.slice(x[1], (position,), (ONE,)), (ONE,) * rank)
    along = {a: a for a in range(rank) if a not in at}
    return b.gather(x[0], at, along, tuple(ONE if a in at else d for a, d in enumerate(shape)))


def _bound(x: Operands, operand: int, position: int) -> Dim:
    """Entry `position` of begin (operand 1) or end (operand 2): a constant or an extent."""
    return x.dims(operand)[position]


def _index(b: BodyBuilder, x: Operands, position: int, extent: Dim) -> int:
    """The element that an index selects; it must be there, or TensorFlow raises."""
    begin = _bound(x, 1, position)
    if not begin.is_static:
        raise x.unsupported("an index that is not constant", Reason.UNKNOWN_DIM)
    index = begin.coefficient
    if index < 0:
        if not extent.is_static:
            raise x.unsupported("an index from the end of an axis of unknown extent", Reason.UNKNOWN_DIM)
        index += extent.coefficient
    if index < 0:
        raise x.unsupported("an index out of range")
    b.require(Dim(index + 1), extent, "StridedSlice", or_error=True)
    return index


def _span(b: BodyBuilder, x: Operands, span: Span, step: int, extent: Dim) -> tuple[int, Dim]:
    begin = None if span.begin_masked else _bound(x, 1, span.position)
    end = None if span.end_masked else b.canonical(_bound(x, 2, span.position))
    if step == 0:
        raise x.unsupported("a stride of 0")
    if extent.is_static and all(d is None or d.is_static for d in (begin, end)):
        first, size = span_of(
            None if begin is None else begin.coefficient,
            None if end is None else end.coefficient,
            step,
            extent.coefficient,
        )
        return first, Dim(size)
    first = begin or Dim(0)
    if not first.is_static or first.coefficient < 0 or step < 0:
        raise x.unsupported("a slice from the end of an axis of unknown extent", Reason.UNKNOWN_DIM)
    whole = [extent] if end is None else [extent, end] if end.coefficient < 0 else [end]  # -1 is one before the end
    if end is not None and end.coefficient >= 0:
        b.require(end, extent, "StridedSlice")
    return first.coefficient, b.derived((*whole, Dim(step - 1 - first.coefficient)), step)


def _slice(b: BodyBuilder, x: Operands) -> int:
    sizes = [b.canonical(d) for d in x.dims(2)]
    if x.values[1] is not None:
        return _slice_anywhere(b, x, sizes)
    shape, begins = b.shape(x[0]), x.integers(1)
    if not len(shape) == len(begins) == len(sizes) or min(begins, default=0) < 0:
        raise x.unsupported("begin and size do not fit the operand")
    for axis, (extent, begin) in enumerate(zip(shape, begins, strict=True)):
        if sizes[axis] == UNKNOWN:
            sizes[axis] = b.derived((extent, Dim(-begin)))
            b.require(Dim(begin), extent, "Slice", or_error=True)
        else:
            b.require(b.derived((sizes[axis], Dim(begin))), extent, "Slice", or_error=True)
    return b.slice(x[0], begins, tuple(sizes))


def _slice_anywhere(b: BodyBuilder, x: Operands, sizes: Sequence[Dim]) -> int:
    """A slice whose begins are not known: of axes that are whole, they are 0 or TensorFlow raises."""
    shape = b.shape(x[0])
    if len(shape) != len(sizes):
        raise x.unsupported("begin and size do not fit the operand")
    for axis, (extent, size) in enumerate(zip(shape, sizes, strict=True)):
        if size == extent:
            b.require_indices(x[1], ONE, axis, len(shape))
        elif not size.is_one:
            raise x.unsupported(f"{size} of {extent} elements, from where is not known", Reason.UNKNOWN_DIM)
    picked = {a: a for a, (extent, size) in enumerate(zip(shape, sizes, strict=True)) if size != extent}
    return _looked_up(b, x, picked) if picked else x[0]


def _static(x: Operands, dim: Dim) -> int:
    if not dim.is_static:
        raise x.unsupported(f"{dim} has to be known", Reason.UNKNOWN_DIM)
    return dim.coefficient


def _pieces(b: BodyBuilder, value: int, axis: int, sizes: Sequence[int]) -> list[int]:
    """`value` cut along `axis` into pieces of these sizes, in order."""
    shape = b.shape(value)
    pieces: list[int] = []
    begin = 0
    for size in sizes:
        begins = [begin if a == axis else 0 for a in range(len(shape))]
        pieces.append(b.slice(value, begins, tuple(Dim(size) if a == axis else d for a, d in enumerate(shape))))
        begin += size
    return pieces


def _split(b: BodyBuilder, x: Operands) -> Sequence[int]:
    axis = axis_of(x.integers(0)[0], len(b.shape(x[1])), "Split")
    count, extent = int(x.attribute("num_split", 1)), b.shape(x[1])[axis]
    if count == 1:
        return [x[1]]
    length = _static(x, extent)
    if length % count:
        raise x.unsupported(f"{extent} in {count} equal pieces")
    return _pieces(b, x[1], axis, [length // count] * count)


def _split_v(b: BodyBuilder, x: Operands) -> Sequence[int]:
    sizes, axis = x.integers(1), axis_of(x.integers(2)[0], len(b.shape(x[0])), "SplitV")
    if len(sizes) == 1:
        b.join(b.shape(x[0])[axis], b.shape(x[0])[axis] if sizes[0] == -1 else Dim(sizes[0]), "SplitV")
        return [x[0]]
    length = _static(x, b.shape(x[0])[axis])
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = length - (sum(sizes) + 1)
    if sum(sizes) != length or min(sizes) < 0:
        raise x.unsupported(f"{length} in pieces of {sizes}")
    return _pieces(b, x[0], axis, sizes)


def _unpack(b: BodyBuilder, x: Operands) -> Sequence[int]:
    shape = b.shape(x[0])
    axis = axis_of(int(x.attribute("axis", 0)), len(shape), "Unpack")
    count = int(x.attribute("num", 0))
    b.join(shape[axis], Dim(count), "Unpack")
    rest = tuple(d for a, d in enumerate(shape) if a != axis)
    return [b.reshape(piece, rest) for piece in _pieces(b, x[0], axis, [1] * count)]


def _reverse(b: BodyBuilder, x: Operands) -> int:
    shape = b.shape(x[0])
    axes = [axis_of(a, len(shape), "ReverseV2") for a in x.integers(1)]
    if len(set(axes)) != len(axes):
        raise x.unsupported("an axis given twice")
    lengths = {a: _static(x, shape[a]) for a in axes}
    turned = {a for a, length in lengths.items() if length > 1}
    begins = [lengths[a] - 1 if a in turned else 0 for a in range(len(shape))]
    return b.slice(x[0], begins, shape, [-1 if a in turned else 1 for a in range(len(shape))])


# -- concatenation -----------------------------------------------------------------------------------------


def _concat(b: BodyBuilder, x: Operands) -> int:
    last = len(x) - 1
    values = [x[i] for i in range(last)]
    return b.concat(values, axis_of(x.integers(last)[0], len(b.shape(values[0])), "ConcatV2"))


def _pack(b: BodyBuilder, x: Operands) -> int:
    values = [x[i] for i in range(len(x))]
    same_shape(b, "Pack", *values)
    axis = axis_of(int(x.attribute("axis", 0)), len(b.shape(values[0])) + 1, "Pack")
    shapes = [b.shape(v) for v in values]
    return b.concat([b.reshape(v, (*s[:axis], ONE, *s[axis:])) for v, s in zip(values, shapes, strict=True)], axis)


def _movement(
    names: str,
    expand: Callable[[BodyBuilder, Operands], int | Sequence[int]],
    static: tuple[int, ...] = (),
    notes: str = "",
    places: tuple[int, ...] = (),
    gathers: bool = False,
) -> None:
    op = OpDef(
        tuple(names.split()),
        Kind.MOVEMENT,
        expand,
        static=static,
        gathers=gathers,
        places=places,
        dtypes=ALL,
        notes=notes,
    )
    define_op(op)


_movement("Reshape", _reshape, (1,), "the target is constant (-1 allowed) or computed from shapes")
_movement("Squeeze", _squeeze)
_movement("ExpandDims", _expand_dims, (1,))
_movement("Transpose", _transpose, (1,))
_movement("BroadcastTo", _broadcast_to, (1,))
_movement("Fill", _fill, (0,))
define_op(
    OpDef(
        ("Range",),
        Kind.MOVEMENT,
        _range,
        static=(0, 1, 2),
        dtypes=INTEGERS,
        notes="from 0 up to a dim, or of numbers that are known",
    )
)
_movement("Tile", _tile, (1,), "only where it repeats dims of 1")
_movement(
    "StridedSlice",
    _strided_slice,
    (1, 2, 3),
    "all masks; of an unknown dim `[a:]`, `[:-b]` and, under a guard, `[a:b]`, and `[i]` of an `i` that is positive",
    places=(1,),
)
_movement("Slice", _slice, (1, 2), "begins that are not known are of one element each, or 0", places=(1,))
_movement("Split", _split, (0,), "along a dim that is known")
_movement("SplitV", _split_v, (1, 2), "along a dim that is known")
_movement("Unpack", _unpack)
_movement("ConcatV2", _concat, (-1,), gathers=True)
_movement("Pack", _pack, gathers=True)
_movement("ReverseV2", _reverse, (1,), "along dims that are known")
