"""Kernel: the loop IR, from which C++ and CUDA are printed and which `interp` runs in NumPy.

    Kernel
      Nest       one loop nest: for every row (all combinations of `outer` coordinates) ...
        Sweep      ... one pass over the row's elements (`inner` coordinates)
          row        scalars, computed once at the head of the pass
          elements   computed for each element; they may load, store and accumulate
        finish     scalars and stores after the last pass

A name is assigned once within a nest. A name assigned in `row` is a scalar, one assigned in `elements` a vector.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tf_stitch.ir.body import Within
from tf_stitch.ir.symbols import Derivation, Derivations
from tf_stitch.ir.types import ONE, Dim, DType, TensorType

_ZERO = Dim(0)


class Place(enum.Enum):
    """Where a buffer lives."""

    INPUT = "input"
    OUTPUT = "output"
    SCRATCH = "scratch"  # shared by all tasks of the call
    TILE = "tile"  # one row, of the running task


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory that a kernel reads or writes. `index` counts within its place; `size` is in elements."""

    place: Place
    index: int
    name: str
    dtype: DType
    size: Dim


@dataclass(frozen=True, slots=True)
class Access:
    """Element `sum(offset) + sum(coordinate * stride)` of a buffer.

    strides: one per axis of the nest, outer axes first.
    offset: the terms of a sum (`ir.types.terms_of`); none where it is 0.
    """

    buffer: Buffer
    strides: tuple[Dim, ...]
    offset: tuple[Dim, ...] = ()

    def offset_at(self, symbols: Mapping[str, int]) -> int:
        """The offset for these values of the symbols."""
        return sum(term.evaluate(symbols) for term in self.offset)


@dataclass(frozen=True, slots=True)
class LookUp:
    """`value`, the name of an integer, times `stride`. The table has `below` elements along this axis.

    An index that is not in [0, below) keeps a CPU's kernel from running (`Kernel.indices`); a GPU's finds a 0 there.
    """

    value: str
    stride: Dim
    below: Dim


@dataclass(frozen=True, slots=True)
class Load:
    """at: what is added to where the access is, of a table whose indices are known only when the kernel runs."""

    name: str
    dtype: DType
    access: Access
    at: tuple[LookUp, ...] = ()


@dataclass(frozen=True, slots=True)
class Literal:
    name: str
    dtype: DType
    bits: bytes


@dataclass(frozen=True, slots=True)
class ExtentOf:
    """The run-time value of a dim, as a number."""

    name: str
    dtype: DType
    dim: Dim


@dataclass(frozen=True, slots=True)
class Coordinate:
    """The number `sum(offset) + sum(coordinate * stride)`, an integer; strides as those of an Access."""

    name: str
    dtype: DType
    strides: tuple[Dim, ...]
    offset: tuple[Dim, ...] = ()


@dataclass(frozen=True, slots=True)
class Compute:
    """`function` of `operands`; "convert" casts from the operand's dtype to this one."""

    name: str
    dtype: DType
    function: str
    operands: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reduced:
    """The result of reduction number `reduction` of the nest, valid after its sweep."""

    name: str
    dtype: DType
    reduction: int


@dataclass(frozen=True, slots=True)
class Accumulate:
    reduction: int
    value: str


@dataclass(frozen=True, slots=True)
class Store:
    access: Access
    value: str
    dtype: DType


Statement = Load | Literal | ExtentOf | Coordinate | Compute | Reduced | Accumulate | Store


def operands(statement: Statement) -> tuple[str, ...]:
    """The names that a statement reads."""
    match statement:
        case Compute():
            return statement.operands
        case Load(at=at):
            return tuple(a.value for a in at)
        case Accumulate(value=value) | Store(value=value):
            return (value,)
        case _:
            return ()


@dataclass(frozen=True, slots=True)
class Reduction:
    """One reduction of a nest, carried out in sweep number `sweep`."""

    name: str
    reducer: str
    dtype: DType
    sweep: int


@dataclass(frozen=True, slots=True)
class Sweep:
    row: tuple[Statement, ...]
    elements: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A tile that holds the `period` elements at `source` again and again; filled once by each task."""

    tile: Buffer
    source: Access
    period: int


@dataclass(frozen=True)
class Nest:
    """A loop nest. `inner[-1]` is the vector axis.

    repeats: tiles whose element `n - begin` belongs to element n of a block that begins at `begin`.
    nanoseconds: estimate for one element, all sweeps; the host sizes its tasks by it.
    """

    outer: tuple[Dim, ...]
    inner: tuple[Dim, ...]
    sweeps: tuple[Sweep, ...]
    finish: tuple[Statement, ...]
    reductions: tuple[Reduction, ...]
    tiles: tuple[Buffer, ...]
    nanoseconds: float
    repeats: tuple[Repeat, ...] = ()


def statements(nest: Nest) -> Iterator[Statement]:
    """All statements of a nest, in order."""
    for sweep in nest.sweeps:
        yield from sweep.row
        yield from sweep.elements
    yield from nest.finish


def runs_down(outer: Sequence[Dim], accesses: Iterable[Access]) -> bool:
    """Whether what is reduced lies in columns: neighbours in memory are neighbours along the last outer axis.

    Only what varies along both axes has a say: a row's or a column's value is read once for many either way.
    """
    if not outer or outer[-1].is_one:
        return False
    balance = 0
    for access in accesses:
        across, along = access.strides[len(outer) - 1], access.strides[-1]
        if _ZERO not in (across, along):
            balance += (across == ONE) - (along == ONE)
    return balance > 0


@dataclass(frozen=True, slots=True)
class SymbolSource:
    """`symbol` is dim `axis` of input `input` divided by `divisor`, whose symbols come earlier."""

    symbol: str
    input: int
    axis: int
    divisor: Dim


@dataclass(frozen=True, slots=True)
class DerivedSymbol:
    """`symbol` is what `derivation` makes of symbols that come earlier."""

    symbol: str
    derivation: Derivation


@dataclass(frozen=True, slots=True)
class Guard:
    """Dim `axis` of input `input` must be `dim`; `text` says so in words."""

    input: int
    axis: int
    dim: Dim
    text: str


@dataclass(frozen=True, slots=True)
class Bound:
    """`small` must not be above `large`; `text` says so in words."""

    small: Dim
    large: Dim
    text: str


@dataclass(frozen=True)
class Kernel:
    """Everything that is printed.

    inputs: one type per StitchOp input, None where the kernel does not read it.
    forwards: (input, output) pairs: the output may be computed into the input's buffer.
    indices: what must hold of the integers in inputs, where the host can look at them: not in a GPU's memory.
    """

    name: str
    inputs: tuple[TensorType | None, ...]
    outputs: tuple[TensorType, ...]
    symbols: tuple[SymbolSource | DerivedSymbol, ...]
    guards: tuple[Guard, ...]
    scratch: tuple[Buffer, ...]
    nests: tuple[Nest, ...]
    forwards: tuple[tuple[int, int], ...]
    bounds: tuple[Bound, ...] = ()
    indices: tuple[Within, ...] = ()

    @property
    def derivations(self) -> Derivations:
        return tuple((s.symbol, s.derivation) for s in self.symbols if isinstance(s, DerivedSymbol))

    @property
    def traffic(self) -> Mapping[Dim, int]:
        """Bytes that a call moves, each array once: the sum of size * bytes."""
        arrays = [(t.size, t.dtype) for t in (*self.inputs, *self.outputs) if t is not None]
        found: Counter[Dim] = Counter()
        for size, dtype in (*arrays, *((b.size, b.dtype) for b in self.scratch)):
            found[size] += dtype.size
        return found
