"""Types: a dtype and symbolic dims for every value, from what is declared and what our own op table implies.

Declared shapes (TensorFlow's own inference) know ranks and static dims but, in a saved function, not which
unknown dims are equal. The op table knows: the sum of two f32[B, 768] is f32[B, 768] again. For each axis
of each value the two are merged:

    declared      inferred      result
    32            B             32, and B is 32 everywhere
    ?             B             B
    s7 (seen)     B             one symbol for both: they are equal
    32            16            32: a declaration is believed
    s7 (seen)     B against C   s7: a broadcast of unknown dims is a dim of its own unless declared equal
    s8, s8 (new)  B, C          B, C: an unknown dim that one node makes up and uses twice says nothing

All of it is true of every run. What a kernel merely assumes (a slice of 128 of an axis of S means 128 <= S)
is not said here, since another kernel that reads the value would not check it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tf_stitch.errors import Reason, Unsupported
from tf_stitch.ir.body import BodyBuilder, Broadcast, Reshape
from tf_stitch.ir.graph import Value
from tf_stitch.ir.symbols import Symbols, is_lone
from tf_stitch.ir.types import ONE, Dim, DType, Shape, TensorType
from tf_stitch.ops import FUNCTIONS, OPS, REDUCERS, Operands
from tf_stitch.ops.compute import COMPUTE_TYPES
from tf_stitch.ops.extents import LARGEST, extents_of_outputs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tf_stitch.ir.graph import Node

Turns = dict[str, frozenset[int] | None]
"""For a loop's Merge, the axes whose dims its turns may change; None where they may change the rank."""

Declared = tuple[int | None, ...] | None
"""A declared shape, or None. A dim is None where unknown; a negative one is the number of a symbol."""

PASSING = frozenset({
    "CheckNumerics", "CheckNumericsV2", "DebugIdentityV2", "DebugIdentityV3", "Enter", "EnsureShape",
    "Exit", "Identity", "IdentityN", "NextIteration", "PlaceholderWithDefault", "PreventGradient",
    "RefEnter", "RefExit", "RefIdentity", "RefNextIteration", "RefSwitch", "Snapshot", "StopGradient",
    "Switch", "_SwitchN",
})  # fmt: skip
"""Ops whose outputs have the type of their first input (IdentityN: of the input of the same number)."""


class Types:
    """Types and extents of the values seen so far, and constants among them.

    `settle` writes the last word on equal symbols into them. turns: what loops are taken to change; see `turns`.
    held: extents that are known beforehand, of values that are read out of lists.
    """

    def __init__(
        self, constants: dict[Value, Any], turns: Turns, held: Mapping[Value, tuple[Dim, ...]] | None = None
    ) -> None:
        self.types: dict[str, tuple[TensorType, ...]] = {}
        self._held = held or {}
        self.extents: dict[Value, tuple[Dim, ...]] = {}
        self.constants = constants
        self._turns = turns
        self._dims = _Dims()
        self._builder = _TypeBuilder(self._dims)
        self._steps: dict[TensorType, int] = {}

    def add(self, node: Node, dtypes: Sequence[DType], declared: Sequence[Declared] | None) -> None:
        """Types `node`, whose producers (back edges aside) have been added before it."""
        self._dims.doubt_repeated(declared or ())
        inferred = self._inferred(node, len(dtypes), declared)
        types: list[TensorType] = []
        for index, dtype in enumerate(dtypes):
            shape = declared[index] if declared is not None and index < len(declared) else None
            mine = inferred[index] if inferred is not None and index < len(inferred) else None
            if mine is not None and mine.dtype is not dtype and DType.OTHER not in (mine.dtype, dtype):
                mine = None
            types.append(TensorType(dtype, self._merged(shape, None if mine is None else mine.shape)))
        self.types[node.name] = tuple(types)
        self._note_extents(node)

    def operand(self, value: Value) -> TensorType:
        """The type of a value; of unknown rank if it is the back edge of a loop."""
        types = self.types.get(value.node)
        return types[value.index] if types is not None and value.index < len(types) else _UNKNOWN

    def numbers(self, value: Value) -> tuple[Dim, ...] | None:
        """The dims that a small integer tensor holds, computed or constant; None where they are not known."""
        constant = self.constants.get(value)
        if constant is None or constant.dtype.kind not in "iu" or constant.size > LARGEST:
            return self.extents.get(value)
        return tuple(Dim(int(number)) for number in constant.ravel())

    def settle(self) -> None:
        """Replaces every symbol by the name or number that it turned out to stand for."""
        if not self._dims.joined:
            return
        known: dict[TensorType, TensorType] = {}
        for name, types in self.types.items():
            self.types[name] = tuple(self._settled(t, known) for t in types)
        for value, dims in self.extents.items():
            self.extents[value] = tuple(map(self._dims.canonical, dims))

    def turns(self, merge: Node) -> frozenset[int] | None:
        """What the turns of this Merge's loop may change, seen when all of the loop is typed and settled.

        A Merge is typed as if turns changed no more than what was given, so only if that comes out again is it true.
        """
        mine, given = self.types[merge.name][0], self._turns[merge.name]
        shapes = [self.operand(v).shape for v in merge.inputs]
        if given is None or mine.shape is None or any(s is None or len(s) != len(mine.shape) for s in shapes):
            return None
        known = [mine.shape, *(s for s in shapes if s is not None)]
        return given | {axis for axis, dims in enumerate(zip(*known, strict=True)) if len(set(dims)) > 1}

    def _settled(self, type_: TensorType, known: dict[TensorType, TensorType]) -> TensorType:
        if type_.shape is None:
            return type_
        found = known.get(type_)
        if found is None:
            shape = tuple(map(self._dims.canonical, type_.shape))
            found = known[type_] = TensorType(type_.dtype, shape)
        return found

    # -- inference -----------------------------------------------------------------------------------------

    def _note_extents(self, node: Node) -> None:
        operands = [self.operand(v) for v in node.inputs]
        typed = replace(node, types=self.types[node.name])
        for index, dims in enumerate(extents_of_outputs(typed, operands, *self._knowledge(node))):
            if dims is not None:
                self.extents[Value(node.name, index)] = dims
                self._note_constant(node, index, dims)
        for index in range(len(typed.types)) if self._held else ():
            held = self._held.get(Value(node.name, index))
            if held is not None:
                self.extents[Value(node.name, index)] = held

    def _note_constant(self, node: Node, index: int, dims: Sequence[Dim]) -> None:
        """Arithmetic on constants is a constant: the permutation that tf.tensordot concatenates, say."""
        type_ = self.types[node.name][index]
        if (
            type_.dtype in (DType.I32, DType.I64)
            and type_.shape is not None
            and all(d.is_static for d in (*dims, *type_.shape))
            and node.inputs
            and all(v in self.constants for v in node.inputs)
        ):
            shape = tuple(d.coefficient for d in type_.shape)
            values: Any = np.array([d.coefficient for d in dims], type_.dtype.numpy)
            self.constants[Value(node.name, index)] = values.reshape(shape)

    def _knowledge(self, node: Node) -> tuple[tuple[Any, ...], tuple[tuple[Dim, ...] | None, ...]]:
        """The operands' values, and the dims they hold, where known."""
        return tuple(map(self.constants.get, node.inputs)), tuple(map(self.extents.get, node.inputs))

    def _inferred(
        self, node: Node, outputs: int, declared: Sequence[Declared] | None
    ) -> Sequence[TensorType | None] | None:
        operands = tuple(self.operand(v) for v in node.inputs)
        if node.op in OPS:
            try:
                return self._expanded(node, operands)
            except Unsupported:
                pass  # FusedBatchNorm in training, say, has an expansion and a type rule
        if node.op in COMPUTE_TYPES:
            return COMPUTE_TYPES[node.op](node, operands, *self._knowledge(node), self._dims)
        if node.op in PASSING and operands:
            return operands if node.op == "IdentityN" else [operands[0]] * outputs
        if node.name in self._turns:
            return [self._in_every_turn(node)]
        if node.op in ("Merge", "RefMerge"):
            return [self._common(operands)]
        if node.op == "Reshape":
            return [self._reshaped(node, operands[0])]
        if node.op == "ResourceGather" and declared:
            return [self._gathered(node, operands[1], declared[0])]
        return None

    def _reshaped(self, node: Node, operand: TensorType) -> TensorType | None:
        """A reshape whose -1 is no product of known dims: the others are what the shape operand holds.

        One element has dims of 1 only, however its shape was computed.
        """
        dims = self.extents.get(node.inputs[1])
        if operand.shape is not None and operand.size.is_one and self.operand(node.inputs[1]).rank == 1:
            (rank,) = self.operand(node.inputs[1]).dims
            return TensorType(operand.dtype, (ONE,) * rank.coefficient) if rank.is_static else None
        if dims is None:
            return None
        return TensorType(operand.dtype, tuple(self._dims.fresh() if d.coefficient < 0 else d for d in dims))

    def _gathered(self, node: Node, indices: TensorType, declared: Declared) -> TensorType | None:
        """Rows of a variable, whose shape is not known here: dims of the indices, then what is declared."""
        if indices.shape is None or declared is None or node.attributes.get("batch_dims", 0):
            return None
        rows = tuple(self._dims.declared(d) for d in declared[len(indices.shape) :])
        return TensorType(node.attributes.get("dtype", DType.OTHER), (*indices.shape, *rows))

    def _expanded(self, node: Node, operands: Sequence[TensorType]) -> list[TensorType | None]:
        definition = OPS[node.op]
        constants, extents = self._knowledge(node)
        known = [c is not None or e is not None for c, e in zip(constants, extents, strict=True)]
        static = definition.static_operands(len(operands), known.__getitem__) if operands else frozenset[int]()
        values = tuple(None if i in static else self._step(t) for i, t in enumerate(operands))
        self._builder.origin = node.name
        steps = definition.expand(self._builder, Operands(node, values, constants, extents))
        steps = [steps] if isinstance(steps, int) else steps
        return [None if s is None else self._builder.settled_type(s) for s in steps]

    def _step(self, type_: TensorType) -> int:
        """A step that stands for any value of this type."""
        step = self._steps.get(type_)
        if step is None:
            step = self._steps[type_] = self._builder.input(type_)
        return step

    def _common(self, operands: Sequence[TensorType]) -> TensorType:
        """What the branches that meet in a Merge agree on."""
        shapes = [t.shape for t in operands]
        first = operands[0] if operands else _UNKNOWN
        if any(s is None for s in shapes) or len({len(s) for s in shapes if s is not None}) != 1:
            return _UNKNOWN
        known = [s for s in shapes if s is not None]
        dims = [axis[0] if len(set(axis)) == 1 else self._dims.fresh() for axis in zip(*known, strict=True)]
        return TensorType(first.dtype, tuple(dims))

    def _in_every_turn(self, merge: Node) -> TensorType:
        entered = self._common([self.operand(v) for v in merge.inputs if v.node in self.types])
        changed = self._turns[merge.name]
        if entered.shape is None or changed is None:
            return _UNKNOWN
        dims = (self._dims.fresh() if axis in changed else d for axis, d in enumerate(entered.shape))
        return TensorType(entered.dtype, tuple(dims))

    # -- merging -------------------------------------------------------------------------------------------

    def _merged(self, declared: Declared, inferred: Shape | None) -> Shape | None:
        if declared is None:
            return inferred
        if inferred is None or len(inferred) != len(declared):
            return tuple(self._dims.declared(d) for d in declared)
        return tuple(self._dims.merged(d, i) for d, i in zip(declared, inferred, strict=True))


class _Dims(Symbols):
    """Symbols, and which of them turned out to be equal to one another or to a number."""

    def __init__(self) -> None:
        super().__init__()
        self._count = 0
        self._declared: dict[int, Dim] = {}
        self._doubted: set[int] = set()
        self._pairs: dict[frozenset[Dim], Dim] = {}
        self._pair_symbols: set[str] = set()

    def fresh(self) -> Dim:
        self._count += 1
        return Dim.symbol(f"d{self._count}")

    def broadcast(self, a: Dim, b: Dim) -> Dim:
        """The dim of a broadcast of `a` against `b`: a dim of its own where both are unknown and differ."""
        a, b = self.canonical(a), self.canonical(b)
        if a == b or b.is_one:
            return a
        if a.is_one:
            return b
        if a.is_static and b.is_static:
            raise Unsupported(Reason.UNKNOWN_DIM, f"a broadcast of {a} against {b}")
        if a.is_static or b.is_static:
            return a if a.is_static else b
        pair = frozenset((a, b))
        if pair not in self._pairs:
            dim = self._pairs[pair] = self.fresh()
            self._pair_symbols.update(dim.symbols)
        return self.canonical(self._pairs[pair])

    def doubt_repeated(self, shapes: Sequence[Declared]) -> None:
        """Does not believe a symbol that comes up in these outputs of one node, nowhere before, and more than once.

        Where they know nothing, some of TensorFlow's shape functions say so with one unknown dim for all: for both
        axes that SpaceToBatchND pads, for all parts that SplitV or DynamicPartition makes.
        """
        symbols = [d for shape in shapes for d in shape or () if d is not None and d < -1]
        if len(symbols) > 1:
            self._doubted |= {d for d, n in Counter(symbols).items() if n > 1 and d not in self._declared}

    def declared(self, dim: int | None) -> Dim:
        """A declared dim that nothing was inferred for."""
        if dim is None or dim == -1 or dim in self._doubted:
            return self.fresh()
        if dim >= 0:
            return Dim(dim)
        if dim not in self._declared:
            self._declared[dim] = Dim.symbol(f"s{-dim}")
        return self.canonical(self._declared[dim])

    def merged(self, declared: int | None, inferred: Dim) -> Dim:
        """One dim out of a declared and an inferred one; see the table at the top."""
        inferred = self.canonical(inferred)
        if declared is None or declared == -1 or declared in self._doubted:
            return inferred
        if declared >= 0:
            static = Dim(declared)
            self._join(inferred, static)
            return static
        known = self._declared.get(declared)
        if known is None:
            self._declared[declared] = inferred
            return inferred
        known = self.canonical(known)
        if inferred.symbols and inferred.symbols[0] in self._pair_symbols:
            self._join(inferred, known)
            return known
        self._join(known, inferred)
        return self.canonical(inferred)

    def _join(self, a: Dim, b: Dim) -> None:
        """Notes that `a` and `b` are equal, if one of them is a lone symbol: best one that follows from no other."""
        for lone, other in sorted(((a, b), (b, a)), key=lambda pair: any(map(self.follows, pair[0].symbols))):
            if is_lone(lone) and not self.speaks_of(other, lone.symbols[0]):
                self.joined[lone.symbols[0]] = other
                return


class _TypeBuilder(BodyBuilder):
    """A scratch body of which only the types are read: it joins no dims, for here nothing guards them."""

    def __init__(self, dims: _Dims) -> None:
        super().__init__(FUNCTIONS, REDUCERS)
        self._dims = self._symbols = dims

    def join(self, a: Dim, b: Dim, what: str) -> Dim:
        a, b = self.canonical(a), self.canonical(b)
        if a.is_static and b.is_static and a != b:
            raise Unsupported(Reason.UNKNOWN_DIM, f"{what}: dims {a} and {b}")
        return b if b.is_static else a

    def require(self, small: Dim, large: Dim, what: str, *, or_error: bool = False) -> None:
        small, large = self.canonical(small), self.canonical(large)
        known = self._dims.is_at_most(small, large)
        if not known and not (or_error and not (small.is_static and large.is_static)):
            raise Unsupported(Reason.UNKNOWN_DIM, f"{what}: {small} may be more than {large}")

    def settled_type(self, value: int) -> TensorType:
        return TensorType(self.dtype(value), self.shape(value))

    def common_shape(self, *operands: int) -> Shape:
        result: Shape = ()
        for operand in operands:
            shape = self.shape(operand)
            rank = max(len(shape), len(result))
            result = (ONE,) * (rank - len(result)) + result
            shape = (ONE,) * (rank - len(shape)) + shape
            result = tuple(map(self._dims.broadcast, result, shape))
        return result

    def broadcast(self, value: int, shape: Shape) -> int:
        if len(self.shape(value)) > len(shape):
            raise Unsupported(Reason.UNKNOWN_DIM, "a broadcast to fewer dims")
        return value if self.shape(value) == shape else self._typed(Broadcast(), value, shape)

    def reshape(self, value: int, shape: Shape) -> int:
        return value if self.shape(value) == shape else self._typed(Reshape(), value, shape)

    def _typed(self, op: Broadcast | Reshape, value: int, shape: Shape) -> int:
        return self._add(op, (value,), TensorType(self.dtype(value), shape))


_UNKNOWN = TensorType(DType.OTHER, None)
