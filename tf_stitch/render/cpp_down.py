"""A nest whose reductions run down columns, as C++.

    sum over r of x[r, c]            columns, a vector at a time
                                +------+------+------+
         rows of a block        |  L   |  L   | ...  |    sweep: a vector of columns goes down the rows of a block,
                                |  |   |  |   |      |           its sums in registers, and leaves them in `part`
                                |  v   |  v   |      |
                                +------+------+------+
         the next block         |      |      |      |    add: parts are added to `total`, block after block

A unit is one block of rows by one block of columns. SPLIT: units go to the threads, and the parts are added up after a
join. WHOLE: there are columns enough for the threads, and a task takes its columns through all blocks and sweeps. Both
add the same parts in the same order, and blocks follow from the shape alone: the bits are the same.

`row` is here a combination of the outer coordinates but the last, which is the column.
"""

from __future__ import annotations

from dataclasses import replace

from tf_stitch.ir.types import Dim
from tf_stitch.lower.cpu import Schedule
from tf_stitch.lower.kernel import (
    Access,
    Accumulate,
    Kernel,
    Load,
    Nest,
    Reduced,
    Reduction,
    Statement,
    Store,
    Sweep,
)
from tf_stitch.render.c_family import dim, register
from tf_stitch.render.cpp_nest import NestPrinter
from tf_stitch.render.cpp_statements import Scope, accumulator_type

_FEWEST_ROWS, _MOST_ROWS = 16, 128  # in a block: a lane of f32 adds up that many, f64 the rest
_COLUMNS = 1024  # in a block


class DownPrinter(NestPrinter):
    """Prints the functions of one nest that runs down columns."""

    def __init__(self, kernel: Kernel, number: int, nest: Nest, schedule: Schedule) -> None:
        super().__init__(kernel, number, _turned(nest), schedule)

    @property
    def needs_memory(self) -> bool:
        return True

    def functions(self) -> list[str]:
        lines = self._struct()
        for number, sweep in enumerate(self.nest.sweeps):
            lines += self._sweep(number, sweep)
            if self._of_sweep(number):
                lines += self._add(number)
            lines += self._split_task(number)
        if self.nest.finish:
            lines += self._finish()
        return lines + self._whole_task()

    # .. what all tasks of a launch see .........................................................................

    def _storage(self, type_: str) -> str:
        return "boolean" if type_ == "mask" else type_

    def _part_type(self, r: Reduction) -> str:
        return self._storage(register(r.dtype))

    def _total_type(self, r: Reduction) -> str:
        return self._storage(accumulator_type(r))

    def _struct(self) -> list[str]:
        """Totals are [rows, columns]; parts are [units, columns of a block], or one block's in a WHOLE task."""
        fields = [f"  {self._total_type(r)}* {r.name}_total;" for r in self.nest.reductions]
        return [
            f"struct Down{self.number} {{",
            "  const Call* call;",
            "  i64 columns, length, rows_of_block, blocks, column_blocks, part_columns, part_bytes;",
            "  char* parts;",
            *fields,
            "};",
            "",
        ]

    def _signature(self, name: str, extra: str = "") -> str:
        arguments = f"const Down{self.number}& down, [[maybe_unused]] i64 row, i64 begin_column, i64 end_column{extra}"
        return f"__attribute__((noinline)) void {name}({arguments}) {{"

    # .. a sweep ................................................................................................

    def _sweep(self, number: int, sweep: Sweep) -> list[str]:
        scope = _Columns(self.nest, self._combine)
        reductions = self._of_sweep(number)
        pointers = self._coordinates() + scope.pointers(sweep.row + sweep.elements)
        head = [line for s in sweep.row for line in scope.vector(s)]
        body = [line for s in sweep.elements for line in scope.vector(s)]
        inner = self.nest.inner[:-1]
        loops = ["for (i64 i0 = begin; i0 < end; ++i0) {"]
        loops += [
            f"for (i64 i{axis} = 0; i{axis} < {dim(extent, 'call.')}; ++i{axis}) {{"
            for axis, extent in enumerate(inner)
            if axis > 0
        ]
        depth = len(loops)
        stores = [f"store(part{index} + (n - begin_column), partial{index}, count);" for index, _ in reductions]
        lines = [
            "const Call call = *down.call;",
            *pointers,
            *self._parts(number),
            f"{self._loop()}(begin_column, end_column, [&](auto width, i64 n, [[maybe_unused]] auto count) "
            "STITCH_LAMBDA {",
            "  constexpr int L = decltype(width)::lanes;",
            *("  " + line for line in head),
            *(
                f"  auto partial{index} = splat<L>({self._neutral(r, register(r.dtype))});"
                for index, r in reductions
            ),
            *("  " * (level + 1) + line for level, line in enumerate(loops)),
            *("  " * (depth + 1) + line for line in body),
            *("  " * (level + 1) + "}" for level in range(depth - 1, -1, -1)),
            *("  " + line for line in stores),
            "});",
        ]
        extra = ", i64 begin, i64 end" + (", char* parts" if reductions else "")
        signature = self._signature(f"sweep_{self.number}_{number}", extra)
        return [signature, *("  " + line for line in lines), "}", ""]

    def _loop(self) -> str:
        lanes, narrow = self.schedule.lanes, self.schedule.narrow
        return {
            "both": f"for_lanes<{lanes}, {narrow}>",
            "wide": f"for_wide_lanes<{lanes}>",
            "narrow": f"for_narrow_lanes<{narrow}>",
        }[self.schedule.body]

    def _parts(self, sweep: int) -> list[str]:
        """Where a unit's partial results are: one after another, each a block of columns long."""
        lines: list[str] = []
        offset = 0
        for index, r in self._of_sweep(sweep):
            type_ = self._part_type(r)
            lines.append(f"auto* part{index} = reinterpret_cast<{type_}*>(parts + down.part_columns * {offset});")
            offset += r.dtype.size
        return lines

    def _part_size(self) -> int:
        """Bytes for one column, of the sweep that needs most."""
        return max(sum(r.dtype.size for _, r in self._of_sweep(s)) for s in range(len(self.nest.sweeps)))

    def _add(self, number: int) -> list[str]:
        """Adds the parts of some blocks to the totals, in order."""
        reductions = self._of_sweep(number)
        body: list[str] = []
        for index, r in reductions:
            partial = f"load<L>(part{index} + block * (down.part_bytes / i64(sizeof(*part{index}))) + (n - begin_column), count)"
            if accumulator_type(r) != register(r.dtype):
                partial = f"convert<{accumulator_type(r)}>({partial})"
            total = f"down.{r.name}_total + row * down.columns + n"
            body += [
                f"auto total{index} = first ? splat<L>({self._neutral(r, accumulator_type(r))}) : load<L>({total}, count);",
                f"for (i64 block = 0; block < blocks; ++block) total{index} = "
                f"{self._combine(r)}::of(total{index}, {partial});",
                f"store({total}, total{index}, count);",
            ]
        lines = [
            *self._parts(number),
            f"{self._loop()}(begin_column, end_column, [&](auto width, i64 n, [[maybe_unused]] auto count) "
            "STITCH_LAMBDA {",
            "  constexpr int L = decltype(width)::lanes;",
            *("  " + line for line in body),
            "});",
        ]
        extra = ", bool first, i64 blocks, char* parts"
        return [self._signature(f"add_{self.number}_{number}", extra), *("  " + line for line in lines), "}", ""]

    def _finish(self) -> list[str]:
        scope = _Columns(self.nest, self._combine)
        pointers = self._coordinates() + scope.pointers(self.nest.finish)
        body = [line for s in self.nest.finish for line in scope.vector(s)]
        lines = [
            "const Call call = *down.call;",
            *pointers,
            f"{self._loop()}(begin_column, end_column, [&](auto width, i64 n, [[maybe_unused]] auto count) "
            "STITCH_LAMBDA {",
            "  constexpr int L = decltype(width)::lanes;",
            *("  " + line for line in body),
            "});",
        ]
        return [self._signature(f"finish_{self.number}"), *("  " + line for line in lines), "}", ""]

    # .. tasks ..................................................................................................

    def _column_range(self, block: str) -> list[str]:
        return [
            f"const i64 begin_column = {block} * {_COLUMNS};",
            f"const i64 end_column = begin_column + {_COLUMNS} < down.columns ? begin_column + {_COLUMNS} : down.columns;",
        ]

    def _row_range(self) -> list[str]:
        return [
            "const i64 begin = block * down.rows_of_block;",
            "const i64 end = begin + down.rows_of_block < down.length ? begin + down.rows_of_block : down.length;",
        ]

    def _split_task(self, sweep: int) -> list[str]:
        n = self.number
        parts = ", down.parts + unit * down.part_bytes" if self._of_sweep(sweep) else ""
        lines = [
            f"const auto& down = *static_cast<const Down{n}*>(task);",
            "for (i64 unit = begin_unit; unit < end_unit; ++unit) {",
            "  const i64 block = unit % down.blocks, columns = unit / down.blocks;",
            "  const i64 row = columns / down.column_blocks;",
            *("  " + line for line in self._column_range("(columns % down.column_blocks)")),
            *("  " + line for line in self._row_range()),
            f"  sweep_{n}_{sweep}(down, row, begin_column, end_column, begin, end{parts});",
            "}",
        ]
        name = f"split_{n}_{sweep}"
        return [
            f"void {name}(void* task, i64 begin_unit, i64 end_unit) {{",
            *("  " + line for line in lines),
            "}",
            "",
        ]

    def _whole_task(self) -> list[str]:
        n = self.number
        lines = [
            f"const auto& down = *static_cast<const Down{n}*>(task);",
            "[[maybe_unused]] char* parts = static_cast<char*>(down.call->host->scratch(1, down.part_bytes));",
            "for (i64 unit = begin_unit; unit < end_unit; ++unit) {",
            "  const i64 row = unit / down.column_blocks;",
            *("  " + line for line in self._column_range("(unit % down.column_blocks)")),
        ]
        for sweep in range(len(self.nest.sweeps)):
            reduces = bool(self._of_sweep(sweep))
            lines += [
                "  for (i64 block = 0; block < down.blocks; ++block) {",
                *("    " + line for line in self._row_range()),
                f"    sweep_{n}_{sweep}(down, row, begin_column, end_column, begin, end{', parts' if reduces else ''});",
            ]
            if reduces:
                lines.append(f"    add_{n}_{sweep}(down, row, begin_column, end_column, block == 0, 1, parts);")
            lines.append("  }")
        if self.nest.finish:
            lines.append(f"  finish_{n}(down, row, begin_column, end_column);")
        return [
            f"void whole_{n}(void* task, i64 begin_unit, i64 end_unit) {{",
            *("  " + line for line in lines),
            "  }",
            "}",
            "",
        ]

    # .. launch .................................................................................................

    def reserve(self) -> list[str]:
        n = self.number
        extent = self.nest.inner[0]
        per_row = " * ".join(f"{dim(d, 'call.')}" for d in self.nest.inner[1:-1]) or "1"
        lines = [
            f"  Down{n} down_{n} = {{}};",
            f"  down_{n}.call = &call;",
            f"  down_{n}.columns = {self._row_length()};",
            f"  down_{n}.length = {dim(extent, 'call.')};",
            f"  down_{n}.column_blocks = (down_{n}.columns + {_COLUMNS - 1}) / {_COLUMNS};",
            f"  down_{n}.rows_of_block = rows_of_block<{_FEWEST_ROWS}, {_MOST_ROWS}>"
            f"(down_{n}.columns < {_COLUMNS} ? down_{n}.columns : {_COLUMNS}, {per_row});",
            f"  down_{n}.blocks = blocks_of(down_{n}.length, down_{n}.rows_of_block);",
            f"  down_{n}.part_columns = down_{n}.columns < {_COLUMNS} ? (down_{n}.columns + 63) / 64 * 64 : {_COLUMNS};",
            f"  down_{n}.part_bytes = down_{n}.part_columns * {self._part_size()};",
            f"  const i64 columns_{n} = {self._rows()} * down_{n}.column_blocks;",
            f"  const bool split_{n} = host->threads > 1 && columns_{n} < 2 * host->threads && down_{n}.blocks > 1;",
            f"  const i64 parts_{n}_offset = bytes;",
            f"  if (split_{n}) bytes += columns_{n} * down_{n}.blocks * down_{n}.part_bytes;",
        ]
        for r in self.nest.reductions:
            size = f"{self._rows()} * down_{n}.columns * i64(sizeof(*down_{n}.{r.name}_total))"
            lines += [
                f"  const i64 {r.name}_{n}_offset = bytes;",
                f"  bytes += ({size} + 63) / 64 * 64;",
            ]
        return lines

    def launch(self) -> list[str]:
        n = self.number
        lines = [f"  down_{n}.parts = shared + parts_{n}_offset;"]
        for r in self.nest.reductions:
            lines.append(
                f"  down_{n}.{r.name}_total = reinterpret_cast<{self._total_type(r)}*>(shared + {r.name}_{n}_offset);"
            )
        per_row = " * ".join(f"{dim(d, 'call.')}" for d in self.nest.inner[1:-1]) or "1"
        columns = f"f64(down_{n}.columns < {_COLUMNS} ? down_{n}.columns : {_COLUMNS})"
        unit = f"{self.nest.nanoseconds / len(self.nest.sweeps):.2f} * f64(down_{n}.rows_of_block * {per_row}) * {columns}"
        whole = f"{self.nest.nanoseconds:.2f} * f64(down_{n}.length * {per_row}) * {columns}"
        lines += [
            f"  if (!split_{n}) {{",
            f"    host->parallel_for(host->context, columns_{n}, i64({whole}) + 5, whole_{n}, &down_{n});",
            "  } else {",
        ]
        for sweep in range(len(self.nest.sweeps)):
            lines.append(
                f"    host->parallel_for(host->context, columns_{n} * down_{n}.blocks, i64({unit}) + 5, "
                f"split_{n}_{sweep}, &down_{n});"
            )
            if self._of_sweep(sweep):
                lines += self._for_columns(
                    f"add_{n}_{sweep}(down, row, begin_column, end_column, true, down.blocks, "
                    "down.parts + unit * down.blocks * down.part_bytes);"
                )
        if self.nest.finish:
            lines += self._for_columns(f"finish_{n}(down, row, begin_column, end_column);")
        return [*lines, "  }"]

    def _for_columns(self, call: str) -> list[str]:
        n = self.number
        lines = [
            f"const auto& down = down_{n};",
            f"for (i64 unit = 0; unit < columns_{n}; ++unit) {{",
            "  const i64 row = unit / down.column_blocks;",
            *("  " + line for line in self._column_range("(unit % down.column_blocks)")),
            "  " + call,
            "}",
        ]
        return ["    {", *("      " + line for line in lines), "    }"]


def _turned(nest: Nest) -> Nest:
    """The nest with its last outer axis as the vector axis, behind the axes that are reduced."""
    last = len(nest.outer) - 1

    def turned(access: Access) -> Access:
        strides = access.strides
        return replace(access, strides=(*strides[:last], *strides[last + 1 :], strides[last]))

    def of(s: Statement) -> Statement:
        return replace(s, access=turned(s.access)) if isinstance(s, Load | Store) else s

    sweeps = tuple(Sweep(tuple(map(of, sweep.row)), tuple(map(of, sweep.elements))) for sweep in nest.sweeps)
    inner: tuple[Dim, ...] = (*nest.inner, nest.outer[-1])
    return replace(nest, outer=nest.outer[:-1], inner=inner, sweeps=sweeps, finish=tuple(map(of, nest.finish)))


class _Columns(Scope):
    """The names of a function whose vectors are columns: what is a row's scalar elsewhere is a vector here."""

    def __init__(self, nest: Nest, combine) -> None:
        super().__init__(nest)
        self._combine = combine

    def vector(self, s: Statement) -> list[str]:
        match s:
            case Reduced(name, dtype, number):
                reduction = self.nest.reductions[number]
                value = f"load<L>(down.{reduction.name}_total + row * down.columns + n, count)"
                if accumulator_type(reduction) != register(dtype):
                    value = f"convert<{register(dtype)}>({value})"
                return self._assign(name, dtype, value, True)
            case Accumulate(number, value):
                combine = self._combine(self.nest.reductions[number])
                return [f"partial{number} = {combine}::of(partial{number}, {self._wide(value)});"]
            case _:
                return super().vector(s)
