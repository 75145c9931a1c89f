"""A nest whose reductions run down columns, as C++.

    sum over r of x[r, c]            columns, a vector at a time
                                +------+------+------+
         rows of a block        |  L   |  L   | ...  |    sweep: a vector of columns goes down the rows of a block,
                                |  |   |  |   |      |           its sums in registers, and leaves them in `part`
                                |  v   |  v   |      |
                                +------+------+------+
         the next block         |      |      |      |    add: parts are added to `total`, block after block

A unit is a block of columns. SPLIT: blocks of rows of all units go to the threads, and the parts are added up after a
join. WHOLE: there are units enough for the threads, and a task takes each through all blocks and sweeps. Both add the
same parts in the same order: the bits are the same. JOINED: as SPLIT, and each block of rows goes through the nest
before as well (`lower.joining`).

Where a row is made of short pieces (`lower.bundling`), a bundle of neighbouring columns has one result: that of their
totals together.

`row` is here a combination of the outer coordinates but the last, which is the column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tf_stitch.ir.types import Dim
from tf_stitch.lower.bundling import is_of_bundles
from tf_stitch.lower.cpu import Schedule
from tf_stitch.lower.kernel import (
    Access,
    Accumulate,
    Compute,
    LookUp,
    Nest,
    Reduced,
    Reduction,
    Statement,
    Store,
    Sweep,
    operands,
)
from tf_stitch.lower.nests import accesses
from tf_stitch.render.c_family import dim, register
from tf_stitch.render.columns import turned, turned_strides
from tf_stitch.render.cpp_nest import NestPrinter
from tf_stitch.render.cpp_statements import Scope, accumulator_type
from tf_stitch.render.sharing import Form

_ZERO = Dim(0)


class DownPrinter(NestPrinter):
    """Prints the functions of one nest that runs down columns."""

    def __init__(self, number: int, form: Form, schedule: Schedule, before: NestPrinter | None = None) -> None:
        """before: the nest of rows that it is joined with, which it launches, too."""
        super().__init__(number, replace(form, nest=turned(form.nest, schedule.bundle)), schedule)
        self.before = before
        self._shared = _shared_by_bundles(form.nest, schedule.bundle)

    @property
    def needs_memory(self) -> bool:
        return True

    def _tasks(self) -> list[str]:
        lines = self._struct()
        for number, sweep in enumerate(self.nest.sweeps):
            lines += self._sweep(number, sweep)
            if self._of_sweep(number):
                lines += self._add(number)
            if number > 0 or self.before is None or self.before.may_split:
                lines += self._split_task(number)
        if self.nest.finish:
            lines += self._finish()
        return lines + (self._whole_task() if self.before is None else self._joined_task(self.before))

    # .. what all tasks of a launch see .........................................................................

    def _struct(self) -> list[str]:
        """Totals are [rows, columns]."""
        fields = [f"  {_stored(accumulator_type(r))}* {r.name}_total;" for r in self.nest.reductions]
        calls = [f"  const Call{self.number}* call;"]
        if self.before is not None:
            calls.append(f"  Call{self.before.number}* before;")
        return [f"struct Down{self.number} : Columns {{", *calls, *fields, "};", ""]

    def _function(self, name: str, extra: str, lines: list[str]) -> list[str]:
        """Not inlined: SPLIT and WHOLE share it."""
        arguments = f"const Down{self.number}& down, [[maybe_unused]] i64 row, Range columns{extra}"
        signature = f"__attribute__((noinline)) void {name}({arguments}) {{"
        return [signature, *("  " + line for line in lines), "}", ""]

    def _call(self) -> str:
        return f"const Call{self.number} call = *down.call;"

    def _over_columns(self, body: list[str], loop: str = "") -> list[str]:
        loop = loop or self._narrow_loop()
        return [
            f"{loop}(columns.begin, columns.end, [&](auto width, i64 n, [[maybe_unused]] auto count) STITCH_LAMBDA {{",
            "  constexpr int L = decltype(width)::lanes;",
            *("  " + line for line in body),
            "});",
        ]

    def _narrow_loop(self) -> str:
        """A loop that runs once for many rows: wide steps would be more to compile, and no faster."""
        return f"for_{'wide' if self.schedule.body == 'wide' else 'narrow'}_lanes<{self.schedule.narrow}>"

    def _parts(self, sweep: int) -> list[str]:
        """Where a unit's partial results are: one reduction's after another's, each a block of columns long."""
        lines: list[str] = []
        offset = 0
        for index, r in self._of_sweep(sweep):
            type_ = _stored(register(r.dtype))
            lines.append(
                f"auto* part{index} = reinterpret_cast<{type_}*>(parts + down.part_columns * {offset}) - columns.begin;"
            )
            offset += r.dtype.size
        return lines

    def _part_size(self) -> int:
        """Bytes for one column, of the sweep that needs most."""
        return max(sum(r.dtype.size for _, r in self._of_sweep(s)) for s in range(len(self.nest.sweeps)))

    def _scope(self, streams: bool = False) -> _ColumnScope:
        return _ColumnScope(self.nest, self._combine, self.schedule.bundle, self._shared, streams)

    # .. sweeps .................................................................................................

    def _sweep(self, number: int, sweep: Sweep) -> list[str]:
        scope = self._scope(self.schedule.streams)
        reductions = self._of_sweep(number)
        pointers = self._coordinates() + scope.pointers(sweep.row + sweep.elements)
        once, body = self._of_columns(sweep, scope)
        elements = [line for s in sweep.elements for line in scope.vector(s)]
        loops = ["for (i64 i0 = some.begin; i0 < some.end; ++i0) {"]
        for axis, extent in enumerate(self.nest.inner[1:-1], start=1):
            loops.append("  " * axis + f"for (i64 i{axis} = 0; i{axis} < {dim(extent, 'call.')}; ++i{axis}) {{")
        for index, r in reductions:
            neutral = f"splat<L>({self._neutral(r, register(r.dtype))})"
            body.append(f"auto partial{index} = some.begin == first ? {neutral} : load<L>(part{index} + n, count);")
        body += [*loops, *("  " * len(loops) + line for line in elements)]
        body += ["  " * level + "}" for level in range(len(loops) - 1, -1, -1)]
        body += [f"store(part{index} + n, partial{index}, count);" for index, _ in reductions]
        lines = [
            self._call(),
            *pointers,
            *self._parts(number),
            *once,
            "for_some_rows(rows, down.some_rows, [&](Range some) STITCH_LAMBDA {",
            *("  " + line for line in self._over_columns(body, self._vector_loop())),
            "});",
            *(self._settled() if any(isinstance(s, Store) for s in sweep.elements) else []),
        ]
        extra = ", Range rows" + (", i64 first, char* parts" if reductions else "")
        return self._function(f"sweep_{self.number}_{number}", extra, lines)

    def _of_columns(self, sweep: Sweep, scope: Scope) -> tuple[list[str], list[str]]:
        """What is one value a column: how it is computed, once for a block of rows, and how a step gets at it.

        A step that goes down a single row has no time to compute its columns' mean and deviation again.
        """
        computed = {s.name: s.dtype for s in sweep.row if isinstance(s, Compute | Reduced)}
        used = dict.fromkeys(name for s in sweep.elements for name in operands(s))
        kept = [name for name in used if name in computed]
        if not kept:
            return [], [line for s in sweep.row for line in scope.vector(s)]
        first = [line for s in sweep.row for line in scope.vector(s)]
        first += [f"store({name}_at + n, {name}, count);" for name in kept]
        arrays: list[str] = []
        for name in kept:
            type_ = _stored(register(computed[name]))
            arrays += [
                f"alignas(64) {type_} {name}_columns[kBlockColumns];",
                f"{type_}* const {name}_at = {name}_columns - columns.begin;",
            ]
        uncomputed = [s for s in sweep.row if not isinstance(s, Compute | Reduced | Store | Accumulate)]
        again = [line for s in uncomputed if s.name in used for line in scope.vector(s)]
        again += [f"const auto {name} = load<L>({name}_at + n, count);" for name in kept]
        return [*arrays, *self._over_columns(first)], again

    def _add(self, number: int) -> list[str]:
        """Adds the parts of some blocks to the totals, in order."""
        body: list[str] = []
        for index, r in self._of_sweep(number):
            type_ = accumulator_type(r)
            total = f"down.{r.name}_total + row * down.columns + n"
            part = f"load<L>(part{index} + block * (down.part_bytes / i64(sizeof(*part{index}))) + n, count)"
            if type_ != register(r.dtype):
                part = f"convert<{type_}>({part})"
            body += [
                f"auto total{index} = first ? splat<L>({self._neutral(r, type_)}) : load<L>({total}, count);",
                "for (i64 block = 0; block < blocks; ++block)",
                f"  total{index} = {self._combine(r)}::of(total{index}, {part});",
                f"store({total}, total{index}, count);",
            ]
        lines = [*self._parts(number), *self._over_columns(body)]
        return self._function(f"add_{self.number}_{number}", ", bool first, i64 blocks, char* parts", lines)

    def _finish(self) -> list[str]:
        scope = self._scope()
        pointers = self._coordinates() + scope.pointers(self.nest.finish)
        body = [line for s in self.nest.finish for line in scope.vector(s)]
        lines = [self._call(), *pointers, *self._over_columns(body)]
        return self._function(f"finish_{self.number}", "", lines)

    # .. tasks ..................................................................................................

    def _task(self, name: str, lines: list[str]) -> list[str]:
        return [
            f"void {name}(void* task, i64 begin, i64 end) {{",
            f"  const auto& down = *static_cast<const Down{self.number}*>(task);",
            *("  " + line for line in lines),
            "}",
            "",
        ]

    def _split_task(self, sweep: int) -> list[str]:
        parts = ", rows.begin, down.parts + i * down.part_bytes" if self._of_sweep(sweep) else ""
        lines = [
            "for (i64 i = begin; i < end; ++i) {",
            "  const i64 unit = i / down.blocks, row = unit / down.column_blocks;",
            "  const Range rows = down.rows_of(i % down.blocks);",
            f"  sweep_{self.number}_{sweep}(down, row, down.columns_of(unit), rows{parts});",
            "}",
        ]
        return self._task(f"split_{self.number}_{sweep}", lines)

    def _whole_task(self) -> list[str]:
        n = self.number
        lines = [
            "[[maybe_unused]] char* parts = static_cast<char*>(down.call->host->scratch(1, down.part_bytes));",
            "for (i64 unit = begin; unit < end; ++unit) {",
            "  const i64 row = unit / down.column_blocks;",
            "  const Range columns = down.columns_of(unit);",
        ]
        for sweep in range(len(self.nest.sweeps)):
            lines.append("  for (i64 block = 0; block < down.blocks; ++block) {")
            if self._of_sweep(sweep):
                lines.append("    const Range rows = down.rows_of(block);")
                lines.append(f"    sweep_{n}_{sweep}(down, row, columns, rows, rows.begin, parts);")
                lines.append(f"    add_{n}_{sweep}(down, row, columns, block == 0, 1, parts);")
            else:
                lines.append(f"    sweep_{n}_{sweep}(down, row, columns, down.rows_of(block));")
            lines.append("  }")
        if self.nest.finish:
            lines.append(f"  finish_{n}(down, row, columns);")
        return self._task(f"whole_{n}", [*lines, "}"])

    def _joined_task(self, before: NestPrinter) -> list[str]:
        """Rows of a block through the nest before, then, while they are in the cache, down their columns."""
        parts = ", rows.begin, down.parts_of(unit) + block * down.part_bytes" if self._of_sweep(0) else ""
        lines = [
            "for (i64 block = begin; block < end; ++block) {",
            "  const Range rows = down.rows_of(block);",
            "  for_some_rows(rows, down.joined_rows(), [&](Range some) STITCH_LAMBDA {",
            f"    rows_{before.number}(down.before, some.begin, some.end);",
            "    for (i64 unit = 0; unit < down.units(); ++unit)",
            f"      sweep_{self.number}_0(down, 0, down.columns_of(unit), some{parts});",
            "  });",
            "}",
        ]
        return self._task(f"joined_{self.number}", lines)

    # .. launch .................................................................................................

    def _depth(self) -> str:
        """Elements of what is reduced that stand in one row."""
        return " * ".join(f"{dim(d, 'call.')}" for d in self.nest.inner[1:-1]) or "1"

    def _element_bytes(self) -> int:
        """Bytes that pass through memory for an element."""
        moved = [s.access for s in accesses(self.nest)]
        both = {a.buffer for a in moved if a.strides[-1] != _ZERO and any(d != _ZERO for d in a.strides[:-1])}
        return sum(b.dtype.size for b in both)

    def _cut(self) -> list[str]:
        """How the call is cut up, and whether it is SPLIT."""
        n, length = self.number, dim(self.nest.inner[0], "call.")
        streamed = self._element_bytes() if self.before is None else 0  # what is joined is in the cache
        bytes_ = f"{self.schedule.lanes}, {self._part_size()}, {streamed}"
        split = "call.host->threads > 1 && down.units() < 2 * call.host->threads && down.blocks > 1"
        return [
            f"Down{n} down = {{}};",
            "down.call = &call;",
            f"cut(down, {self._rows()}, {self._row_length()}, {length}, {self._depth()}, {bytes_});",
            f"const bool split = {split if self.before is None else 'true'};",
        ]

    def _bytes(self) -> list[str]:
        """The totals', and where it is SPLIT the parts'."""
        totals = " + ".join(
            f"(down.rows * down.columns * {self._total_size(r)} + 63) / 64 * 64" for r in self.nest.reductions
        )
        return [
            f"i64 bytes_{self.number}(const Call{self.number}& call) {{",
            *("  " + line for line in self._cut()),
            f"  return {totals} + (split ? down.units() * down.blocks * down.part_bytes : 0);",
            "}",
            "",
        ]

    def _total_size(self, r: Reduction) -> int:
        return 8 if accumulator_type(r) == "f64" else r.dtype.size

    def _launch(self) -> list[str]:
        n = self.number
        before = ""
        if self.before is not None:
            memory = ", char* own_before" if self.before.may_split else ""
            before = f", Call{self.before.number}& before{memory}"
        return [
            f"void launch_{n}(Call{n}& call, char* own{before}) {{",
            "  const StitchHost* host = call.host;",
            *("  " + line for line in self._launches()),
            "}",
            "",
        ]

    def _launches(self) -> list[str]:
        n = self.number
        lines = self._cut()
        for r in self.nest.reductions:
            lines.append(f"down.{r.name}_total = reinterpret_cast<decltype(down.{r.name}_total)>(own);")
            lines.append(f"own += (down.rows * down.columns * {self._total_size(r)} + 63) / 64 * 64;")
        lines.append("down.parts = own;")
        split: list[str] = []
        for sweep in range(len(self.nest.sweeps)):
            split += self._split_launch(sweep)
            if self._of_sweep(sweep):
                arguments = "down, row, down.columns_of(unit), true, down.blocks, down.parts_of(unit)"
                split += self._for_units(f"add_{n}_{sweep}({arguments});")
        if self.nest.finish:
            split += self._for_units(f"finish_{n}(down, row, down.columns_of(unit));")
        if self.before is not None:
            return [*lines, "down.before = &before;", *split]
        cost = self._cost(self.nest.nanoseconds, "down.length")
        whole = f"host->parallel_for(host->context, down.units(), {cost}, whole_{n}, &down);"
        return [*lines, "if (!split) {", "  " + whole, "} else {", *("  " + line for line in split), "}"]

    def _cost(self, nanoseconds: float, rows: str) -> str:
        return f"i64({nanoseconds:.2f} * f64({rows} * {self._depth()} * down.part_columns)) + 5"

    def _split_launch(self, sweep: int) -> list[str]:
        """Launches a sweep by units and blocks; the first, where it is joined, with the nest before."""
        n, before = self.number, self.before
        share = self.nest.nanoseconds / len(self.nest.sweeps)
        cost = self._cost(share, "down.rows_of_block")
        alone = f"host->parallel_for(host->context, down.units() * down.blocks, {cost}, split_{n}_{sweep}, &down);"
        if sweep > 0 or before is None:
            return [alone]
        row = " * ".join(f"{dim(d, 'before.')}" for d in before.nest.inner)
        both = f"{before.nest.nanoseconds:.2f} * f64({row}) + {share:.2f} * f64(down.columns)"
        together = (
            f"host->parallel_for(host->context, down.blocks, i64(f64(down.rows_of_block) * ({both})) + 5, "
            f"joined_{n}, &down);"
        )
        if not before.may_split:
            return [together]
        apart = [f"launch_{before.number}(before, own_before);", alone]
        return [
            f"if (!splits_{before.number}(before)) {{",
            "  " + together,
            "} else {",
            *("  " + a for a in apart),
            "}",
        ]

    def _for_units(self, statement: str) -> list[str]:
        return [
            "for (i64 unit = 0; unit < down.units(); ++unit) {",
            "  const i64 row = unit / down.column_blocks;",
            "  " + statement,
            "}",
        ]


def _stored(type_: str) -> str:
    return "boolean" if type_ == "mask" else type_


def _shared_by_bundles(nest: Nest, bundle: int) -> frozenset[Access]:
    """The accesses, turned, that have one value for each bundle."""
    if bundle == 1:
        return frozenset()
    outer = len(nest.outer)
    shared = [s.access for s in accesses(nest) if is_of_bundles(outer, s.access.strides)]
    return frozenset(replace(a, strides=turned_strides(a.strides, outer, bundle)) for a in shared)


class _ColumnScope(Scope):
    """The names of a function whose vectors are columns: what is a row's scalar elsewhere is a vector here."""

    def __init__(
        self,
        nest: Nest,
        combine: Callable[[Reduction], str],
        bundle: int,
        shared: frozenset[Access],
        streams: bool,
    ) -> None:
        """shared: the accesses that have one value for each bundle."""
        super().__init__(nest, streams)
        self.combine = combine
        self.bundle = bundle
        self.shared = shared

    def vector(self, s: Statement) -> list[str]:
        match s:
            case Reduced(name, dtype, number):
                reduction = self.nest.reductions[number]
                totals = f"down.{reduction.name}_total + row * down.columns"
                value = f"load<L>({totals} + n, count)"
                if self.bundle > 1:
                    combine = self.combine(reduction)
                    value = f"load_bundled<L, {combine}>({totals}, n, {self.bundle}, down.columns)"
                if accumulator_type(reduction) != register(dtype):
                    value = f"convert<{register(dtype)}>({value})"
                return self._assign(name, dtype, value, True)
            case Accumulate(number, value):
                combine = self.combine(self.nest.reductions[number])
                return [f"partial{number} = {combine}::of(partial{number}, {self._wide(value)});"]
            case _:
                return super().vector(s)

    def _vector_load(self, access: Access, indices: Sequence[LookUp] = ()) -> str:
        if access not in self.shared:
            return super()._vector_load(access, indices)
        return f"load_at<L>({self._at(access)}, {self._bundles(access)}, count)"

    def is_streamed(self, access: Access) -> bool:
        return access not in self.shared and super().is_streamed(access)

    def _vector_store(self, access: Access, value: str) -> str:
        if access not in self.shared:
            return super()._vector_store(access, value)
        return f"store_at({self._at(access)}, {self._bundles(access)}, {value}, count);"

    def _at(self, access: Access) -> str:
        return self.places[access] + self._inner_offset(access)

    def _bundles(self, access: Access) -> str:
        """Where the bundle of each lane's column is."""
        return f"bundles<L>(n, {self.bundle}, {dim(access.strides[-1], 'call.')})"
