"""Random TensorFlow functions: a Program is a list of instructions over values of symbolic shape.

A program holds for any value of its symbols. `build` makes a tf.function of it, in which each symbol is an unknown
dim, or static where a test wants it so. As in `bodies`, values know how many bits they need to be exact, and what jumps
is applied to exact ones only. Some instructions are never stitched (a cumulative sum): they cut clusters in two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf
from hypothesis import strategies as st

from tf_stitch.ir.types import ONE, Dim, DType, Shape, product

Array = np.ndarray[Any, np.dtype[Any]]
Draw = Any

SYMBOLS = ("A", "B", "C")
STATIC = (1, 2, 3, 4, 8, 17)
INEXACT = 1000
MANTISSA = {DType.F32: 24, DType.F64: 53, DType.F16: 11, DType.BF16: 8, DType.I32: 31, DType.I64: 63, DType.BOOL: 1}
FLOATS = (DType.F32, DType.F64, DType.F16, DType.BF16)
NUMBERS = (*FLOATS, DType.I32, DType.I64)


@dataclass(frozen=True)
class Type:
    dtype: DType
    shape: Shape
    bits: int

    @property
    def exact(self) -> bool:
        return self.bits < INEXACT


@dataclass(frozen=True)
class Instruction:
    """`compute(now, *operands)`, where `now` knows what is known when the function is traced."""

    text: str
    operands: tuple[int, ...]
    compute: Callable[..., Any]


@dataclass(frozen=True)
class Now:
    """extents: the value of each symbol, an int or a tensor. widen: f32 is to be f64."""

    extents: Mapping[str, Any]
    widen: bool

    def extent(self, dim: Dim) -> Any:
        result: Any = dim.coefficient
        for symbol in dim.symbols:
            result = result * self.extents[symbol]
        return result

    def dtype(self, dtype: DType) -> Any:
        return tf.float64 if self.widen and dtype is DType.F32 else tf.as_dtype(dtype.numpy)


@dataclass
class Program:
    inputs: list[Type] = field(default_factory=list[Type])
    types: list[Type] = field(default_factory=list[Type])
    instructions: list[Instruction | None] = field(default_factory=list[Any])  # None: the next input
    outputs: list[int] = field(default_factory=list[int])

    def input(self, type_: Type) -> int:
        self.inputs.append(type_)
        self.instructions.append(None)
        self.types.append(type_)
        return len(self.types) - 1

    def add(self, text: str, operands: tuple[int, ...], type_: Type, compute: Callable[..., Any]) -> int:
        if type_.bits > MANTISSA[type_.dtype]:
            type_ = Type(type_.dtype, type_.shape, INEXACT)
        self.instructions.append(Instruction(text, operands, compute))
        self.types.append(type_)
        return len(self.types) - 1

    def __repr__(self) -> str:
        lines = [""]
        for number, (instruction, type_) in enumerate(zip(self.instructions, self.types, strict=True)):
            shape = ", ".join(map(str, type_.shape))
            what = "input" if instruction is None else f"{instruction.text} {instruction.operands}"
            lines.append(f"  v{number} = {what} : {type_.dtype.value}[{shape}]")
        return "\n".join([*lines, f"  return {self.outputs}"])

    @property
    def symbols(self) -> list[str]:
        return sorted({s for t in self.inputs for d in t.shape for s in d.symbols})

    def execute(self, tensors: list[Any], *, widen: bool = False) -> list[Any]:
        """The outputs, in TensorFlow."""
        extents: dict[str, Any] = {}
        for type_, tensor in zip(self.inputs, tensors, strict=True):
            for axis, dim in enumerate(type_.shape):
                for symbol in dim.symbols:
                    static = tensor.shape[axis]
                    extents.setdefault(symbol, tf.shape(tensor)[axis] if static is None else static)
        now = Now(extents, widen)
        waiting = iter(tensors)
        values: list[Any] = []
        for instruction in self.instructions:
            if instruction is None:
                values.append(next(waiting))
            else:
                values.append(instruction.compute(now, *(values[o] for o in instruction.operands)))
        return [tf.identity(values[o]) for o in self.outputs]

    def specs(self, static: Mapping[str, int], *, widen: bool = False) -> list[Any]:
        """A signature; symbols that `static` does not have are unknown dims."""
        now = Now({}, widen)
        return [tf.TensorSpec([_extent(d, static) for d in t.shape], now.dtype(t.dtype)) for t in self.inputs]

    def build(self, static: Mapping[str, int], *, widen: bool = False) -> Any:
        """A concrete function of this signature."""
        function = tf.function(
            lambda *xs: self.execute(list(xs), widen=widen),
            input_signature=self.specs(static, widen=widen),
            autograph=False,
        )
        return function.get_concrete_function()

    def arguments(self, symbols: Mapping[str, int], seed: int) -> list[Array]:
        """Multiples of 1/8, some of them negative."""
        random = np.random.default_rng(seed)
        found: list[Array] = []
        for type_ in self.inputs:
            numbers = random.integers(-24, 25, [d.evaluate(symbols) for d in type_.shape])
            if type_.dtype is DType.BOOL:
                found.append(numbers > 0)
            elif type_.dtype in FLOATS:
                found.append((numbers / 8).astype(type_.dtype.numpy))
            else:
                found.append(numbers.astype(type_.dtype.numpy))
        return found


def _extent(dim: Dim, static: Mapping[str, int]) -> int | None:
    return dim.evaluate(static) if set(dim.symbols) <= set(static) else None


@st.composite
def programs(draw: Draw, steps: int = 16) -> Program:
    """A random program of at most `steps` instructions."""
    program = Program()
    rank = draw(st.integers(1, 4))
    dtype = draw(st.sampled_from((DType.F32,) * 6 + (DType.F64, DType.F16, DType.BF16, DType.I32, DType.I64)))
    program.input(Type(dtype, tuple(draw(_dims(SYMBOLS)) for _ in range(rank)), 6))
    for _ in range(draw(st.integers(3, steps))):
        draw(st.sampled_from(_GROWTHS))(draw, program)
    recent = [i for i, instruction in enumerate(program.instructions) if instruction is not None][::-1]
    if not recent:
        recent = [program.add("negate", (0,), program.types[0], lambda _, x: -x)]
    program.outputs = list(dict.fromkeys([recent[0], draw(st.sampled_from(recent))]))
    return program


@st.composite
def _dims(draw: Draw, symbols: tuple[str, ...]) -> Dim:
    if symbols and draw(st.integers(0, 2)):
        return Dim.symbol(draw(st.sampled_from(symbols)))
    return Dim(draw(st.sampled_from(STATIC)))


def _pick(draw: Draw, program: Program, fits: Callable[[Type], bool]) -> int | None:
    found = [i for i, t in enumerate(program.types) if fits(t)]
    return draw(st.sampled_from(found[-4:] * 2 + found)) if found else None


def _same(dtype: DType) -> Callable[[Type], bool]:
    return lambda t: t.dtype is dtype


# -- growths ---------------------------------------------------------------------------------------------------

_KEEPING: dict[str, Callable[[Any], Any]] = {
    "relu": tf.nn.relu, "abs": tf.abs, "neg": tf.negative, "sign": tf.sign, "identity": tf.identity,
    "clip": lambda x: tf.clip_by_value(x, tf.cast(-2, x.dtype), tf.cast(2, x.dtype)),
}  # fmt: skip
_SMOOTH: dict[str, Callable[[Any], Any]] = {
    "tanh": tf.tanh, "sigmoid": tf.sigmoid, "exp_tanh": lambda x: tf.exp(tf.tanh(x)), "softplus": tf.nn.softplus,
    "rsqrt": lambda x: tf.math.rsqrt(tf.abs(x) + tf.cast(1, x.dtype)), "elu": tf.nn.elu, "erf": tf.math.erf,
    "leaky": lambda x: tf.nn.leaky_relu(x, 0.25),
}  # fmt: skip
_ADDING: dict[str, Callable[[Any, Any], Any]] = {
    "add": tf.add, "sub": tf.subtract, "max": tf.maximum, "min": tf.minimum,
}  # fmt: skip
_COMPARING: dict[str, Callable[[Any, Any], Any]] = {
    "less": tf.less, "equal": tf.equal, "greater_equal": tf.greater_equal,
}  # fmt: skip
_REDUCING: dict[str, Callable[..., Any]] = {
    "sum": tf.reduce_sum, "mean": tf.reduce_mean, "max": tf.reduce_max, "min": tf.reduce_min,
}  # fmt: skip


def _keeping(draw: Draw, program: Program) -> None:
    value = _pick(draw, program, lambda t: t.dtype in NUMBERS)
    if value is not None:
        name = draw(st.sampled_from(sorted(_KEEPING)))
        program.add(name, (value,), program.types[value], lambda _, x, f=_KEEPING[name]: f(x))


def _smooth(draw: Draw, program: Program) -> None:
    value = _pick(draw, program, lambda t: t.dtype in FLOATS)
    if value is not None:
        name, type_ = draw(st.sampled_from(sorted(_SMOOTH))), program.types[value]
        program.add(name, (value,), Type(type_.dtype, type_.shape, INEXACT), lambda _, x, f=_SMOOTH[name]: f(x))


def _partner(draw: Draw, program: Program, value: int) -> int:
    """A value of the same dtype that broadcasts with `value`: there already, or a new input."""
    type_ = program.types[value]
    if draw(st.booleans()):
        shapes = [
            i
            for i, t in enumerate(program.types)
            if t.dtype is type_.dtype and _broadcast(t.shape, type_.shape) is not None
        ]
        return draw(st.sampled_from(shapes))
    kept = type_.shape[draw(st.integers(0, len(type_.shape))) :]
    known = set(program.symbols)
    dims = [d if draw(st.booleans()) and (d.is_static or len(d.symbols) == 1 == d.coefficient) else ONE for d in kept]
    return program.input(Type(type_.dtype, tuple(d if set(d.symbols) <= known else ONE for d in dims), 6))


def _broadcast(a: Shape, b: Shape) -> Shape | None:
    """The common shape, or None; `()` is a shape, so compare with None."""
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    padded = (ONE,) * (len(longer) - len(shorter)) + shorter
    if any(x != y and not x.is_one and not y.is_one for x, y in zip(longer, padded, strict=True)):
        return None
    return tuple(y if x.is_one else x for x, y in zip(longer, padded, strict=True))


def _binary(draw: Draw, program: Program) -> None:
    value = _pick(draw, program, lambda t: t.dtype in NUMBERS)
    if value is None:
        return
    other = _partner(draw, program, value)
    mine, theirs = program.types[value], program.types[other]
    shape = _broadcast(mine.shape, theirs.shape)
    if shape is None:
        return
    name = draw(st.sampled_from((*_ADDING, "mul", "div")))
    operands = (value, other) if draw(st.booleans()) else (other, value)
    if name == "mul":
        bits, compute = mine.bits + theirs.bits, lambda _, x, y: x * y
    elif name == "div":
        if mine.dtype not in FLOATS:
            return
        bits, compute = INEXACT, lambda _, x, y: x / (tf.abs(y) + tf.cast(1, y.dtype))
    else:
        bits, compute = max(mine.bits, theirs.bits) + 1, lambda _, x, y, f=_ADDING[name]: f(x, y)
    program.add(name, operands, Type(mine.dtype, shape, bits), compute)


def _constant(draw: Draw, program: Program) -> None:
    value = _pick(draw, program, lambda t: t.dtype in NUMBERS)
    if value is None:
        return
    type_ = program.types[value]
    number = draw(st.sampled_from((0, 1, 2, 3, -1, 0.5)))
    if draw(st.booleans()):
        program.add(f"+{number}", (value,), Type(type_.dtype, type_.shape, type_.bits + 1),
                    lambda _, x, c=number: x + tf.cast(c, x.dtype))  # fmt: skip
    else:
        program.add(f"*{number}", (value,), Type(type_.dtype, type_.shape, type_.bits + 2),
                    lambda _, x, c=number: x * tf.cast(c, x.dtype))  # fmt: skip


def _select(draw: Draw, program: Program) -> None:
    value = _pick(draw, program, lambda t: t.dtype in NUMBERS and t.exact)
    if value is None:
        return
    other = _partner(draw, program, value)
    mine, theirs = program.types[value], program.types[other]
    shape = _broadcast(mine.shape, theirs.shape)
    if shape is None or not theirs.exact:
        return
    name = draw(st.sampled_from(sorted(_COMPARING)))
    compare = _COMPARING[name]
    program.add(f"where {name}", (value, other), Type(mine.dtype, shape, max(mine.bits, theirs.bits)),
                lambda _, x, y: tf.where(compare(x, y), x + tf.zeros_like(y), y + tf.zeros_like(x)))  # fmt: skip


def _reduce(draw: Draw, program: Program) -> None:
    value = _pick(draw, program, lambda t: t.dtype in NUMBERS and len(t.shape) > 0)
    if value is None:
        return
    type_ = program.types[value]
    rank = len(type_.shape)
    name = draw(st.sampled_from(sorted(_REDUCING)))
    if name == "mean" and type_.dtype not in FLOATS:
        name = "sum"
    axes = draw(st.sampled_from([[rank - 1]] * 3 + [[a] for a in range(rank)] + [list(range(rank)), [0, rank - 1]]))
    axes = sorted(set(axes))
    keep = draw(st.booleans())
    kept = tuple(ONE if a in axes else d for a, d in enumerate(type_.shape))
    shape = kept if keep else tuple(d for a, d in enumerate(kept) if a not in axes)
    bits = {"sum": type_.bits + 12, "mean": INEXACT}.get(name, type_.bits)
    if name in ("sum", "mean") and type_.dtype in (DType.F16, DType.BF16):
        return  # TensorFlow rounds partial sums
    program.add(f"{name} over {axes}", (value,), Type(type_.dtype, shape, bits),
                lambda _, x, f=_REDUCING[name]: f(x, axes, keepdims=keep))  # fmt: skip


def _softmax(draw: Draw, program: Program) -> None:
    value = _pick(draw, program, lambda t: t.dtype in (DType.F32, DType.F64) and len(t.shape) > 0)
    if value is None:
        return
    type_ = program.types[value]
    name = draw(st.sampled_from(("softmax", "log_softmax", "normalise")))

    def normalise(x: Any) -> Any:
        mean = tf.reduce_mean(x, -1, keepdims=True)
        variance = tf.reduce_mean(tf.math.squared_difference(x, mean), -1, keepdims=True)
        return (x - mean) * tf.math.rsqrt(variance + tf.cast(0.5, x.dtype))

    function = {"softmax": tf.nn.softmax, "log_softmax": tf.nn.log_softmax, "normalise": normalise}[name]
    program.add(name, (value,), Type(type_.dtype, type_.shape, INEXACT), lambda _, x: function(x))


def _product(draw: Draw, program: Program) -> None:
    """With constant weights: of matrices, of the last axis, or of pixels."""
    multiply: dict[int, Callable[[Any, Any], Any]] = {
        2: tf.matmul,
        3: lambda x, w: tf.einsum("abc,cd->abd", x, w),
        4: lambda x, w: tf.nn.conv2d(x, w[tf.newaxis, tf.newaxis], 1, "VALID"),
    }

    def fits(type_: Type) -> bool:
        known = type_.dtype in (DType.F32, DType.F64) and len(type_.shape) in multiply
        return known and type_.shape[-1].is_static

    value = _pick(draw, program, fits)
    if value is None:
        return
    type_ = program.types[value]
    depth, columns = type_.shape[-1].coefficient, draw(st.sampled_from((1, 3, 8, 17, type_.shape[-1].coefficient)))
    weights = np.random.default_rng(draw(st.integers(0, 9))).integers(-8, 9, (depth, columns)) / 8
    function = multiply[len(type_.shape)]
    shape = (*type_.shape[:-1], Dim(columns))
    program.add(f"times {depth} x {columns}", (value,), Type(type_.dtype, shape, INEXACT),
                lambda _, x: function(x, tf.constant(weights, x.dtype)))  # fmt: skip


def _transpose(draw: Draw, program: Program) -> None:
    value = _pick(draw, program, lambda t: len(t.shape) > 1)
    if value is None:
        return
    type_ = program.types[value]
    permutation = draw(st.permutations(range(len(type_.shape))))
    program.add(f"transpose {permutation}", (value,),
                Type(type_.dtype, tuple(type_.shape[p] for p in permutation), type_.bits),
                lambda _, x: tf.transpose(x, permutation))  # fmt: skip


def _reshape(draw: Draw, program: Program) -> None:
    value = _pick(draw, program, lambda t: True)
    if value is None:
        return
    type_ = program.types[value]
    shape = list(type_.shape)
    kind = draw(st.sampled_from(("merge", "merge", "split", "one", "flat", "squeeze")))
    at = draw(st.integers(0, max(len(shape) - 1, 0)))
    if kind == "merge" and at + 1 < len(shape):
        shape[at : at + 2] = [shape[at] * shape[at + 1]]
    elif kind == "split" and shape and len(shape) < 5:
        dim = shape[at]
        parts = [Dim(f) for f in (2, 4) if dim.coefficient % f == 0]
        parts += [Dim.symbol(s) for s in dim.symbols]
        if not parts:
            return
        part = draw(st.sampled_from(parts))
        rest = dim.divided_by(part)
        assert rest is not None
        shape[at : at + 1] = [rest, part]
    elif kind == "one" and len(shape) < 5:
        shape.insert(at, ONE)
    elif kind == "flat":
        shape = [product(shape)]
    elif kind == "squeeze":
        shape = [d for d in shape if not d.is_one]
    else:
        return
    target = list(shape)
    free = draw(st.booleans())

    def compute(now: Now, x: Any) -> Any:
        extents = [now.extent(d) for d in target]
        if free and extents and all(d.coefficient for d in target) and all(d.is_static for d in target[1:]):
            extents[0] = -1
        return tf.reshape(x, extents)

    program.add(f"reshape {kind}", (value,), Type(type_.dtype, tuple(shape), type_.bits), compute)


def _slice(draw: Draw, program: Program) -> None:
    value = _pick(draw, program, lambda t: any(d.is_static and d.coefficient > 1 for d in t.shape))
    if value is None:
        return
    type_ = program.types[value]
    entries: list[Any] = []
    shape: list[Dim] = []
    for dim in type_.shape:
        if not dim.is_static or dim.coefficient < 2 or draw(st.booleans()):
            entries.append(slice(None))
            shape.append(dim)
            continue
        if draw(st.integers(0, 3)) == 0:
            entries.append(draw(st.integers(0, dim.coefficient - 1)))
            continue
        begin = draw(st.integers(0, dim.coefficient - 1))
        entry = slice(begin, draw(st.integers(begin + 1, dim.coefficient)), draw(st.sampled_from((1, 1, 2))))
        if draw(st.integers(0, 5)) == 0:
            entry = slice(None, None, -1)
        entries.append(entry)
        shape.append(Dim(len(range(dim.coefficient)[entry])))
    program.add(f"slice {entries}", (value,), Type(type_.dtype, tuple(shape), type_.bits),
                lambda _, x: x[tuple(entries)])  # fmt: skip


def _repeat(draw: Draw, program: Program) -> None:
    value = _pick(draw, program, lambda t: len(t.shape) < 4 or any(d.is_one for d in t.shape))
    if value is None:
        return
    type_ = program.types[value]
    known = tuple(program.symbols)
    shape = [draw(_dims(known)) if d.is_one and draw(st.booleans()) else d for d in type_.shape]
    if len(shape) < 4 and draw(st.booleans()):
        shape.insert(0, draw(_dims(known)))
    program.add("broadcast", (value,), Type(type_.dtype, tuple(shape), type_.bits),
                lambda now, x: tf.broadcast_to(x, [now.extent(d) for d in shape]))  # fmt: skip


def _cast(draw: Draw, program: Program) -> None:
    dtype = draw(st.sampled_from(NUMBERS))
    value = _pick(draw, program, lambda t: t.dtype is not dtype and (dtype in FLOATS or (t.exact and t.bits < 24)))
    if value is not None:
        type_ = program.types[value]
        program.add(f"cast {dtype.value}", (value,), Type(dtype, type_.shape, type_.bits),
                    lambda now, x: tf.cast(x, now.dtype(dtype)))  # fmt: skip


def _opaque(draw: Draw, program: Program) -> None:
    """Something that is never stitched."""
    value = _pick(draw, program, lambda t: t.dtype in (DType.F32, DType.F64, DType.I32) and len(t.shape) > 0)
    if value is not None:
        type_ = program.types[value]
        bits = type_.bits + 12
        program.add("cumsum", (value,), Type(type_.dtype, type_.shape, bits), lambda _, x: tf.cumsum(x, -1))


_GROWTHS = (
    _keeping, _smooth, _smooth, _binary, _binary, _binary, _binary, _constant, _constant, _select, _reduce, _reduce,
    _reduce, _softmax, _transpose, _reshape, _reshape, _slice, _repeat, _cast, _opaque, _product, _product,
)  # fmt: skip
