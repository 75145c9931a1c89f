"""Body: what a cluster computes, in a dozen primitives. Planner, lowering and interpreter see this.

    x: f32[B, 768]                      %0 = input 0            : f32[B, 768]
    y = tf.nn.softmax(x)         ->     %1 = max %0 over (1)    : f32[B, 1]
                                        %2 = broadcast %1       : f32[B, 768]
                                        %3 = sub %0 %2          : f32[B, 768]   ...

Invariants (checked by `ir.verify`):
  - a step reads earlier steps only;
  - arithmetic runs in compute types (`DType.compute`): f16 and bf16 appear only as inputs, as results of
    `convert` (which rounds) and of steps that move elements, and as outputs;
  - `convert` reaches f16 and bf16 from f32 only, and leaves them for f32 only;
  - the operands of an elementwise step have its very shape: broadcasting is always written out;
  - a symbol is that of an input's dim, or follows from those (`ir.symbols`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tf_stitch.errors import Reason, Unsupported
from tf_stitch.ir.symbols import Derivations, Symbols, is_lone
from tf_stitch.ir.types import ONE, Dim, DType, Shape, TensorType, product

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Input:
    """The cluster's input number `index`."""

    index: int


@dataclass(frozen=True, slots=True)
class Constant:
    """A scalar. `bits` are its bytes, so that -0.0 and 0.0 stay two constants."""

    bits: bytes

    def value(self, dtype: DType) -> np.generic:
        return np.frombuffer(self.bits, dtype.numpy)[0]


@dataclass(frozen=True, slots=True)
class Extent:
    """The value of a dim as a scalar of the step's dtype: f32, f64, i32 or i64."""

    dim: Dim


@dataclass(frozen=True, slots=True)
class Iota:
    """0, 1, 2, ... along the only axis; of dtype i32 or i64."""


@dataclass(frozen=True, slots=True)
class Elementwise:
    """`function` (a name in `ops.FUNCTIONS`, or "convert") of each element."""

    function: str


@dataclass(frozen=True, slots=True)
class Broadcast:
    """Dims of 1 repeated to the shape of the step; same rank on both sides."""


@dataclass(frozen=True, slots=True)
class Reshape:
    """The same elements in row-major order under another shape."""


@dataclass(frozen=True, slots=True)
class Transpose:
    """Axis `i` of the result is axis `permutation[i]` of the operand."""

    permutation: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Slice:
    """Element `begin + step * i` along each axis; the step's shape says how many."""

    begin: tuple[int, ...]
    step: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Windows:
    """Axis `axis` as two, windows and what is in each: element (i, j) is element `step * i + dilation * j` of it.

    The step's shape says how many there are of both. Windows may overlap.
    """

    axis: int
    step: int
    dilation: int


@dataclass(frozen=True, slots=True)
class Concat:
    """The operands, one behind another along `axis`."""

    axis: int


@dataclass(frozen=True, slots=True)
class Reduce:
    """`function` (a name in `ops.REDUCERS`) over `axes`, which stay as dims of 1."""

    function: str
    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Gather:
    """Elements of operand 0, an input, at the indices that the other operands hold.

    axes: of each axis of operand 0, the axis of the result along which it is read; or -n where operand n, integers of
      the result's shape, says which of its elements. They are in range: `Body.indices`.
    """

    axes: tuple[int, ...]


View = Broadcast | Reshape | Transpose | Slice | Windows  # each element is one of the operand's
Movement = View | Concat
Op = Input | Constant | Extent | Iota | Elementwise | Movement | Reduce | Gather


@dataclass(frozen=True, slots=True)
class Step:
    """One primitive. `origin` is the TensorFlow node that it came from."""

    op: Op
    operands: tuple[int, ...]
    type: TensorType
    origin: str

    @property
    def elements(self) -> tuple[int, ...]:
        """The operands of which the step reads the elements that its own map says: all but the table of a Gather."""
        return self.operands[1:] if isinstance(self.op, Gather) else self.operands


@dataclass(frozen=True, slots=True)
class Within:
    """Elements `first`, `first + step`, ... of input number `input` are at least 0 and below `below`."""

    input: int
    first: int
    step: int
    below: Dim

    def __str__(self) -> str:
        which = "" if self.step == 1 else f"{self.first}, {self.first + self.step}, ... "
        return f"elements {which}of input {self.input} are in [0, {self.below})"


@dataclass(frozen=True)
class Body:
    """Steps in order; `outputs` are indices of steps; `inputs` are the types of the cluster's inputs.

    inputs: None for an input that only the fallback reads (a shape operand, say).
    requires: pairs (small, large) with small <= large at run time, or else the fallback runs: a slice that
      stays inside an axis of unknown extent, say.
    indices: what holds of the integers in inputs, or else the fallback runs, and raises TensorFlow's error.
    derivations: of the symbols that follow from others. Where one is a dim of an input, too, it is both.
    """

    steps: tuple[Step, ...]
    inputs: tuple[TensorType | None, ...]
    outputs: tuple[int, ...]
    requires: tuple[tuple[Dim, Dim], ...] = ()
    indices: tuple[Within, ...] = ()
    derivations: Derivations = ()

    def users(self) -> list[list[int]]:
        """For each step, the steps that read it, in order."""
        found: list[list[int]] = [[] for _ in self.steps]
        for index, step in enumerate(self.steps):
            for operand in dict.fromkeys(step.operands):
                found[operand].append(index)
        return found


class BodyBuilder:
    """Builds a Body step by step: infers each type, writes broadcasts out, computes each value once.

    Dims that must be equal for the graph to be valid, or that we assume to be (an unknown dim met by another:
    either may be 1 at run time, when the guard fails and the fallback runs), are joined; `finish` writes one
    name for each joined set into every type.
    """

    def __init__(self, functions: Mapping[str, Any], reducers: Mapping[str, Any]) -> None:
        self._functions = functions
        self._reducers = reducers
        self._steps: list[Step] = []
        self._known: dict[tuple[Op, tuple[int, ...], TensorType], int] = {}
        self._symbols = Symbols()
        self._inputs: list[TensorType | None] = []
        self._requires: dict[tuple[Dim, Dim], None] = {}
        self._indices: dict[Within, None] = {}
        self.origin = ""

    # -- types ---------------------------------------------------------------------------------------------

    def type(self, value: int) -> TensorType:
        return self._steps[value].type

    def shape(self, value: int) -> Shape:
        return tuple(self.canonical(d) for d in self.type(value).dims)

    def dtype(self, value: int) -> DType:
        return self.type(value).dtype

    def canonical(self, dim: Dim) -> Dim:
        """`dim` with each symbol replaced by what it was joined to, or now follows from."""
        return self._symbols.canonical(dim)

    def derived(self, terms: Sequence[Dim], divisor: int = 1) -> Dim:
        """max(0, floor(sum of `terms` / `divisor`)). Unlike a dim, a term may be negative."""
        return self.canonical(self._symbols.derived([self.canonical(t) for t in terms], divisor))

    def join(self, a: Dim, b: Dim, what: str) -> Dim:
        """The one dim that `a` and `b` must both be.

        Raises:
          Unsupported: where they differ and neither is a lone symbol that may be anything.
        """
        a, b = self.canonical(a), self.canonical(b)
        if a == b:
            return a
        known = self._symbols
        for lone, other in ((a, b), (b, a)):
            if is_lone(lone) and not known.follows(lone.symbols[0]) and not known.speaks_of(other, lone.symbols[0]):
                known.joined[lone.symbols[0]] = other
                return other
        raise Unsupported(Reason.UNKNOWN_DIM, f"{what}: dims {a} and {b} are not known to be equal")

    def require(self, small: Dim, large: Dim, what: str, *, or_error: bool = False) -> None:
        """Assumes `small <= large`: checked here where both are static, else by a guard.

        or_error: whether TensorFlow raises where it does not hold: then it is true of every run that comes to an end.

        Raises:
          Unsupported: where it is known to be false.
        """
        del or_error
        small, large = self.canonical(small), self.canonical(large)
        if self._symbols.is_at_most(small, large):
            return
        if small.symbols == large.symbols:  # 3*B <= 2*B, and static dims
            if small.coefficient > large.coefficient:
                raise Unsupported(Reason.UNKNOWN_DIM, f"{what}: {small} is more than {large}")
            return
        self._requires[small, large] = None

    def require_indices(self, value: int, below: Dim, first: int = 0, step: int = 1) -> None:
        """Assumes that elements `first`, `first + step`, ... of `value`, an input, are in [0, below): a guard.

        Raises:
          Unsupported: where it is no input: a guard cannot look at what is yet to be computed.
        """
        op = self._steps[value].op
        if not isinstance(op, Input):
            raise Unsupported(Reason.UNSUPPORTED_OP, "indices that are computed in the same kernel")
        self._indices[Within(op.index, first, step, self.canonical(below))] = None

    def quotient(self, whole: Dim, part: Dim) -> Dim | None:
        """`whole / part`, which must be exact for the graph to be valid; None where nothing says what it is.

        Where it is exact only for some values of a lone symbol (`768*s / 98304`), the symbol is joined to a
        multiple of a new one (`s = 128*q`): a call with another value does not pass the guards.
        """
        whole, part = self.canonical(whole), self.canonical(part)
        exact = whole.divided_by(part)
        if exact is not None:
            return exact
        common = [s for s in part.symbols if s in whole.symbols]
        left, right = whole.divided_by(Dim(1, tuple(common))), part.divided_by(Dim(1, tuple(common)))
        if left is None or right is None or not right.is_static or right.coefficient == 0:
            return None
        missing = right.coefficient // math.gcd(left.coefficient, right.coefficient)
        alone = (s for s in left.symbols if left.symbols.count(s) == 1 and not self._symbols.follows(s))
        symbol = next(alone, None)
        if symbol is None:
            return None
        self.join(Dim.symbol(symbol), Dim(missing, (f"{symbol}_{missing}",)), "a reshape")
        return self.canonical(left).divided_by(right)

    # -- steps ---------------------------------------------------------------------------------------------

    def _add(self, op: Op, operands: tuple[int, ...], type_: TensorType) -> int:
        key = (op, operands, type_)
        if key not in self._known:
            self._known[key] = len(self._steps)
            self._steps.append(Step(op, operands, type_, self.origin))
        return self._known[key]

    def input(self, type_: TensorType) -> int:
        """The next input of the cluster.

        Raises:
          Unsupported: for an unknown rank or a dtype that is never computed on.
        """
        if type_.shape is None:
            raise Unsupported(Reason.UNKNOWN_RANK, "an input of unknown rank")
        if type_.dtype is DType.OTHER:
            raise Unsupported(Reason.DTYPE, "an input of a dtype that is not computed on")
        self._inputs.append(type_)
        return self._add(Input(len(self._inputs) - 1), (), type_)

    def skip_input(self) -> None:
        """An input that only the fallback reads."""
        self._inputs.append(None)

    def constant(self, value: Any, dtype: DType) -> int:
        """A scalar constant of shape []."""
        bits = np.asarray(value).astype(dtype.numpy).tobytes()
        return self._add(Constant(bits), (), TensorType(dtype, ()))

    def extent(self, dim: Dim, dtype: DType) -> int:
        """The value of `dim` as a scalar of a compute dtype."""
        dim = self.canonical(dim)
        if dim.is_static:
            return self.constant(dim.coefficient, dtype)
        return self._add(Extent(dim), (), TensorType(dtype, ()))

    def iota(self, dim: Dim, dtype: DType) -> int:
        """The integers below `dim`, in order."""
        return self._add(Iota(), (), TensorType(dtype, (self.canonical(dim),)))

    def apply(self, function: str, *operands: int) -> int:
        """An elementwise function, with NumPy broadcasting; f16 and bf16 compute in f32 and round.

        Of scalar constants it is computed here and now.

        Raises:
          Unsupported: for a dtype the function is not defined for, or operands that cannot be broadcast.
        """
        definition = self._functions[function]
        dtypes = {self.dtype(v) for v in operands[definition.selectors :]}
        if len(dtypes) != 1:
            raise Unsupported(Reason.DTYPE, f"{function} of mixed dtypes")
        (dtype,) = dtypes
        if dtype.compute not in definition.dtypes:
            raise Unsupported(Reason.DTYPE, f"{function} of {dtype.value}")
        shape = self.common_shape(*operands)
        wide = [self.broadcast(self.widen(v), shape) for v in operands]
        result = DType.BOOL if definition.to_bool else dtype.compute
        numbers = [self._number(v) for v in wide]
        known = [n for n in numbers if n is not None]
        if len(known) == len(wide):
            with np.errstate(all="ignore"):
                value = self.constant(definition.reference(*known), result)
        else:
            value = self._add(Elementwise(function), tuple(wide), TensorType(result, shape))
        return value if definition.to_bool else self.convert(value, dtype)

    def _number(self, value: int) -> np.ndarray[Any, Any] | None:
        """The value of a scalar constant; None of any other step."""
        step = self._steps[value]
        return np.asarray(step.op.value(step.type.dtype)) if isinstance(step.op, Constant) else None

    def convert(self, value: int, dtype: DType) -> int:
        """A cast; nothing where the dtype is right already. Narrowing to f16 or bf16 rounds."""
        have = self.dtype(value)
        if have is dtype:
            return value
        if DType.F32 not in (have, dtype) and (have.compute is not have or dtype.compute is not dtype):
            return self.convert(self.convert(value, DType.F32), dtype)  # as TF: f64 and i64 round twice
        step = self._steps[value]
        if isinstance(step.op, Constant):
            return self.constant(converted(np.asarray(step.op.value(have)), dtype), dtype)
        return self._add(Elementwise("convert"), (value,), TensorType(dtype, self.shape(value)))

    def widen(self, value: int) -> int:
        """f16 and bf16 to f32, in which they are computed on."""
        return self.convert(value, self.dtype(value).compute)

    def common_shape(self, *operands: int) -> Shape:
        """The broadcast shape of the operands, by NumPy's rule."""
        shapes = [self.shape(v) for v in operands]
        rank = max((len(s) for s in shapes), default=0)
        padded = [(ONE,) * (rank - len(s)) + s for s in shapes]
        result: list[Dim] = []
        for axis in range(rank):
            dim = ONE
            for shape in padded:
                if not self.canonical(shape[axis]).is_one:
                    what = f"broadcast, axis {axis}"
                    dim = shape[axis] if dim.is_one else self.join(dim, shape[axis], what)
            result.append(self.canonical(dim))
        return tuple(result)

    def broadcast(self, value: int, shape: Shape) -> int:
        """`value` repeated to `shape`, by NumPy's rule."""
        have = self.shape(value)
        if len(have) > len(shape):
            raise Unsupported(Reason.UNKNOWN_DIM, "a broadcast to fewer dims")
        have = (ONE,) * (len(shape) - len(have)) + have
        value = self.reshape(value, have)
        for mine, theirs in zip(have, shape, strict=True):
            if not mine.is_one:
                self.join(mine, theirs, "broadcast")
        have, shape = self.shape(value), tuple(self.canonical(d) for d in shape)
        if have == shape:
            return value
        return self._add(Broadcast(), (value,), TensorType(self.dtype(value), shape))

    def reshape(self, value: int, shape: Shape) -> int:
        shape = tuple(self.canonical(d) for d in shape)
        if self.shape(value) == shape:
            return value
        have, want = product(self.shape(value)), product(shape)
        if have != want:
            raise Unsupported(Reason.UNKNOWN_DIM, f"a reshape of {have} elements to {want}")
        step = self._steps[value]
        if isinstance(step.op, Reshape):
            return self.reshape(step.operands[0], shape)
        return self._add(Reshape(), (value,), TensorType(self.dtype(value), shape))

    def transpose(self, value: int, permutation: Sequence[int]) -> int:
        permutation = tuple(int(p) for p in permutation)
        if permutation == tuple(range(len(permutation))):
            return value
        shape = self.shape(value)
        result = TensorType(self.dtype(value), tuple(shape[p] for p in permutation))
        return self._add(Transpose(permutation), (value,), result)

    def slice(self, value: int, begin: Sequence[int], sizes: Shape, step: Sequence[int] | None = None) -> int:
        """`sizes[i]` elements from `begin[i]` (>= 0) on, every `step[i]`-th (may be negative)."""
        steps = tuple(step) if step is not None else (1,) * len(begin)
        shape = self.shape(value)
        if all(b == 0 and s == 1 for b, s in zip(begin, steps, strict=True)) and sizes == shape:
            return value
        return self._add(Slice(tuple(begin), steps), (value,), TensorType(self.dtype(value), sizes))

    def windows(self, value: int, axis: int, count: Dim, size: int, step: int = 1, dilation: int = 1) -> int:
        """`count` windows along `axis`, one every `step` elements, each of every `dilation`-th of them, `size` in all.

        In place of the axis there are two: windows, and the elements of each.
        """
        shape = self.shape(value)
        result = (*shape[:axis], count, Dim(size), *shape[axis + 1 :])
        return self._add(Windows(axis, step, dilation), (value,), TensorType(self.dtype(value), result))

    def concat(self, values: Sequence[int], axis: int, length: Dim | None = None) -> int:
        """The values one behind another along `axis`; they have one rank, and join each other's other dims.

        length: their sum along `axis`, where it has a shorter name than that.
        """
        dims = list(self.shape(values[0]))
        for value in values[1:]:
            shape = self.shape(value)
            if len(shape) != len(dims):
                raise Unsupported(Reason.UNSUPPORTED_OP, "a concatenation of different ranks")
            for other, theirs in enumerate(shape):
                if other != axis:
                    dims[other] = self.join(dims[other], theirs, "a concatenation")
        values = [v for v in values if self.shape(v)[axis] != Dim(0)] or values[:1]
        if len(values) == 1:
            return values[0]
        dims[axis] = self.derived([self.shape(v)[axis] for v in values]) if length is None else self.canonical(length)
        return self._add(Concat(axis), tuple(values), TensorType(self.dtype(values[0]), tuple(dims)))

    def reduce(self, function: str, value: int, axes: Sequence[int], keep_dims: bool = False) -> int:
        """A reduction; f16 and bf16 accumulate in f32 and are rounded once, at the end.

        Raises:
          Unsupported: for a dtype that the reduction is not defined for.
        """
        dtype, shape = self.dtype(value), self.shape(value)
        if dtype.compute not in self._reducers[function].dtypes:
            raise Unsupported(Reason.DTYPE, f"{function} of {dtype.value}")
        axes = tuple(sorted({int(a) % len(shape) for a in axes})) if shape else ()
        kept = tuple(ONE if a in axes else d for a, d in enumerate(shape))
        result = value
        if axes:
            result = self._add(Reduce(function, axes), (self.widen(value),), TensorType(dtype.compute, kept))
            result = self.convert(result, dtype)
        left = tuple(d for a, d in enumerate(shape) if a not in axes)
        return result if keep_dims else self.reshape(result, left)

    def gather(self, table: int, indices: Mapping[int, int], along: Mapping[int, int], shape: Shape) -> int:
        """Elements of `table`, a value of `shape`.

        indices: axis of the table -> integers that broadcast to `shape`. They have to be in range: `require_indices`.
        along: every other axis of the table -> the axis of the result that it becomes.

        Raises:
          Unsupported: where the table is no input.
        """
        if not isinstance(self._steps[table].op, Input):
            raise Unsupported(Reason.UNSUPPORTED_OP, "a table that is computed in the same kernel")
        numbered = list(indices)
        axes = tuple(along[a] if a in along else -1 - numbered.index(a) for a in range(len(self.shape(table))))
        wide = [self.broadcast(indices[a], shape) for a in numbered]
        return self._add(Gather(axes), (table, *wide), TensorType(self.dtype(table), shape))

    def finish(self, outputs: Sequence[int]) -> Body:
        """The body, dead steps left out, joined dims under one name."""

        def renamed(type_: TensorType) -> TensorType:
            return TensorType(type_.dtype, tuple(self.canonical(d) for d in type_.dims))

        alive = set(outputs)
        for index in range(len(self._steps) - 1, -1, -1):
            if index in alive:
                alive.update(self._steps[index].operands)
        index_of: dict[int, int] = {}
        steps: list[Step] = []
        for index in sorted(alive):
            step = self._steps[index]
            operands = tuple(index_of[v] for v in step.operands)
            type_ = renamed(step.type)
            if _moves_nothing(step.op) and steps[operands[0]].type == type_:
                index_of[index] = operands[0]  # joining made it an identity
                continue
            index_of[index] = len(steps)
            op = self._bound(step.op, type_.dtype)
            steps.append(Step(op, operands, type_, step.origin))
        inputs = tuple(None if t is None else renamed(t) for t in self._inputs)
        assumed, self._requires = self._requires, {}
        for small, large in assumed:  # again, now that all dims are joined
            self.require(small, large, "an assumption about dims")
        indices = dict.fromkeys(replace(w, below=self.canonical(w.below)) for w in self._indices)
        types = [*(s.type for s in steps), *(t for t in inputs if t is not None)]
        dims = [d for t in types for d in t.dims] + [s.op.dim for s in steps if isinstance(s.op, Extent)]
        dims += [d for pair in self._requires for d in pair] + [w.below for w in indices]
        return Body(
            tuple(steps),
            inputs,
            tuple(index_of[v] for v in outputs),
            tuple(self._requires),
            tuple(indices),
            self._symbols.derivations_of(dims),
        )

    def _bound(self, op: Op, dtype: DType) -> Op:
        """`op` with joined dims under one name; an extent that became known is a constant."""
        if not isinstance(op, Extent):
            return op
        dim = self.canonical(op.dim)
        return Constant(np.asarray(dim.coefficient, dtype.numpy).tobytes()) if dim.is_static else Extent(dim)


def _moves_nothing(op: Op) -> bool:
    """Whether `op` is an identity wherever its type is that of its operand."""
    if isinstance(op, Slice):
        return not any(op.begin) and all(s == 1 for s in op.step)
    return isinstance(op, Broadcast | Reshape)


_LEAST = {DType.I32: -(2**31), DType.I64: -(2**63)}


def converted(array: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """What `convert` means. Float to integer truncates, and gives the least integer for NaN and out of range.

    That is what x86 does (`cvttss2si`), and hence TensorFlow's CPU kernel (core/kernels/cast_op.h).
    """
    with np.errstate(all="ignore"):
        if dtype not in _LEAST or array.dtype.kind in "iub":
            return array.astype(dtype.numpy)
        least = _LEAST[dtype]
        whole = np.trunc(array.astype(np.float64))
        inside = (whole >= least) & (whole < -least)  # False for NaN
        truncated = np.where(inside, whole, 0.0).astype(dtype.numpy)
        return np.where(inside, truncated, np.asarray(least, dtype.numpy))
