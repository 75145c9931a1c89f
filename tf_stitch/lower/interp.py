"""Interp: a Kernel run in NumPy, so that what lowering decided can be tested without a compiler.

    run(kernel, [x, gamma])      ->      the outputs, in order

All rows of a nest go through a sweep at once: a row's scalars are arrays of shape [rows, 1], its elements of
[rows, elements], and an access is an array of offsets. Sums are NumPy's: a kernel's differ by a few ulps.

Memory is watched: an offset outside its buffer, a read of what was never written (scratch and tiles are
poisoned besides) and a second write to one element are Faults. All three are bugs of ours.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tf_stitch.ir.body import converted
from tf_stitch.lower.kernel import (
    Accumulate,
    Compute,
    Coordinate,
    DerivedSymbol,
    ExtentOf,
    Literal,
    Load,
    Place,
    Reduced,
    Store,
)
from tf_stitch.ops import FUNCTIONS, REDUCERS
from tf_stitch.runtime.reference import GuardFailed, check_indices

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tf_stitch.ir.types import Dim, DType
    from tf_stitch.lower.kernel import Access, Kernel, LookUp, Nest, Repeat, Statement

    Array = np.ndarray[Any, np.dtype[Any]]

_POISON = {"f": np.nan, "i": 0x7B7B7B7B, "b": True}


class Fault(AssertionError):
    """A kernel that reads or writes memory as none may."""


def run(kernel: Kernel, inputs: Sequence[Array | None], *, guarded: bool = True) -> list[Array]:
    """The outputs of `kernel`; `inputs` has one array an input, None where the kernel does not read it.

    guarded: whether an index that is out of range fails, as on a CPU; else it finds a 0, as on a GPU.

    Raises:
      GuardFailed: where the inputs are not what was planned for; a stitched op would run its fallback.
      Fault: where the kernel is wrong.
    """
    symbols = bind(kernel, inputs)
    if guarded:
        check_indices(kernel.indices, inputs, symbols)
    memory: dict[tuple[Place, int], _Memory] = {}
    for number, (type_, array) in enumerate(zip(kernel.inputs, inputs, strict=True)):
        if type_ is not None and array is not None:
            flat = np.ravel(np.ascontiguousarray(array))
            memory[Place.INPUT, number] = _Memory(f"input {number}", flat, written=True)
    for number, type_ in enumerate(kernel.outputs):
        shape = (type_.size.evaluate(symbols),)
        memory[Place.OUTPUT, number] = _blank(f"output {number}", type_.dtype, shape)
    for buffer in kernel.scratch:
        shape = (buffer.size.evaluate(symbols),)
        memory[Place.SCRATCH, buffer.index] = _blank(buffer.name, buffer.dtype, shape)
    with np.errstate(all="ignore"):
        for nest in kernel.nests:
            _Run(nest, symbols, memory).run()
    results: list[Array] = []
    for number, type_ in enumerate(kernel.outputs):
        output = memory[Place.OUTPUT, number]
        if not output.written.all():
            raise Fault(f"{output.name}: {int((~output.written).sum())} elements are never written")
        results.append(np.reshape(output.content, _extents(type_.dims, symbols)))
    return results


def bind(kernel: Kernel, inputs: Sequence[Array | None]) -> dict[str, int]:
    """The value of each symbol. What inputs hold is not looked at.

    Raises:
      GuardFailed: with the text of the guard that does not hold.
    """
    for type_, array in zip(kernel.inputs, inputs, strict=True):
        if type_ is not None and (array is None or array.ndim != len(type_.dims)):
            raise GuardFailed("the inputs have the ranks that were planned for")
    symbols: dict[str, int] = {}
    for source in kernel.symbols:
        if isinstance(source, DerivedSymbol):
            symbols[source.symbol] = source.derivation.evaluate(symbols)
            continue
        divisor, extent = source.divisor.evaluate(symbols), _dim(inputs, source.input, source.axis)
        if divisor == 0 or extent % divisor:
            raise GuardFailed(f"dim {source.axis} of input {source.input} is a multiple of {source.divisor}")
        symbols[source.symbol] = extent // divisor
    for guard in kernel.guards:
        if _dim(inputs, guard.input, guard.axis) != guard.dim.evaluate(symbols):
            raise GuardFailed(guard.text)
    for bound in kernel.bounds:
        if bound.small.evaluate(symbols) > bound.large.evaluate(symbols):
            raise GuardFailed(bound.text)
    return symbols


def _dim(inputs: Sequence[Array | None], number: int, axis: int) -> int:
    array = inputs[number]
    assert array is not None, "symbols and guards speak of inputs that the kernel reads"
    return array.shape[axis]


def _extents(dims: Sequence[Dim], symbols: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(d.evaluate(symbols) for d in dims)


class _Memory:
    """A buffer, flat; a tile has one row for each row of its nest. `written` tells what may be read."""

    def __init__(self, name: str, content: Array, *, written: bool) -> None:
        self.name = name
        self.content = content
        self.written = np.full(content.shape, written)

    def read(self, at: tuple[Array, ...]) -> Array:
        self._check(at)
        if not self.written[at].all():
            raise Fault(f"{self.name}: an element is read before it is written")
        return self.content[at]

    def write(self, at: tuple[Array, ...], value: Array) -> None:
        self._check(at)
        times = np.zeros(self.content.shape, np.int64)
        np.add.at(times, at, 1)
        if (times + self.written > 1).any():
            raise Fault(f"{self.name}: an element is written twice")
        self.content[at] = value
        self.written[at] = True

    def _check(self, at: tuple[Array, ...]) -> None:
        offsets = at[-1]
        size = self.content.shape[-1]
        if offsets.size and not (offsets.min() >= 0 and offsets.max() < size):
            raise Fault(f"{self.name}: offset {offsets.min()} or {offsets.max()} is outside of {size} elements")


def _blank(name: str, dtype: DType, shape: tuple[int, ...]) -> _Memory:
    return _Memory(name, np.full(shape, _POISON.get(dtype.numpy.kind, np.nan), dtype.numpy), written=False)


class _Run:
    """One nest on its way: the values of names, the results of reductions, the tiles of all rows."""

    def __init__(self, nest: Nest, symbols: Mapping[str, int], memory: Mapping[tuple[Place, int], _Memory]) -> None:
        self.nest = nest
        self.symbols = symbols
        self.memory = memory
        outer, inner = _extents(nest.outer, symbols), _extents(nest.inner, symbols)
        self.rows, self.length = math.prod(outer), math.prod(inner)
        # Coordinates along each axis, of shape [rows, 1] for the outer axes and [1, elements] for the inner.
        self.outer = [np.reshape(c, (-1, 1)) for c in np.indices(outer, np.int64)]
        self.inner = [np.reshape(c, (1, -1)) for c in np.indices(inner, np.int64)]
        self.values: dict[str, Array] = {}
        self.reduced: dict[int, Array] = {}
        self.tiles = {t: _blank(t.name, t.dtype, (self.rows, t.size.evaluate(symbols))) for t in nest.tiles} | {
            r.tile: self._filled(r) for r in nest.repeats
        }

    def run(self) -> None:
        head = [np.zeros((1, 1), np.int64) for _ in self.inner]  # where a row's scalars are computed
        for sweep in self.nest.sweeps:
            self.values = {}
            for statement in sweep.row:
                self._execute(statement, head)
            for statement in sweep.elements:
                self._execute(statement, self.inner)
        self.values = {}
        for statement in self.nest.finish:
            self._execute(statement, head)

    def _execute(self, s: Statement, inner: list[Array]) -> None:
        match s:
            case Load(name, dtype, access, at):
                found = self._looked_up(access, at, inner) if at else self._read(access, inner)
                self._assign(name, dtype, found)
            case Literal(name, dtype, bits):
                self._assign(name, dtype, np.reshape(np.frombuffer(bits, dtype.numpy), (1, 1)))
            case ExtentOf(name, dtype, dim):
                self._assign(name, dtype, np.full((1, 1), dim.evaluate(self.symbols)).astype(dtype.numpy))
            case Coordinate(name, dtype):
                self._assign(name, dtype, self._reached(s, inner).astype(dtype.numpy))
            case Compute(name, dtype, "convert", (operand,)):
                self._assign(name, dtype, converted(self.values[operand], dtype))
            case Compute(name, dtype, function, operands):
                result = FUNCTIONS[function].reference(*(self.values[o] for o in operands))
                self._assign(name, dtype, np.asarray(result))
            case Reduced(name, dtype, reduction):
                if reduction not in self.reduced:
                    raise Fault(f"{name} is read before its reduction is complete")
                self._assign(name, dtype, self.reduced[reduction])
            case Accumulate(reduction, value):
                row = np.broadcast_to(self.values[value], (self.rows, self.length))
                reducer = REDUCERS[self.nest.reductions[reduction].reducer]
                self.reduced[reduction] = np.asarray(reducer.reference(row, axis=(1,), keepdims=True))
            case Store(access, value, _):
                self._memory(access).write(self._offsets(access, inner), self.values[value])

    def _read(self, access: Access, inner: list[Array]) -> Array:
        return self._memory(access).read(self._offsets(access, inner))

    def _looked_up(self, access: Access, at: Sequence[LookUp], inner: list[Array]) -> Array:
        """What a table holds; 0 where one of the indices is out of range."""
        (offsets,) = self._offsets(access, inner)
        inside = np.ones((1, 1), bool)
        for a in at:
            index = self.values[a.value].astype(np.int64)
            inside = inside & (index >= 0) & (index < a.below.evaluate(self.symbols))
            offsets = offsets + index * a.stride.evaluate(self.symbols)
        offsets, inside = np.broadcast_arrays(offsets, inside)
        found = np.zeros(offsets.shape, access.buffer.dtype.numpy)
        found[inside] = self._memory(access).read((offsets[inside],))
        return found

    def _assign(self, name: str, dtype: DType, value: Array) -> None:
        if value.dtype != dtype.numpy:
            raise Fault(f"{name} is {value.dtype}, and was to be {dtype.value}")
        self.values[name] = value

    def _memory(self, access: Access) -> _Memory:
        buffer = access.buffer
        return self.tiles[buffer] if buffer.place is Place.TILE else self.memory[buffer.place, buffer.index]

    def _offsets(self, access: Access, inner: list[Array]) -> tuple[Array, ...]:
        """Where an access is, for each row and element: an index array for each axis of its memory."""
        offsets = self._reached(access, inner)
        of_row = np.reshape(np.arange(self.rows), (-1, 1))
        return (of_row, offsets) if access.buffer.place is Place.TILE else (offsets,)

    def _reached(self, s: Access | Coordinate, inner: list[Array]) -> Array:
        """The sum that an access or a coordinate is, for each row and element."""
        count = inner[0].shape[1] if inner else 1
        found = np.full((self.rows, count), sum(term.evaluate(self.symbols) for term in s.offset), np.int64)
        for coordinate, stride in zip(self.outer + inner, s.strides, strict=True):
            found = found + coordinate * stride.evaluate(self.symbols)
        return found

    def _filled(self, repeat: Repeat) -> _Memory:
        """A tile as long as a row, of `period` elements again and again."""
        count = min(repeat.period, self.rows * self.length)  # none, where no task fills it
        period = self._memory(repeat.source).read((repeat.source.offset_at(self.symbols) + np.arange(count),))
        content = np.resize(period, (1, self.length)).repeat(self.rows, axis=0)
        return _Memory(repeat.tile.name, content, written=True)
