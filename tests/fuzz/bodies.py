"""Random bodies: a Body that the builder accepts, with inputs to run it on.

Inputs hold small multiples of 1/8, and each step knows how many bits its values may need: as long as these fit the
dtype, sums are exact in any order. What jumps (comparisons, casts to integers) is applied to exact values only, so
that two right implementations never differ by more than rounding.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tf_stitch.errors import Unsupported
from tf_stitch.ir.body import Body, BodyBuilder
from tf_stitch.ir.printer import print_body
from tf_stitch.ir.symbols import completed, sources_of
from tf_stitch.ir.types import ONE, Dim, DType, Shape, TensorType, product
from tf_stitch.ops import FUNCTIONS, REDUCERS
from tf_stitch.ops.padding import padded
from tf_stitch.ops.products import PRODUCTS, matrix_product

Array = np.ndarray[Any, np.dtype[Any]]
Draw = Any

SYMBOLS = ("A", "B", "C", "D")
STATIC = (1, 2, 3, 4, 6, 8, 16, 17)
SIZES = (0, 1, 2, 3, 5, 16, 33)
LARGEST = 20_000  # elements of one value
MANTISSA = {
    DType.F16: 11, DType.BF16: 8, DType.F32: 24, DType.F64: 53, DType.I32: 31, DType.I64: 63, DType.BOOL: 1,
}  # fmt: skip
INEXACT = 1000

KEEPING = ("neg", "abs", "relu", "sign")  # one operand, no more bits
SMOOTH = ("tanh", "sigmoid", "exp", "softsign", "sqrt", "square", "erf")
ADDING = ("add", "sub", "maximum", "minimum")
COMPARING = ("less", "greater_equal", "equal", "not_equal")
LOGICAL = ("logical_and", "logical_or", "logical_xor")


@dataclass
class Program:
    """A body under construction. `bits` of each value: what it may need to be exact."""

    builder: BodyBuilder = field(default_factory=lambda: BodyBuilder(FUNCTIONS, REDUCERS))
    values: list[int] = field(default_factory=list[int])
    bits: dict[int, int] = field(default_factory=dict[int, int])

    def add(self, value: int, bits: int) -> int:
        if bits > MANTISSA[self.builder.dtype(value)]:
            bits = INEXACT
        self.bits[value] = max(bits, self.bits.get(value, 0))
        if value not in self.values:
            self.values.append(value)
        return value

    def exact(self, value: int) -> bool:
        return self.bits[value] < INEXACT


@dataclass(frozen=True)
class Case:
    """A body, the values of its symbols and arrays for its inputs."""

    body: Body
    symbols: dict[str, int]
    inputs: list[Array | None]

    def __repr__(self) -> str:
        return f"\n{print_body(self.body)}with {self.symbols}, {self.inputs}"


@st.composite
def cases(draw: Draw, steps: int = 14) -> Case:
    """A random body of about `steps` builder calls."""
    program = Program()
    rank = draw(st.integers(1, 4))
    dims = [draw(_dims()) for _ in range(rank)]
    dtype = draw(
        st.sampled_from((DType.F32,) * 5 + (DType.F64, DType.F16, DType.BF16, DType.I32, DType.I64, DType.BOOL))
    )
    _input(program, TensorType(dtype, tuple(dims)))
    for _ in range(draw(st.integers(2, steps))):
        grow = draw(st.sampled_from(_GROWTHS))
        try:
            grow(draw, program)
        except Unsupported:
            continue  # the builder may refuse
    count = draw(st.integers(1, 3))
    recent = program.values[::-1]
    outputs = [recent[0], *(draw(st.sampled_from(recent)) for _ in range(count - 1))]
    if program.builder.type(outputs[0]).size.coefficient > LARGEST:
        outputs = [program.values[0]]
    try:
        body = program.builder.finish(outputs)
    except Unsupported:  # a requirement that joined dims made false
        body = program.builder.finish([program.values[0]])
    dims = [d for t in body.inputs if t is not None for d in t.dims]
    names = sorted(sources_of(dims, body.derivations))
    symbols = {name: draw(st.sampled_from(SIZES)) for name in names}
    while symbols and largest(body, symbols) > LARGEST:
        symbols[max(symbols, key=symbols.__getitem__)] //= 2
    seed = draw(st.integers(0, 99))
    return Case(body, symbols, inputs_of(body, symbols, seed))


def largest(body: Body, symbols: dict[str, int]) -> int:
    """Elements of the largest value, inputs that nothing reads included."""
    types = [s.type for s in body.steps] + [t for t in body.inputs if t is not None]
    symbols = completed(symbols, body.derivations)
    return max(t.size.evaluate(symbols) for t in types)


def inputs_of(body: Body, symbols: dict[str, int], seed: int) -> list[Array | None]:
    """Small multiples of 1/8, some of them negative; indices that are in range."""
    random = np.random.default_rng(seed)
    symbols = completed(symbols, body.derivations)
    found: list[Array | None] = []
    below = {w.input: w.below.evaluate(symbols) for w in body.indices}
    for number, type_ in enumerate(body.inputs):
        if type_ is None:
            found.append(None)
            continue
        numbers = random.integers(-24, 25, tuple(d.evaluate(symbols) for d in type_.dims))
        if below.get(number):
            numbers %= below[number]
        match type_.dtype:
            case DType.BOOL:
                found.append(numbers > 0)
            case DType.I32 | DType.I64:
                found.append(numbers.astype(type_.dtype.numpy))
            case _:
                found.append((numbers / 8).astype(type_.dtype.numpy))
    return found


@st.composite
def _dims(draw: Draw) -> Dim:
    """A static dim, a symbol, or a multiple of one."""
    kind = draw(st.sampled_from(("static", "static", "symbol", "symbol", "symbol", "multiple")))
    if kind == "static":
        return Dim(draw(st.sampled_from(STATIC)))
    symbol = draw(st.sampled_from(SYMBOLS))
    return Dim(1 if kind == "symbol" else draw(st.sampled_from((2, 4))), (symbol,))


def _input(program: Program, type_: TensorType) -> int:
    return program.add(program.builder.input(type_), 1 if type_.dtype is DType.BOOL else 6)


def _pick(draw: Draw, program: Program, *dtypes: DType, exact: bool = False) -> int | None:
    """A value, a recent one more often."""
    fitting = [
        v
        for v in program.values
        if (not dtypes or program.builder.dtype(v) in dtypes) and (not exact or program.exact(v))
    ]
    if not fitting:
        return None
    return draw(st.sampled_from(fitting[-4:] * 2 + fitting))


_NUMBERS = (DType.F32, DType.F64, DType.F16, DType.BF16, DType.I32, DType.I64)
_FLOATS = _NUMBERS[:4]

# -- growths: each adds one value, or none where nothing fits --------------------------------------------------


def _keeping(draw: Draw, program: Program) -> None:
    value = _pick(draw, program, *_NUMBERS)
    if value is not None:
        program.add(program.builder.apply(draw(st.sampled_from(KEEPING)), value), program.bits[value])


def _smooth(draw: Draw, program: Program) -> None:
    value = _pick(draw, program, *_FLOATS)
    if value is None:
        return
    function = draw(st.sampled_from(SMOOTH))
    b = program.builder
    if function == "sqrt":
        value = b.apply("abs", value)
    if function in ("exp", "square"):  # kept from growing without end
        value = b.apply("tanh", value)
    program.add(b.apply(function, value), INEXACT)


def _binary(draw: Draw, program: Program) -> None:
    value = _pick(draw, program, *_NUMBERS)
    if value is None:
        return
    other, bits = _partner(draw, program, value)
    left, right = (value, other) if draw(st.booleans()) else (other, value)
    function = draw(st.sampled_from((*ADDING, "mul")))
    mine = program.bits[value]
    grown = mine + bits if function == "mul" else max(mine, bits) + 1
    program.add(program.builder.apply(function, left, right), grown)


def _compare(draw: Draw, program: Program) -> None:
    value = _pick(draw, program, *_NUMBERS, exact=True)
    if value is None:
        return
    other, bits = _partner(draw, program, value)
    if bits < INEXACT:
        program.add(program.builder.apply(draw(st.sampled_from(COMPARING)), value, other), 1)


def _logic(draw: Draw, program: Program) -> None:
    value = _pick(draw, program, DType.BOOL)
    if value is not None:
        other, _ = _partner(draw, program, value)
        program.add(program.builder.apply(draw(st.sampled_from(LOGICAL)), value, other), 1)


def _select(draw: Draw, program: Program) -> None:
    mask, value = _pick(draw, program, DType.BOOL), _pick(draw, program)
    if mask is None or value is None:
        return
    other, bits = _partner(draw, program, value)
    program.add(program.builder.apply("select", mask, value, other), max(bits, program.bits[value]))


def _partner(draw: Draw, program: Program, value: int) -> tuple[int, int]:
    """Something of the dtype of `value` to combine it with: a value, a new input, a constant."""
    b, dtype, shape = program.builder, program.builder.dtype(value), program.builder.shape(value)
    kind = draw(st.sampled_from(("value", "value", "value", "input", "constant", "extent")))
    if kind == "value":
        alike = [v for v in program.values if b.dtype(v) is dtype and _broadcasts(b.shape(v), shape)]
        chosen = draw(st.sampled_from(alike))
        return chosen, program.bits[chosen]
    if kind == "input":
        kept = shape[draw(st.integers(0, len(shape))) :]
        dims = tuple(d if draw(st.booleans()) else ONE for d in kept)
        chosen = _input(program, TensorType(dtype, dims))
        return chosen, program.bits[chosen]
    if kind == "extent" and dtype in (DType.F32, DType.I64, DType.I32) and shape:
        return b.extent(draw(st.sampled_from(shape)), dtype), 8
    if dtype is DType.BOOL:
        return b.constant(draw(st.booleans()), dtype), 1
    return b.constant(draw(st.sampled_from((0, 1, -1, 2, 3, -0.0, 0.5, 1.25))), dtype), 4


def _broadcasts(a: Shape, b: Shape) -> bool:
    return all(x == y or x.is_one or y.is_one for x, y in zip(a[::-1], b[::-1], strict=False))


def _reduce(draw: Draw, program: Program) -> None:
    value = _pick(draw, program)
    if value is None or not program.builder.shape(value):
        return
    b, bits = program.builder, program.bits[value]
    dtype, rank = b.dtype(value), len(b.shape(value))
    if dtype is DType.BOOL:
        function = draw(st.sampled_from(("all", "any")))
    else:
        function = draw(st.sampled_from(("sum", "sum", "max", "min")))
    last = [rank - 1]
    axes = draw(st.sampled_from([last, last, list(range(rank)), [0], *([a] for a in range(rank)), [0, rank - 1]]))
    if function == "sum":
        bits += 12
    program.add(b.reduce(function, value, axes, keep_dims=draw(st.booleans())), bits)


def _product(draw: Draw, program: Program) -> None:
    """With weights of its own; now and then as deep as it is wide."""
    value = _pick(draw, program)
    if value is None or len(program.builder.shape(value)) != 2:
        return
    b, dtype = program.builder, program.builder.dtype(value)
    if dtype not in (DType.F32, DType.F64):
        return
    depth = b.shape(value)[1]
    columns = draw(st.sampled_from((depth, Dim(1), Dim(5), Dim(17))))
    weights = b.input(TensorType(dtype, (depth, columns)))
    program.add(weights, 4)
    program.add(matrix_product(b, value, weights), INEXACT)


def _windows(draw: Draw, program: Program) -> None:
    """Along any axis; more often than not reduced, or multiplied with a filter for each channel."""
    value = _pick(draw, program, *_NUMBERS)
    if value is None:
        return
    b = program.builder
    axes = [a for a, d in enumerate(b.shape(value)) if d.coefficient]
    if not axes or len(b.shape(value)) > 4:
        return
    axis, bits = draw(st.sampled_from(axes)), program.bits[value]
    if draw(st.booleans()):
        ends = draw(st.integers(0, 2)), draw(st.integers(0, 2))
        value = padded(b, value, [(0, 0)] * axis + [ends])
    extent = b.shape(value)[axis]
    step, dilation = draw(st.sampled_from((1, 1, 2))), draw(st.sampled_from((1, 1, 2)))
    most = (extent.coefficient - 1) // dilation + 1 if extent.is_static else 3
    size = draw(st.integers(1, min(4, most)))
    count = b.derived([extent, Dim(step - 1 - (size - 1) * dilation)], step)
    if count.is_static:
        count = Dim(draw(st.integers(1, count.coefficient)))
    found = b.windows(value, axis, count, size, step, dilation)
    kind = draw(st.sampled_from(("as they are", "max", "sum", "multiplied")))
    if kind in ("max", "sum"):
        found = b.reduce(kind, found, (axis + 1,))
        bits += 3 * (kind == "sum")
    elif kind == "multiplied" and b.dtype(found) in (DType.F32, DType.F64):
        shape = b.shape(found)
        each = b.input(TensorType(b.dtype(found), tuple(d if a > axis else ONE for a, d in enumerate(shape))))
        program.add(each, 4)
        found, bits = b.reduce(PRODUCTS, b.apply("mul", found, b.broadcast(each, shape)), (axis + 1,)), INEXACT
    program.add(found, bits)


def _transpose(draw: Draw, program: Program) -> None:
    value = _pick(draw, program)
    if value is not None:
        rank = len(program.builder.shape(value))
        program.add(program.builder.transpose(value, draw(st.permutations(range(rank)))), program.bits[value])


def _reshape(draw: Draw, program: Program) -> None:
    value = _pick(draw, program)
    if value is None:
        return
    b = program.builder
    shape = list(b.shape(value))
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(("merge", "merge", "split", "one", "flat", "squeeze")))
        at = draw(st.integers(0, max(len(shape) - 1, 0)))
        if kind == "merge" and at + 1 < len(shape):
            shape[at : at + 2] = [shape[at] * shape[at + 1]]
        elif kind == "split" and shape and len(shape) < 5:
            shape[at : at + 1] = _halves(draw, shape[at])
        elif kind == "one" and len(shape) < 5:
            shape.insert(at, ONE)
        elif kind == "flat":
            shape = [product(shape)]
        elif kind == "squeeze":
            shape = [d for d in shape if not d.is_one]
    program.add(b.reshape(value, tuple(shape)), program.bits[value])


def _halves(draw: Draw, dim: Dim) -> list[Dim]:
    """`dim` as a product of two."""
    factors = [f for f in (2, 3, 4, 8) if dim.coefficient and dim.coefficient % f == 0]
    if dim.symbols and (not factors or draw(st.booleans())):
        part = Dim.symbol(draw(st.sampled_from(dim.symbols)))
    elif factors:
        part = Dim(draw(st.sampled_from(factors)))
    else:
        return [dim]
    rest = dim.divided_by(part)
    assert rest is not None
    return [part, rest] if draw(st.booleans()) else [rest, part]


def _slice(draw: Draw, program: Program) -> None:
    value = _pick(draw, program)
    if value is None:
        return
    begins: list[int] = []
    sizes: list[Dim] = []
    steps: list[int] = []
    for dim in program.builder.shape(value):
        begin, size, step = 0, dim, 1
        if dim.is_static and dim.coefficient > 1 and draw(st.booleans()):
            step = draw(st.sampled_from((1, 1, 2, -1)))
            begin = draw(st.integers(0, dim.coefficient - 1))
            room = (dim.coefficient - 1 - begin if step > 0 else begin) // abs(step) + 1
            size = Dim(draw(st.integers(1, room)))
        elif not dim.is_static and draw(st.integers(0, 3)) == 0:
            begin, end, step = draw(st.integers(0, 2)), draw(st.integers(0, 2)), draw(st.sampled_from((1, 1, 2)))
            size = program.builder.derived([dim, Dim(step - 1 - begin - end)], step)
        elif not dim.is_static and draw(st.integers(0, 5)) == 0:
            begin, size = draw(st.integers(0, 2)), Dim(draw(st.integers(1, 2)))
            program.builder.require(Dim(begin + size.coefficient), dim, "a slice")
        begins.append(begin)
        sizes.append(size)
        steps.append(step)
    program.add(program.builder.slice(value, begins, tuple(sizes), steps), program.bits[value])


def _concat(draw: Draw, program: Program) -> None:
    value = _pick(draw, program)
    if value is None or not program.builder.shape(value):
        return
    b = program.builder
    axis = draw(st.integers(0, len(b.shape(value)) - 1))

    def fits(other: int) -> bool:
        mine, theirs = b.shape(value), b.shape(other)
        return b.dtype(other) is b.dtype(value) and mine[:axis] + mine[axis + 1 :] == theirs[:axis] + theirs[axis + 1 :]

    alike = [v for v in program.values if len(b.shape(v)) == len(b.shape(value)) and fits(v)]
    pieces = [value, *(draw(st.sampled_from(alike)) for _ in range(draw(st.integers(0, 2))))]
    if draw(st.booleans()):
        dims = list(b.shape(value))
        if dims[axis].is_static:
            dims[axis] = Dim(draw(st.sampled_from(STATIC)))
        pieces.append(_input(program, TensorType(b.dtype(value), tuple(dims))))
    whole = b.concat(draw(st.permutations(pieces)), axis)
    program.add(whole, max(program.bits[p] for p in pieces))


def _broadcast(draw: Draw, program: Program) -> None:
    value = _pick(draw, program)
    if value is None:
        return
    shape = program.builder.shape(value)
    wider = [draw(_dims()) if d.is_one and draw(st.booleans()) else d for d in shape]
    known = {s for v in program.values for d in program.builder.shape(v) for s in d.symbols}
    if len(wider) < 4 and draw(st.booleans()):
        wider.insert(0, draw(_dims()))
    if all(s in known for d in wider for s in d.symbols):
        program.add(program.builder.broadcast(value, tuple(wider)), program.bits[value])


def _cast(draw: Draw, program: Program) -> None:
    dtype = draw(st.sampled_from((*_NUMBERS, DType.BOOL)))
    value = _pick(draw, program, exact=dtype not in _FLOATS)
    if value is not None and program.builder.dtype(value) is not dtype:
        jumps = program.builder.dtype(value) in _FLOATS and dtype not in _FLOATS
        if not jumps or program.bits[value] < 24:  # far inside the integers, whatever was summed up
            program.add(program.builder.convert(value, dtype), program.bits[value])


def _softmax(draw: Draw, program: Program) -> None:
    """A pattern that random steps alone would seldom hit on: two reductions of one row, and a broadcast back."""
    value = _pick(draw, program, DType.F32, DType.F64)
    if value is None or not program.builder.shape(value):
        return
    b = program.builder
    shifted = b.apply("sub", value, b.reduce("max", value, [-1], keep_dims=True))
    parts = b.apply("exp", shifted)
    program.add(b.apply("div", parts, b.reduce("sum", parts, [-1], keep_dims=True)), INEXACT)


def _centred(draw: Draw, program: Program) -> None:
    """The same over any axis, linear."""
    value = _pick(draw, program, *_NUMBERS)
    if value is None or not program.builder.shape(value):
        return
    b = program.builder
    axis = draw(st.integers(0, len(b.shape(value)) - 1))
    total = b.reduce("sum", value, [axis], keep_dims=True)
    program.add(b.apply("sub", value, total), program.bits[value] + 13)


def _iota(draw: Draw, program: Program) -> None:
    """The places along an axis of some value."""
    value = _pick(draw, program)
    if value is None or not program.builder.shape(value):
        return
    b, shape = program.builder, program.builder.shape(value)
    axis = draw(st.integers(0, len(shape) - 1))
    places = b.iota(shape[axis], draw(st.sampled_from((DType.I32, DType.I64))))
    program.add(b.reshape(places, (shape[axis], *(ONE for _ in shape[axis + 1 :]))), 15)


def _gather(draw: Draw, program: Program) -> None:
    """A value of the shape of another, looked up: a table at indices along one of its axes."""
    value = _pick(draw, program)
    if value is None or not program.builder.shape(value):
        return
    b, shape = program.builder, program.builder.shape(value)
    first = draw(st.integers(0, len(shape) - 1))
    behind = draw(st.integers(first, len(shape)))  # the axes of the indices are [first, behind)
    size = draw(_dims())
    if not {*size.symbols} <= {s for d in shape for s in d.symbols}:
        size = Dim(draw(st.sampled_from(STATIC)))
    table = _input(program, TensorType(b.dtype(value), (*shape[:first], size, *shape[behind:])))
    indices = b.input(TensorType(draw(st.sampled_from((DType.I32, DType.I64))), shape[first:behind]))
    b.require_indices(indices, size)
    at = b.reshape(indices, (*shape[first:behind], *(ONE for _ in shape[behind:])))
    along = {a: a for a in range(first)} | {first + 1 + a: behind + a for a in range(len(shape) - behind)}
    program.add(b.gather(table, {first: at}, along, shape), program.bits[table])


_GROWTHS = (
    _keeping, _smooth, _binary, _binary, _binary, _compare, _logic, _select, _reduce, _reduce, _reduce, _transpose,
    _reshape, _reshape, _slice, _concat, _broadcast, _cast, _softmax, _centred, _centred,
    _iota, _gather, _product, _product, _windows, _windows,
)  # fmt: skip
