"""CPU schedules: how a Nest is vectorised, blocked and given to threads. Decisions only; `render.cpp` prints them.

  ROWS    a task is some rows; a row is swept as often as it has sweeps, while it is in L1
  SPLIT   few long rows: a task is a block of one row; the parallel loop is joined after each sweep
  BLOCKS  no reduction: a task is some blocks of the vector axis

  COLUMNS no reduction, short rows: a task is some rows. Where a row is one step of the loop, its parameters (a bias
          per channel, over NHWC) stay in registers down all of the rows; else in L1

  DOWN    reductions down columns, whose neighbours lie side by side: a vector of columns goes down blocks of rows;
          cut and combined as ROWS and SPLIT are; down bundles of columns, too, where rows are made of short pieces
          (`lower.bundling`)

  PRODUCTS  products of matrices, and of windows with filters: a task is some groups of rows, each of which meets all
            columns (`lower.products`)

Where a row is not a multiple of a vector, rows are packed: they become one long row, and the parameter a tile that
holds its channels again and again.

    x[row, 24] * alpha[24]   ->   x[n] * alpha_repeated[n - begin]      blocks are a multiple of 24 long

ROWS and SPLIT cut a row into the same blocks and combine their partial results in the same order, so they give the
same bits, and the choice between them may depend on the number of threads.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, replace

from tf_stitch.ir.types import ONE, Dim, DType
from tf_stitch.lower.bundling import bundled, columns_of
from tf_stitch.lower.chaining import chained
from tf_stitch.lower.joining import joined
from tf_stitch.lower.kernel import (
    Access,
    Buffer,
    Compute,
    Coordinate,
    Kernel,
    Load,
    Nest,
    Place,
    Repeat,
    Statement,
    Store,
    Sweep,
    runs_down,
    statements,
)
from tf_stitch.lower.nests import longest, row_invariant
from tf_stitch.lower.products import products_of, rows_at_a_time
from tf_stitch.lower.scratch import filled_late
from tf_stitch.plan.target import Target

_REDUCTION_BLOCK = 4096  # elements: a lane adds up some hundred of them, and a block and its tile stay in L1
_ELEMENTWISE_BLOCK = 4096
# A step of the loop is several vectors, so that one waits while another computes. Two are enough where the CPU sees
# the next step while it waits for this one; of a long step it does not. A very long one gets one vector: more would
# only wait for each other's registers, and for the compiler.
_VECTORS = 2
_VECTORS_OF_LONG_STEPS = {32: 4, 16: 2}  # by the number of vector registers
_LONG_STEP = 1.0  # ns an element
_STEP = 3.0  # what a step takes besides its vectors, in vectors
_MANY_STATEMENTS = 100
_LONGEST_PACKED = 512
_LEAST_VECTOR = 16  # bytes
_PACKED_BLOCK = 256  # short: repeated parameters stay in L1, while the data passes through it


class Driver(enum.Enum):
    ROWS = "rows"
    ROWS_OR_SPLIT = "rows or split"  # both are generated; chosen at launch
    BLOCKS = "blocks"
    COLUMNS = "columns"
    DOWN = "down"
    PRODUCTS = "products"


@dataclass(frozen=True)
class Schedule:
    """How one nest runs.

    lanes: elements of one step of the vector loop; `narrow`: of one step of its tail.
    body: "both" loops, the "wide" one alone (the row is a multiple of it) or the "narrow" one alone.
    block: elements of the vector axis in one block; for COLUMNS and PRODUCTS, rows in one task's unit.
    one_block: no row is longer than a block, so there is no loop over blocks.
    bundle: DOWN, how many neighbouring columns are one row of the nest.
    joined: DOWN, its first sweep taking each block of rows as soon as the nest before is done with it.
    chained: it follows the nest before row by row, in one parallel loop (`lower.chaining`).
    streams: what its sweeps store are streaming stores, in a call that moves more than the caches hold.
    """

    driver: Driver
    lanes: int
    narrow: int
    body: str
    block: int
    one_block: bool = False
    bundle: int = 1
    joined: bool = False
    chained: bool = False
    streams: bool = False


PLAIN = frozenset({Driver.ROWS, Driver.BLOCKS, Driver.COLUMNS, Driver.PRODUCTS})
"""Those whose nests are one parallel loop each."""


def schedule(kernel: Kernel, target: Target, *, adaptive: bool = True) -> tuple[Kernel, tuple[Schedule, ...]]:
    """The kernel, with a schedule for each nest: short rows are packed, bundled columns have no tiles, fills come late.

    adaptive: without it a nest of rows is ROWS and any other BLOCKS, whatever its shape: nothing is packed, split,
      turned or joined.
    """
    kernel = filled_late(kernel)
    widths = [1] * len(kernel.nests)
    if adaptive:
        found = [bundled(_packed(nest, target)) for nest in kernel.nests]
        kernel = replace(kernel, nests=tuple(nest for nest, _ in found))
        widths = [width for _, width in found]
    pairs = zip(kernel.nests, widths, strict=True)
    schedules = [_schedule(nest, width, kernel, target, adaptive=adaptive) for nest, width in pairs]
    if adaptive:
        rows = [s.driver in (Driver.ROWS, Driver.ROWS_OR_SPLIT) for s in schedules]
        together = joined(kernel.nests, rows, [s.driver is Driver.DOWN for s in schedules])
        schedules = [replace(s, joined=n in together) for n, s in enumerate(schedules)]
        plain = [s.driver in PLAIN and n + 1 not in together for n, s in enumerate(schedules)]
        schedules = list(chained(kernel, schedules, plain))
    if _may_be_large(kernel, target):
        read = {s.access.buffer for nest in kernel.nests for s in statements(nest) if isinstance(s, Load)}
        pairs = zip(schedules, kernel.nests, strict=True)
        schedules = [replace(s, streams=_may_stream(nest, read)) for s, nest in pairs]
    return kernel, tuple(schedules)


def _may_be_large(kernel: Kernel, target: Target) -> bool:
    """Whether a call may move more than the caches hold."""
    traffic = kernel.traffic
    if not all(size.is_static for size in traffic):
        return True
    return sum(size.coefficient * bytes_ for size, bytes_ in traffic.items()) > target.l2_bytes


def _may_stream(nest: Nest, read: set[Buffer]) -> bool:
    """Whether what a nest stores goes to outputs that the kernel does not read: it reads `read`."""
    stored = [s.access for sweep in nest.sweeps for s in sweep.elements if isinstance(s, Store)]
    shared = {a.buffer for a in stored if a.buffer.place is not Place.TILE}
    return bool(shared) and all(b.place is Place.OUTPUT and b not in read for b in shared)


def _by_columns(nest: Nest, native: int) -> bool:
    """Whether to keep parameters in registers down the rows."""
    if nest.reductions or len(nest.outer) != 1 or not nest.inner[-1].is_static:
        return False
    period = nest.inner[-1].coefficient
    invariant = row_invariant(nest)
    parameters = any(isinstance(s, Load) and s.name in invariant for s in nest.sweeps[0].elements)
    return parameters and 0 < period <= _LONGEST_PACKED and period % native == 0


def _native(nest: Nest, target: Target) -> int:
    """Lanes of a native vector of the widest type that the nest computes in."""
    statements = [s for sweep in nest.sweeps for s in sweep.elements]
    widest = max(
        (_register_size(s.dtype) for s in statements if isinstance(s, Load | Coordinate | Compute | Store)), default=4
    )
    return target.vector_bytes // widest


def _packed(nest: Nest, target: Target) -> Nest:
    """A nest of short rows as one of a single long row; the nest itself where that is not possible.

    It is where every access crosses all rows as one, or is the same for each row.
    """
    if nest.reductions or len(nest.outer) != 1 or not nest.inner[-1].is_static:
        return nest
    if _by_columns(nest, _native(nest, target)):
        return nest
    period = nest.inner[-1].coefficient
    whole = (Dim(period), ONE)
    accesses = [s.access for s in nest.sweeps[0].elements if isinstance(s, Load | Store)]
    by_place = any(isinstance(s, Coordinate) or (isinstance(s, Load) and s.at) for s in statements(nest))
    same = {a for a in accesses if a.strides[0] == Dim(0) and a.strides[1] == ONE}
    rows = nest.sweeps[0].row
    per_row = any(s.access.strides[0] != Dim(0) for s in rows if isinstance(s, Load))
    if (
        by_place
        or not same
        or per_row
        or period > _LONGEST_PACKED
        or not all(a.strides == whole or a in same for a in accesses)
    ):
        return nest
    repeats = {
        access: Repeat(
            Buffer(Place.TILE, n, f"{access.buffer.name}_{n}_repeated", access.buffer.dtype, ONE), access, period
        )
        for n, access in enumerate(sorted(same, key=lambda a: (a.buffer.index, a.offset)))
    }

    def packed(s: Statement) -> Statement:
        if not isinstance(s, Load | Store):
            return s
        if s.access in repeats:
            return replace(s, access=Access(repeats[s.access].tile, (ONE,)))
        return replace(s, access=replace(s.access, strides=s.access.strides[1:]))

    sweep = Sweep(tuple(packed(s) for s in rows), tuple(packed(s) for s in nest.sweeps[0].elements))
    length = nest.outer[0] * nest.inner[-1]
    return replace(nest, outer=(), inner=(length,), sweeps=(sweep,), repeats=tuple(repeats.values()))


def _schedule(nest: Nest, bundle: int, kernel: Kernel, target: Target, *, adaptive: bool) -> Schedule:
    native = _native(nest, target)
    if products_of(nest):
        return _products(nest, native, target)
    down = adaptive and nest.reductions and not nest.tiles and runs_down(nest.outer, _accesses(nest))
    if down or bundle > 1:
        return _down(nest, bundle, native, target)
    extent = nest.inner[-1]
    lanes, body = _steps(extent, native * _vectors(nest, target), native)
    if adaptive and _by_columns(nest, native):
        period = extent.coefficient
        lanes = math.gcd(native * _vectors_down_columns(target), period)
        return Schedule(Driver.COLUMNS, lanes, native, "wide", max(1, _ELEMENTWISE_BLOCK // period))
    if nest.repeats:
        period = nest.repeats[0].period
        while lanes > native and math.lcm(period, lanes) > _PACKED_BLOCK:
            lanes //= 2
        unit = math.lcm(period, lanes)
        return Schedule(Driver.BLOCKS, lanes, native, body, unit * max(1, _PACKED_BLOCK // unit))
    if not nest.reductions:
        return Schedule(Driver.BLOCKS, lanes, native, body, _ELEMENTWISE_BLOCK)
    most = longest(extent, kernel)
    if len(nest.inner) > 1 or not adaptive:
        return Schedule(Driver.ROWS, lanes, native, body, _REDUCTION_BLOCK)
    if most is None or most > 2 * _REDUCTION_BLOCK:
        return Schedule(Driver.ROWS_OR_SPLIT, lanes, native, body, _REDUCTION_BLOCK)
    return Schedule(Driver.ROWS, lanes, native, body, _REDUCTION_BLOCK, one_block=most <= _REDUCTION_BLOCK)


def _products(nest: Nest, native: int, target: Target) -> Schedule:
    """Columns in steps as wide as pass over a row soonest, and a short one for what is left."""
    columns = nest.outer[-1]
    lanes, body = _steps(columns, native * _vectors_down_columns(target), native)
    narrow = native
    if columns.is_static:
        left = columns.coefficient % lanes
        while narrow // 2 >= max(left, _LEAST_VECTOR // _register_size(nest.reductions[0].dtype)):
            narrow //= 2
    rows = rows_at_a_time(nest, max(1, lanes // native), _registers(target))
    return Schedule(Driver.PRODUCTS, lanes, narrow, body, rows)


def _accesses(nest: Nest) -> list[Access]:
    return [s.access for sweep in nest.sweeps for s in (*sweep.row, *sweep.elements) if isinstance(s, Load | Store)]


def _down(nest: Nest, bundle: int, native: int, target: Target) -> Schedule:
    """Down the columns; the vectors of a step have a sum each to add to.

    The wider a step is, the more of a row is read at a time.
    """
    columns = columns_of(nest, bundle)
    statements = sum(len(sweep.elements) for sweep in nest.sweeps)
    sums = max(sum(r.sweep == n for r in nest.reductions) for n in range(len(nest.sweeps)))
    vectors = 1 if statements > _MANY_STATEMENTS else _vectors_down_columns(target)
    fits = columns.is_static or columns.coefficient % (2 * vectors * native) == 0
    if 2 * vectors * sums <= _registers(target) // 2 and fits:
        vectors *= 2
    lanes, body = _steps(columns, native * vectors, native)
    return Schedule(Driver.DOWN, lanes, native, body, _REDUCTION_BLOCK, bundle=bundle)


def _steps(length: Dim, most: int, native: int) -> tuple[int, str]:
    """Lanes of the steps along a row, at most `most`, and which loops they take (`Schedule.body`)."""
    lanes = _fitting(length.coefficient, most, native) if length.is_static else most
    if length.coefficient % lanes == 0:
        return lanes, "wide"
    return lanes, "narrow" if length.is_static and length.coefficient < native else "both"


def _fitting(length: int, most: int, native: int) -> int:
    """Lanes of the steps that pass over a row of known length soonest, with short ones for what is left."""

    def steps(lanes: int) -> tuple[float, int]:
        left = length % lanes
        wide, narrow = length // lanes, -(-left // native)
        tail = narrow * (1 + _STEP) + (2 * _STEP if left else 0)  # a loop of its own
        return wide * (lanes / native + _STEP) + tail, lanes

    return min((native << n for n in range((most // native).bit_length())), key=steps)


def _vectors(nest: Nest, target: Target) -> int:
    """Vectors in a step of the loop along a row."""
    if sum(len(sweep.elements) for sweep in nest.sweeps) > _MANY_STATEMENTS:
        return 1
    long_step = nest.nanoseconds >= _LONG_STEP * len(nest.sweeps)
    return _VECTORS_OF_LONG_STEPS[_registers(target)] if long_step else _VECTORS


def _vectors_down_columns(target: Target) -> int:
    """Vectors that stand side by side down the rows: as many as the registers hold the parameters of."""
    return _VECTORS_OF_LONG_STEPS[_registers(target)]


def _registers(target: Target) -> int:
    return 32 if target.vector_bytes == 64 else 16


def _register_size(dtype: DType) -> int:
    return 8 if dtype in (DType.F64, DType.I64) else 4
