"""The invariants of a Kernel, checked in tests and at debug level. A failure is a bug of ours, not a user's.

  - in a sweep, and in `finish`, a name is assigned once, and used only after that;
  - a row's scalars do not vary along the row; only elements are accumulated;
  - a reduction is accumulated in its own sweep, once, and read after it;
  - every access is inside its buffer; an index that is looked up is loaded from an input, under a guard;
  - every element of an output and of scratch is stored once, by as many stores as it takes, and read by later nests
    only;
  - a tile is filled in one sweep and read in later ones, each element where it was stored;
  - an output may take an input's buffer where nothing still reads the element that is overwritten;
  - blocks are whole numbers of vectors, and of what is repeated;
  - a nest that is joined with the one before reads, of what that stores, the row that it is at.

What depends on dims is checked for some values of the symbols, at all coordinates.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from tf_stitch.ir.types import INTEGERS, ONE, DType, product
from tf_stitch.ir.verify import BrokenInvariant
from tf_stitch.lower.bundling import bundled, columns_of
from tf_stitch.lower.chaining import rows_of, rows_of_unit
from tf_stitch.lower.kernel import (
    Access,
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
    SymbolSource,
    statements,
)
from tf_stitch.lower.launches import launches
from tf_stitch.lower.nests import Memory, accesses, memory_of, places_of, sources_of
from tf_stitch.lower.products import products_of
from tf_stitch.ops import FUNCTIONS, REDUCERS
from tf_stitch.plan.verify import check, naming, sampled_symbols

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tf_stitch.ir.body import Within
    from tf_stitch.lower.cpu import Schedule
    from tf_stitch.lower.kernel import Buffer, Kernel, Nest, Statement, Sweep

    Array = np.ndarray[Any, np.dtype[np.int64]]

_LARGEST = 1 << 18  # coordinates that are looked at one by one; bounds are checked for any number
_SHARED = (Place.OUTPUT, Place.SCRATCH)


def verify_kernel(kernel: Kernel, schedules: Sequence[Schedule] = ()) -> None:
    """Checks every invariant that the module lists; those of schedules where they are given.

    Raises:
      BrokenInvariant: naming the nest, the statement and the rule.
    """
    _verify_symbols(kernel)
    _verify_order(kernel)
    for number, nest in enumerate(kernel.nests):
        with naming(f"nest {number}"):
            _verify_nest(nest, kernel.indices)
    loaded = {s.access.buffer for nest in kernel.nests for s in statements(nest) if isinstance(s, Load)}
    for number, schedule in enumerate(schedules):
        with naming(f"nest {number}"):
            _verify_schedule(kernel.nests[number], schedule)
            if schedule.streams:
                _verify_streams(kernel.nests[number], loaded)
    for symbols in sampled_symbols([s.symbol for s in kernel.symbols], kernel.derivations):
        if any(b.small.evaluate(symbols) > b.large.evaluate(symbols) for b in kernel.bounds):
            continue
        with naming(f"with {symbols}" if symbols else "without symbols"):
            sample = _Sample(kernel, symbols)
            sample.verify()
            for number, schedule in enumerate(schedules):
                if schedule.joined:
                    sample.verify_joined(number)
            for together in launches(kernel, schedules) if schedules else ():
                if schedules[together[-1]].chained:
                    sample.verify_chain(together, [schedules[n] for n in together])


# -- names, reductions, tiles --------------------------------------------------------------------------------


def _verify_symbols(kernel: Kernel) -> None:
    known: set[str] = set()
    for source in kernel.symbols:
        if isinstance(source, DerivedSymbol):
            check(source.derivation.symbols <= known, f"{source}: what it follows from is known by then")
            known.add(source.symbol)
            continue
        type_ = kernel.inputs[source.input]
        check(type_ is not None and source.axis < len(type_.dims), f"{source}: the dim exists")
        assert type_ is not None
        check(set(source.divisor.symbols) <= known, f"{source}: the divisor is known by then")
        rest = source.divisor
        whole = type_.dims[source.axis]
        check(
            sorted((*rest.symbols, source.symbol)) == sorted(whole.symbols) and rest.coefficient == whole.coefficient,
            f"{source}: the divisor is the rest of the dim",
        )
        known.add(source.symbol)
    guarded = {(g.input, g.axis): g.dim for g in kernel.guards}
    defining = {(s.input, s.axis) for s in kernel.symbols if isinstance(s, SymbolSource) and s.divisor.is_one}
    for number, type_ in enumerate(kernel.inputs):
        for axis, dim in enumerate(type_.dims if type_ else ()):
            check(set(dim.symbols) <= known, f"input {number}: symbols {dim.symbols} are computed")
            held = (number, axis) in defining or guarded.get((number, axis)) == dim
            check(held, f"input {number}: that dim {axis} is {dim} is guarded")
    for bound in kernel.bounds:
        check({*bound.small.symbols, *bound.large.symbols} <= known, f"{bound}: its dims are computed")
    for type_ in kernel.outputs:
        check({s for d in type_.dims for s in d.symbols} <= known, f"output {type_}: its dims are computed")


def _verify_order(kernel: Kernel) -> None:
    """Each shared buffer is stored before it is read by another nest; in pieces or by one store."""
    stored: dict[tuple[Place, int], Buffer] = {}
    times = Counter(s.access.buffer for nest in kernel.nests for s in statements(nest) if isinstance(s, Store))
    for number, nest in enumerate(kernel.nests):
        loads = [s.access.buffer for s in statements(nest) if isinstance(s, Load)]
        loads += [r.source.buffer for r in nest.repeats]
        for buffer in loads:
            before = buffer.place not in _SHARED or (buffer.place, buffer.index) in stored
            check(before, f"nest {number}: {buffer.name} is stored by an earlier nest")
        for s in statements(nest):
            if isinstance(s, Store) and s.access.buffer.place is not Place.TILE:
                buffer = s.access.buffer
                check(buffer.place in _SHARED, f"nest {number}: no store goes to an input")
                known = stored.setdefault((buffer.place, buffer.index), buffer)
                check(known == buffer, f"nest {number}: {buffer.name} is one buffer")
                check(s.dtype is buffer.dtype, f"nest {number}: {buffer.name} holds {buffer.dtype.value}")
        # A nest does not read what it stores, for other tasks of it may not have stored it yet; other pieces it may.
        mine = {(s.access.buffer.place, s.access.buffer.index) for s in statements(nest) if isinstance(s, Store)}
        late = [b.name for b in loads if b.place in _SHARED and (b.place, b.index) in mine and times[b] == 1]
        check(not late, f"nest {number}: {late} are stored by the nest that reads them")
    wanted = {(Place.OUTPUT, n) for n in range(len(kernel.outputs))}
    wanted |= {(b.place, b.index) for b in kernel.scratch}
    check(set(stored) == wanted, "all outputs and all of scratch are stored, and nothing else")
    for (place, index), buffer in stored.items():
        if place is Place.OUTPUT:
            type_ = kernel.outputs[index]
            check(buffer.size == type_.size and buffer.dtype is type_.dtype, f"{buffer.name} is a {type_}")
        else:
            check(buffer in kernel.scratch, f"{buffer.name} is the kernel's scratch")


def _verify_nest(nest: Nest, indices: Sequence[Within]) -> None:
    check(len(nest.inner) >= 1, "there is a vector axis")
    check(bool(nest.sweeps), "there is a sweep")
    axes = len(nest.outer) + len(nest.inner)
    for s in statements(nest):
        if isinstance(s, Load | Store):
            check(len(s.access.strides) == axes, f"{s}: a stride for each axis")
        if isinstance(s, Coordinate):
            check(len(s.strides) == axes, f"{s}: a stride for each axis")
    accumulated: dict[int, int] = {}
    for number, sweep in enumerate(nest.sweeps):
        scope = _Scope(nest, number, indices)
        for s in sweep.row:
            scope.add(s, is_element=False)
        for s in sweep.elements:
            scope.add(s, is_element=True)
            if isinstance(s, Accumulate):
                check(s.reduction not in accumulated, f"{s}: accumulated once")
                accumulated[s.reduction] = number
    wanted = {n: r.sweep for n, r in enumerate(nest.reductions)}
    check(
        accumulated == wanted,
        f"reductions are accumulated in their sweeps, {wanted}, and not in {accumulated}",
    )
    scope = _Scope(nest, len(nest.sweeps), indices)
    for s in nest.finish:
        scope.add(s, is_element=False, may_store=True)
    _verify_tiles(nest)


class _Scope:
    """The names of one sweep, or of `finish`."""

    def __init__(self, nest: Nest, sweep: int, indices: Sequence[Within]) -> None:
        self.nest = nest
        self.sweep = sweep
        self.indices = indices
        self.dtypes: dict[str, DType] = {}
        self.loaded: dict[str, Access] = {}  # from inputs

    def add(self, s: Statement, *, is_element: bool, may_store: bool = False) -> None:
        crossing = s.access if isinstance(s, Load | Store) else s
        along = crossing.strides[len(self.nest.outer) :] if isinstance(crossing, Access | Coordinate) else ()
        varies = any(stride.coefficient != 0 for stride in along)
        match s:
            case Load():
                check(is_element or not varies, f"{s}: a row's scalar does not vary along the row")
                check(s.dtype is s.access.buffer.dtype, f"{s}: the dtype of its buffer")
                self._verify_look_ups(s)
            case Literal(_, dtype, bits):
                check(len(bits) == dtype.size, f"{s}: the bytes of its dtype")
            case ExtentOf():
                pass
            case Coordinate(_, dtype):
                check(is_element or not varies, f"{s}: a row's scalar does not vary along the row")
                check(dtype in INTEGERS, f"{s}: an integer")
            case Compute():
                self._verify_compute(s)
            case Reduced(_, dtype, number):
                check(number < len(self.nest.reductions), f"{s}: the reduction exists")
                reduction = self.nest.reductions[number]
                check(reduction.sweep < self.sweep, f"{s}: the reduction is complete")
                check(dtype is reduction.dtype, f"{s}: the dtype of the reduction")
            case Accumulate(number, value):
                check(is_element, f"{s}: elements are accumulated, not scalars")
                check(number < len(self.nest.reductions), f"{s}: the reduction exists")
                reduction = self.nest.reductions[number]
                check(self._dtype(s, value) is reduction.dtype, f"{s}: the dtype of the reduction")
                check(reduction.dtype in REDUCERS[reduction.reducer].dtypes, f"{s}: the reducer has this dtype")
            case Store(access, value, dtype):
                check(is_element or may_store, f"{s}: the head of a sweep stores nothing")
                check(is_element or not varies, f"{s}: a row's scalar is stored once a row")
                check(self._dtype(s, value) is dtype is access.buffer.dtype, f"{s}: the dtype of its buffer")
        if isinstance(s, Load | Literal | ExtentOf | Coordinate | Compute | Reduced):
            check(s.name not in self.dtypes, f"{s}: a name is assigned once")
            self.dtypes[s.name] = s.dtype

    def _verify_look_ups(self, s: Load) -> None:
        for a in s.at:
            check(s.access.buffer.place is Place.INPUT, f"{s}: a table is an input")
            check(self._dtype(s, a.value) in INTEGERS, f"{s}: an index is an integer")
            index = self.loaded.get(a.value)
            check(index is not None, f"{s}: an index is loaded from an input")
            assert index is not None
            steps = [d.coefficient for d in index.strides]
            first = sum(d.coefficient for d in index.offset)
            guarded = any(
                (w.input, w.below) == (index.buffer.index, a.below)
                and not any(step % w.step for step in (*steps, first - w.first))
                for w in self.indices
            )
            check(guarded, f"{s}: that {a.value} is below {a.below} is guarded")
        if s.access.buffer.place is Place.INPUT:
            self.loaded[s.name] = s.access

    def _dtype(self, s: Statement, name: str) -> DType:
        check(name in self.dtypes, f"{s}: {name} is used after it is assigned")
        return self.dtypes[name]

    def _verify_compute(self, s: Compute) -> None:
        dtypes = [self._dtype(s, o) for o in s.operands]
        if s.function == "convert":
            check(len(dtypes) == 1, f"{s}: a conversion has one operand")
            return
        function = FUNCTIONS[s.function]
        check(len(dtypes) == function.arity, f"{s}: {function.arity} operands")
        selectors, rest = dtypes[: function.selectors], dtypes[function.selectors :]
        check(all(d is DType.BOOL for d in selectors), f"{s}: selectors are bools")
        check(len(set(rest)) == 1 and rest[0] in function.dtypes, f"{s}: operands of one dtype it has")
        check(s.dtype is (DType.BOOL if function.to_bool else rest[0]), f"{s}: the function's dtype")


def _verify_tiles(nest: Nest) -> None:
    size = product(nest.inner)
    filled: dict[Buffer, tuple[int, Access]] = {}
    repeated = {r.tile for r in nest.repeats}
    for number, sweep in enumerate(nest.sweeps):
        for s in _tile_statements(sweep):
            tile = s.access.buffer
            if tile in repeated:
                check(isinstance(s, Load), f"{s}: a repeated tile is filled by its task")
                check(s.access.strides == (ONE,) and not nest.outer, f"{s}: a repeated tile is read in order")
                continue
            check(tile in nest.tiles and tile.size == size, f"{s}: a tile holds a row")
            if isinstance(s, Store):
                check(tile not in filled, f"{s}: a tile is filled once")
                filled[tile] = (number, s.access)
            else:
                check(tile in filled and filled[tile][0] < number, f"{s}: a tile is filled by an earlier sweep")
                check(s.access == filled[tile][1], f"{s}: a tile is read as it was stored")
    check(not [s for s in nest.finish if _is_tile(s)], "tiles are read and stored by sweeps only")
    check(set(filled) == set(nest.tiles), "every tile is used")


def _tile_statements(sweep: Sweep) -> list[Load | Store]:
    check(not [s for s in sweep.row if _is_tile(s)], "a row's scalars are in no tile")
    return [s for s in sweep.elements if isinstance(s, Load | Store) and s.access.buffer.place is Place.TILE]


def _is_tile(s: Statement) -> bool:
    return isinstance(s, Load | Store) and s.access.buffer.place is Place.TILE


def _verify_schedule(nest: Nest, schedule: Schedule) -> None:
    from tf_stitch.lower.cpu import Driver

    down = schedule.driver is Driver.DOWN
    in_columns = down or schedule.driver is Driver.PRODUCTS
    extent, lanes = columns_of(nest, schedule.bundle) if in_columns else nest.inner[-1], schedule.lanes
    bundle_fits = schedule.bundle == 1 or (down and bundled(nest) == (nest, schedule.bundle))
    check(bundle_fits, f"{schedule}: the pieces of rows lie side by side")
    check(lanes & (lanes - 1) == 0 < schedule.narrow, f"{schedule}: lanes are powers of two")
    check(schedule.block > 0, f"{schedule}: a block holds something")
    whole = schedule.body != "wide" or extent.coefficient % lanes == 0
    check(whole, f"{schedule}: a row without a tail is a number of vectors")
    in_rows = schedule.driver in (Driver.ROWS, Driver.ROWS_OR_SPLIT, Driver.PRODUCTS)
    multiplies = schedule.driver is Driver.PRODUCTS
    check(not multiplies or bool(products_of(nest)), f"{schedule}: a nest of products has nothing else")
    check(down or not schedule.joined, f"{schedule}: only columns join rows")
    check(not down or not nest.tiles, f"{schedule}: down columns there are no tiles")
    check((in_rows or down) == bool(nest.reductions), f"{schedule}: what reduces goes by rows")
    one_axis = in_columns or schedule.driver is Driver.ROWS or len(nest.inner) == 1
    check(one_axis, f"{schedule}: one axis is cut in blocks")
    by_columns = schedule.driver is Driver.COLUMNS
    check(by_columns or multiplies or schedule.block % lanes == 0, f"{schedule}: a block is a number of vectors")
    check(not by_columns or schedule.body == "wide", f"{schedule}: columns have no tail")
    for repeat in nest.repeats:
        periods = schedule.block % repeat.period == 0
        check(periods, f"{schedule}: a block is a number of periods of {repeat.period}")
        check(schedule.driver is Driver.BLOCKS, f"{schedule}: what is repeated is repeated in blocks")


def _verify_streams(nest: Nest, loaded: set[Buffer]) -> None:
    """Another thread may not see a streaming store before the launch is over."""
    elements = [s for sweep in nest.sweeps for s in sweep.elements]
    stored = {s.access.buffer for s in elements if isinstance(s, Store)}
    for buffer in stored:
        if buffer.place is not Place.TILE:
            check(buffer.place is Place.OUTPUT, f"{buffer.name}: what is streamed is an output")
            check(buffer not in loaded, f"{buffer.name}: what is streamed is not read again")


# -- accesses ------------------------------------------------------------------------------------------------


class _Sample:
    """The kernel for some values of the symbols."""

    def __init__(self, kernel: Kernel, symbols: Mapping[str, int]) -> None:
        self.kernel = kernel
        self.symbols = symbols

    def verify(self) -> None:
        for number, nest in enumerate(self.kernel.nests):
            with naming(f"nest {number}"):
                self._verify_nest(nest)
        for buffer in dict.fromkeys(s.access.buffer for _, _, s in self._shared_stores()):
            self._verify_stored(buffer)
        for source, output in self.kernel.forwards:
            self._verify_forward(source, output)

    def _verify_nest(self, nest: Nest) -> None:
        extents = self._extents(nest)
        if not math.prod(extents):
            return
        for s in statements(nest):
            if isinstance(s, Load | Store):
                self._verify_bounds(s, extents)
            if isinstance(s, Store) and s.access.buffer.place is Place.TILE and math.prod(extents) <= _LARGEST:
                size = s.access.buffer.size.evaluate(self.symbols)
                once = np.array_equal(np.sort(self._offsets(nest, s.access)[0]), np.arange(size))
                check(once, f"{s}: each of {size} elements is stored once")
        for repeat in nest.repeats:
            size = repeat.source.buffer.size.evaluate(self.symbols)
            inside = 0 <= repeat.source.offset_at(self.symbols) <= size - repeat.period
            check(inside, f"{repeat}: inside of {size} elements")

    def _extents(self, nest: Nest) -> list[int]:
        return [d.evaluate(self.symbols) for d in nest.outer + nest.inner]

    def _verify_bounds(self, s: Load | Store, extents: Sequence[int]) -> None:
        access = s.access
        repeated = access.buffer.place is Place.TILE and access.buffer.size == ONE
        size = math.prod(extents) if repeated else access.buffer.size.evaluate(self.symbols)
        offset = access.offset_at(self.symbols)
        reach = [(e - 1) * d.evaluate(self.symbols) for e, d in zip(extents, access.strides, strict=True)]
        if isinstance(s, Load):
            below = [a.below.evaluate(self.symbols) for a in s.at]
            if 0 in below:  # of no elements: there is no index that the guards let pass
                return
            reach += [(b - 1) * a.stride.evaluate(self.symbols) for a, b in zip(s.at, below, strict=True)]
        first = offset + sum(r for r in reach if r < 0)
        last = offset + sum(r for r in reach if r > 0)
        check(first >= 0 and last < size, f"{s}: {first} to {last} of {size} elements")

    def _shared_stores(self) -> Iterator[tuple[int, Nest, Store]]:
        """The stores to outputs and to scratch, each with its nest and the number of that."""
        for number, nest in enumerate(self.kernel.nests):
            for s in statements(nest):
                if isinstance(s, Store) and s.access.buffer.place is not Place.TILE:
                    yield number, nest, s

    def _verify_stored(self, buffer: Buffer) -> None:
        """Each element is stored once, and before it is read: by an earlier nest."""
        size = buffer.size.evaluate(self.symbols)
        stores = [(number, nest, s) for number, nest, s in self._shared_stores() if s.access.buffer == buffer]
        what = ", ".join(str(s) for _, _, s in stores)
        extents = [self._extents(nest)[: len(nest.outer) if s in nest.finish else None] for _, nest, s in stores]
        check(sum(map(math.prod, extents)) == size, f"{what}: each of {size} elements is stored once")
        if size > _LARGEST:
            return
        times, stored_by = np.zeros(size, np.int64), np.zeros(size, np.int64)
        for number, nest, s in stores:
            at = np.ravel(self._offsets(nest, s.access, once_a_row=s in nest.finish))
            np.add.at(times, at, 1)
            stored_by[at] = number
        check(bool((times == 1).all()), f"{what}: each of {size} elements is stored once")
        for number, nest in enumerate(self.kernel.nests):
            for s in statements(nest):
                if isinstance(s, Load) and s.access.buffer == buffer and math.prod(self._extents(nest)) <= _LARGEST:
                    read = stored_by[self._offsets(nest, s.access)]
                    check(bool((read < number).all()), f"nest {number}, {s}: it is stored by an earlier nest")

    def _offsets(self, nest: Nest, access: Access, *, once_a_row: bool = False) -> Array:
        """Of an access, of shape [rows, elements of a row]; one element, where it is for a row's scalar."""
        extents = self._extents(nest)
        if once_a_row:
            extents[len(nest.outer) :] = [1] * len(nest.inner)
        rows = math.prod(extents[: len(nest.outer)])
        offsets = np.full(extents, access.offset_at(self.symbols), np.int64)
        for coordinate, stride in zip(np.indices(extents, np.int64, sparse=True), access.strides, strict=True):
            offsets = offsets + coordinate * stride.evaluate(self.symbols)
        return np.reshape(offsets, (rows, math.prod(extents[len(nest.outer) :])))

    def _verify_forward(self, source: int, output: int) -> None:
        """Nothing reads an element of the input once it is overwritten.

        Nests run one after another, rows in any order, and within a row sweeps one after another. So a nest
        that comes later reads none of it, the nest that stores reads an element in the row that overwrites it,
        in an earlier sweep, or in the same one at the very same place.
        """
        where = f"input {source} may be overwritten by output {output}"
        type_ = self.kernel.inputs[source]
        check(type_ is not None, f"{where}: the kernel reads it")
        assert type_ is not None
        is_table = any(load.at for nest in self.kernel.nests for _, load in _loads(nest, source))
        check(not is_table, f"{where}: it is a table, which is read anywhere")
        result = self.kernel.outputs[output]
        check(
            type_.dtype.size == result.dtype.size and type_.size == result.size,
            f"{where}: they are of one size",
        )
        stores = [s for _, _, s in self._shared_stores() if _is_output(s.access, output)]
        check(len(stores) == 1, f"{where}: it is not stored in pieces")
        number, sweep, store = self._store_of(output)
        for nest in self.kernel.nests[number:]:
            tiles = [r for r in nest.repeats if _is_input(r.source, source)]
            check(not tiles, f"{where}: a tile is filled with it by each task")
        for nest in self.kernel.nests[number + 1 :]:
            check(not _loads(nest, source), f"{where}: a later nest reads it")
        nest = self.kernel.nests[number]
        size = math.prod(self._extents(nest))
        if not 0 < size <= _LARGEST:
            return
        overwritten = self._offsets(nest, store.access)
        row_of = np.zeros(size, np.int64)
        row_of[overwritten] = np.arange(len(overwritten))[:, None]
        for position, load in _loads(nest, source):
            read = self._offsets(nest, load.access)
            same_row = np.array_equal(row_of[read], np.broadcast_to(np.arange(len(read))[:, None], read.shape))
            check(same_row, f"{where}: {load.name} is read by another row")
            check(position <= sweep, f"{where}: {load.name} is read by a later sweep")
            in_place = np.array_equal(read, overwritten)
            check(position < sweep or in_place, f"{where}: {load.name} is read elsewhere in the same sweep")

    def verify_joined(self, number: int) -> None:
        """The first sweep of nest `number` takes a row as soon as the nest before is done with it."""
        rows, down = self.kernel.nests[number - 1], self.kernel.nests[number]
        first = (*down.sweeps[0].row, *down.sweeps[0].elements)
        stores = [s for s in first if isinstance(s, Store)]
        check(not stores, f"nest {number} is joined: its first sweep stores nothing")
        check(down.inner == rows.outer, f"nest {number} is joined: it goes down the rows of the nest before")
        if not 0 < math.prod(self._extents(down)) <= _LARGEST:
            return
        stored = {s.access.buffer: s.access for s in statements(rows) if isinstance(s, Store)}
        for s in first:
            if isinstance(s, Load) and s.access.buffer in stored:
                written = self._offsets(rows, stored[s.access.buffer])
                row_of = np.full(s.access.buffer.size.evaluate(self.symbols), -1, np.int64)
                row_of[written] = np.arange(len(written))[:, None]
                read: Array = row_of[self._offsets(down, s.access)]
                own = np.array_equal(read, np.broadcast_to(np.arange(read.shape[1], dtype=np.int64), read.shape))
                check(own, f"{s}: nest {number} is joined: it reads its own row")

    def verify_chain(self, numbers: Sequence[int], schedules: Sequence[Schedule]) -> None:
        """Nests that follow each other row by row: what a row of one stores, no other row touches."""
        nests = [self.kernel.nests[n] for n in numbers]
        rows = rows_of(nests)
        count = rows.evaluate(self.symbols)
        for nest, schedule in zip(nests, schedules, strict=True):
            check(rows_of_unit(nest, schedule, rows) > 0, f"{schedule}: units of a chain are rows")
            whole = math.prod(self._extents(nest)) == 0 if count == 0 else math.prod(self._extents(nest)) % count == 0
            check(whole, f"{schedule}: nests of a chain have the same rows")
        if not all(0 < math.prod(self._extents(nest)) <= _LARGEST for nest in nests):
            return
        owner = self._owners(nests, count)
        mine = np.arange(count)[:, None]
        for nest in nests:
            repeated = [r for r in nest.repeats if memory_of(r.source) in owner]
            check(not repeated, f"{repeated}: what is repeated is stored outside of the chain")
            for s in accesses(nest):
                for stored in owner.get(memory_of(s.access), {}).values() if isinstance(s, Load) else ():
                    assert isinstance(s, Load)
                    check(not s.at, f"{s}: what is looked up is stored outside of the chain")
                    found = stored[np.reshape(self._offsets(nest, s.access), (count, -1))]
                    check(bool(((found == -1) | (found == mine)).all()), f"{s}: a row of a chain reads its own part")

    def _owners(self, nests: Sequence[Nest], rows: int) -> dict[Memory, dict[Memory, Array]]:
        """The row that stores each element of what these nests store, and of inputs in whose place that may be.

        The latter for each output that may be there: it is one of them at most.
        """
        owner: dict[Memory, dict[Memory, Array]] = {}
        sources = sources_of(self.kernel)
        mine = np.arange(rows, dtype=np.int64)[:, None]
        for nest in nests:
            for s in accesses(nest):
                if not isinstance(s, Store):
                    continue
                at = np.reshape(self._offsets(nest, s.access), (rows, -1))
                for memory in places_of(s.access, sources):
                    size = s.access.buffer.size.evaluate(self.symbols)
                    known = owner.setdefault(memory, {}).setdefault(memory_of(s.access), np.full(size, -1, np.int64))
                    apart = (known[at] == -1) | (known[at] == mine)
                    check(bool(apart.all()), f"{s}: two rows of a chain store to one element")
                    known[at] = mine
        return owner

    def _store_of(self, output: int) -> tuple[int, int, Store]:
        """The store of an output, with the numbers of its nest and sweep."""
        for number, nest in enumerate(self.kernel.nests):
            for sweep, s in _numbered(nest):
                buffer = s.access.buffer if isinstance(s, Store) else None
                if buffer is not None and (buffer.place, buffer.index) == (Place.OUTPUT, output):
                    assert isinstance(s, Store)
                    return number, sweep, s
        raise BrokenInvariant(f"output {output} is stored")


def _is_output(access: Access, number: int) -> bool:
    return access.buffer.place is Place.OUTPUT and access.buffer.index == number


def _is_input(access: Access, number: int) -> bool:
    return access.buffer.place is Place.INPUT and access.buffer.index == number


def _loads(nest: Nest, source: int) -> list[tuple[int, Load]]:
    """The loads of an input, each with the number of its sweep."""
    return [(p, s) for p, s in _numbered(nest) if isinstance(s, Load) and _is_input(s.access, source)]


def _numbered(nest: Nest) -> Iterator[tuple[int, Statement]]:
    """Each statement with the number of the sweep that it is part of; `finish` comes after the last."""
    for number, sweep in enumerate(nest.sweeps):
        for s in (*sweep.row, *sweep.elements):
            yield number, s
    for s in nest.finish:
        yield len(nest.sweeps), s
