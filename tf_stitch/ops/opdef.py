"""OpDef: the single definition of an op, from which importer, planner, renderer and tests derive theirs.

Three tables live here, filled by the sibling modules:

  FUNCTIONS   what is computed on one element: NumPy reference, C expression, cost;
  REDUCERS    what a reduction combines with: neutral element, combining function, NumPy reference;
  OPS         TensorFlow's ops: how a node is written in steps of a Body (which also gives its type).

Adding an op touches one of the sibling modules and nothing else; the tests walk the tables.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tf_stitch.errors import Reason, Unsupported
from tf_stitch.ir.body import BodyBuilder
from tf_stitch.ir.graph import Node
from tf_stitch.ir.types import ALL, NUMBERS, Dim, DType

Array = np.ndarray[Any, np.dtype[Any]]


class Kind(enum.Enum):
    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"
    MOVEMENT = "movement"
    COMPOSITE = "composite"
    PRODUCT = "product"  # of matrices: compute-intensive, but for small ones


class Cost(enum.Enum):
    LIGHT = 1  # an instruction or two
    HEAVY = 10  # a transcendental, a division, a root: not to be computed twice


class ZeroSign(enum.Enum):
    """What becomes of the sign of an operand that is zero."""

    SEEN = "seen"  # it may show in any result
    PASSED = "passed"  # it shows, if at all, as the sign of a zero or of a NaN
    HIDDEN = "hidden"


@dataclass(frozen=True)
class Function:
    """What an elementwise step computes for one element.

    name: what Elementwise.function holds.
    arity: number of operands.
    reference: the same on NumPy arrays of compute dtypes.
    cpp: a C++ expression over packs, `{0}` `{1}` being the operands; over scalars it is CUDA's, too.
    dtypes: the compute dtypes it is defined for.
    to_bool: the result is a bool, not the operands' dtype.
    selectors: how many leading operands are bools (1 for select).
    cuda: the expression over scalars, where that of `cpp` means something else on them; else "".
    zero_sign: of any of its operands.
    no_minus_zero: no result is -0.
    header: the prelude header that the expression needs besides `core.h`, or "".
    domain: the interval that tests draw from.
    ulps: how far from the correctly rounded f32 result it may be.
    """

    name: str
    arity: int
    reference: Callable[..., Array]
    cpp: str
    cost: Cost = Cost.LIGHT
    dtypes: frozenset[DType] = NUMBERS
    to_bool: bool = False
    selectors: int = 0
    cuda: str = ""
    zero_sign: ZeroSign = ZeroSign.SEEN
    no_minus_zero: bool = False
    header: str = ""
    domain: tuple[float, float] = (-10.0, 10.0)
    ulps: float = 0.5


@dataclass(frozen=True)
class Reducer:
    """A reduction: `combine` says how two packs become one, `horizontal` folds the lanes of one.

    combine: one of add, mul, max, min, and, or.
    neutral: the element it starts from, for each compute dtype.
    reference: the NumPy reduction (takes `axis` and `keepdims`).
    """

    name: str
    combine: str
    horizontal: str
    neutral: Callable[[DType], Any]
    reference: Callable[..., Array]
    dtypes: frozenset[DType] = NUMBERS


@dataclass(frozen=True)
class Operands:
    """What an expansion sees of a node: its operands as steps of the body under construction, and its facts.

    values: one step per data operand; None for a static one (see OpDef.static).
    constants: the operand's value where it is known, else None.
    extents: for an integer operand computed from shapes, the dims it holds, else None.
    """

    node: Node
    values: tuple[int | None, ...]
    constants: tuple[Array | None, ...]
    extents: tuple[tuple[Dim, ...] | None, ...]

    def __getitem__(self, index: int) -> int:
        value = self.values[index]
        assert value is not None, f"operand {index} of {self.node.op} is static"
        return value

    def __len__(self) -> int:
        return len(self.values)

    def attribute(self, name: str, default: Any = None) -> Any:
        return self.node.attributes.get(name, default)

    def static(self, index: int) -> Array:
        """The value of an operand that must be known.

        Raises:
          Unsupported: where it is not.
        """
        value = self.constants[index]
        if value is None:
            raise Unsupported(Reason.UNSUPPORTED_OP, f"operand {index} of {self.node.op} is not a constant")
        return value

    def integers(self, index: int) -> list[int]:
        """The value of a static operand of integers (axes, say), flat; known, if only because shapes are."""
        dims = self.extents[index]
        if self.constants[index] is None and dims is not None and all(d.is_static for d in dims):
            return [d.coefficient for d in dims]
        return [int(i) for i in self.static(index).ravel()]

    def dims(self, index: int) -> tuple[Dim, ...]:
        """The dims that a shape operand holds: constants (`Dim(-1)` for -1) or else extents.

        Raises:
          Unsupported: where it is neither.
        """
        value, extents = self.constants[index], self.extents[index]
        if value is not None:
            return tuple(Dim(int(i)) for i in value.ravel())
        if extents is None:
            raise Unsupported(Reason.UNKNOWN_DIM, f"operand {index} of {self.node.op} is not known")
        return extents

    def unsupported(self, what: str, reason: Reason = Reason.UNSUPPORTED_OP) -> Unsupported:
        """To be raised: an exception that names the op."""
        return Unsupported(reason, f"{self.node.op}: {what}")


Expansion = Callable[[BodyBuilder, Operands], int | Sequence[int | None]]


@dataclass(frozen=True)
class OpDef:
    """How a TensorFlow op is written in steps of a Body; its type follows from the steps.

    tf_names: the ops that it stands for.
    kind: how the planner thinks of it.
    expand: adds steps to a body, returns the step of each output (one, or several in order; None for an
      output that is not produced: a node of which such an output is read cannot be expanded).
    static: operands that are read when the code is generated and are no data (axes, shapes); -1 is the last.
    outside: operands that have to be complete before the kernel begins: tables and indices.
    gathers: whether its result is put together from its operands, each of which is stored in its place.
    places: static operands that may be data after all, where their value is not known. Then the op is a lookup: they
      and operand 0 have to be complete before the kernel begins; and as TensorFlow's kernels for GPUs have them in the
      host's memory, where they raise if one is out of range, no kernel for GPUs has such a lookup (`passes.legality`).
    samples: for tests: attributes to try, a tuple of dicts.
    dtypes: the dtypes of the node's attribute `T` that TensorFlow has a CPU kernel for and that we expand.
    notes: for the op table in the documentation: limits, and where we differ from TensorFlow.
    """

    tf_names: tuple[str, ...]
    kind: Kind
    expand: Expansion
    static: tuple[int, ...] = ()
    outside: tuple[int, ...] = ()
    gathers: bool = False
    places: tuple[int, ...] = ()
    samples: tuple[dict[str, Any], ...] = field(default=({},))
    dtypes: frozenset[DType] = NUMBERS
    notes: str = ""

    def static_operands(self, count: int, is_known: Callable[[int], bool] = lambda _: True) -> frozenset[int]:
        """Of `count` operands; is_known: whether the value of an operand is."""
        return frozenset(i % count for i in self.static) - self.unknown_places(is_known)

    def outside_operands(self, is_known: Callable[[int], bool]) -> frozenset[int]:
        """The operands that have to be complete before the kernel begins."""
        places = self.unknown_places(is_known)
        return frozenset(self.outside) | (places | {0} if places else places)

    def unknown_places(self, is_known: Callable[[int], bool]) -> frozenset[int]:
        """The operands that make the op a lookup."""
        return frozenset(i for i in self.places if not is_known(i))


FUNCTIONS: dict[str, Function] = {}
REDUCERS: dict[str, Reducer] = {}
OPS: dict[str, OpDef] = {}


def is_heavy(function: str) -> bool:
    """Whether an elementwise step's function is too dear to be computed twice; a cast never is."""
    return function in FUNCTIONS and FUNCTIONS[function].cost is Cost.HEAVY


def define(*functions: Function) -> None:
    """Adds to FUNCTIONS."""
    for function in functions:
        assert function.name not in FUNCTIONS, f"function {function.name} is defined twice"
        FUNCTIONS[function.name] = function


def define_op(*ops: OpDef) -> None:
    """Adds to OPS, under each of the op's TensorFlow names."""
    for op in ops:
        for name in op.tf_names:
            assert name not in OPS, f"op {name} is defined twice"
            OPS[name] = op


def elementwise(tf_names: str, function: Function, notes: str = "") -> None:
    """The common case: TensorFlow op(s) that are one function of their operands, in order."""
    define(function)
    expand_function(tf_names, function.name, notes)


def expand_function(tf_names: str, function: str, notes: str = "") -> None:
    """TensorFlow op(s) that are an already defined function of their operands."""

    def expand(b: BodyBuilder, x: Operands) -> int:
        return b.apply(function, *(x[i] for i in range(len(x))))

    dtypes = with_halves(FUNCTIONS[function].dtypes)
    define_op(OpDef(tuple(tf_names.split()), Kind.ELEMENTWISE, expand, dtypes=dtypes, notes=notes))


def with_halves(compute: frozenset[DType]) -> frozenset[DType]:
    """The dtypes that compute in one of `compute`: with f32 come f16 and bf16."""
    return frozenset(d for d in ALL if d.compute in compute)


def wide(b: BodyBuilder, x: Operands, expand: Callable[..., int]) -> int:
    """`expand(b, *operands)` with f16 and bf16 operands widened to f32, and its result rounded once.

    TensorFlow rounds after each step of such a formula: the one rounding is never further from float64.
    """
    result = expand(b, *(b.widen(x[i]) for i in range(len(x))))
    return b.convert(result, b.dtype(x[len(x) - 1]))


def same_shape(b: BodyBuilder, what: str, *values: int) -> None:
    """Joins the shapes of operands that TensorFlow does not broadcast.

    Raises:
      Unsupported: where they are not the same.
    """
    first = b.shape(values[0])
    for value in values[1:]:
        shape = b.shape(value)
        if len(shape) != len(first):
            raise Unsupported(Reason.UNKNOWN_DIM, f"{what}: operands of different ranks")
        for mine, theirs in zip(first, shape, strict=True):
            b.join(mine, theirs, what)


def axis_of(axis: int, rank: int, what: str) -> int:
    """A possibly negative axis as one in [0, rank).

    Raises:
      Unsupported: where it is out of range, which TensorFlow reports when the op runs.
    """
    if not -rank <= axis < rank:
        raise Unsupported(Reason.UNSUPPORTED_OP, f"{what}: axis {axis} of a tensor of rank {rank}")
    return axis % rank


__all__ = [
    "ALL",
    "FUNCTIONS",
    "NUMBERS",
    "OPS",
    "REDUCERS",
    "Array",
    "Cost",
    "Function",
    "Kind",
    "OpDef",
    "Operands",
    "Reducer",
    "ZeroSign",
    "axis_of",
    "define",
    "define_op",
    "elementwise",
    "expand_function",
    "is_heavy",
    "same_shape",
    "wide",
    "with_halves",
]
