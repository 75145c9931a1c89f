"""A nest that is a product of matrices (`lower.products`), as C++.

multiply_0<R>   the sums of R rows, for some columns, into memory that only this task sees, where they stay in L1
finish_0        for these rows and columns, what follows from the sums, and stores; where only the sums are stored,
                `multiply` does so, and there is none
rows_0          the task: groups of rows, and blocks of columns, through both
"""

from __future__ import annotations

from dataclasses import replace

from tf_stitch.ir.types import ONE
from tf_stitch.lower.cpu import Schedule
from tf_stitch.lower.kernel import Access, Load, Nest, Reduced, Reduction, Statement, Store
from tf_stitch.lower.products import products_of, rows_of
from tf_stitch.render.c_family import dim, register
from tf_stitch.render.columns import turned, turned_strides
from tf_stitch.render.cpp_nest import NestPrinter, indented, over_lanes
from tf_stitch.render.cpp_statements import Scope
from tf_stitch.render.sharing import Form

_PRODUCT_NANOSECONDS = 0.02  # a multiplication and an addition
_TASK_COLUMNS = 256  # kColumnsOfTask of products.h
_FIRST_CACHE = 32 << 10  # bytes: of weights that are read again and again, in any order
_FINISHED = 128  # bytes: of a step of `finish`, which may be a long one


class ProductPrinter(NestPrinter):
    """Prints the functions of one nest of products."""

    def __init__(self, number: int, form: Form, schedule: Schedule) -> None:
        super().__init__(number, replace(form, nest=turned(form.nest)), schedule)
        outer = len(form.nest.outer)
        self.factors = [
            tuple(replace(a, strides=turned_strides(a.strides, outer, 1)) for a in (p.row, p.column))
            for p in products_of(form.nest)
        ]
        self.rows = rows_of(form.nest)
        self.group = dim(self.rows, "call.")
        self.stores = _plain_stores(self.nest)
        columns = self.nest.inner[-1]
        self.one_block = columns.is_static and columns.coefficient <= _TASK_COLUMNS
        self.width = dim(columns, "call.") if self.one_block else "of_task"

    def _tasks(self) -> list[str]:
        return [*self._multiply(), *([] if self.stores else self._finish()), *self._rows_task()]

    def _sums(self) -> str:
        """As parameters: one array for each product, of `width` columns; that of column n is at `n - begin`."""
        sums = "".join(f", {register(r.dtype)}* {r.name}_sums" for r in self._kept())
        return sums if self.one_block or not sums else f", i64 of_task{sums}"

    def _kept(self) -> tuple[Reduction, ...]:
        """The products whose sums something else follows from."""
        return () if self.stores else self.nest.reductions

    def _multiply(self) -> list[str]:
        n, length = self.number, dim(self.nest.inner[0], "call.")
        scope = Scope(self.nest)
        pointers = scope.pointers([s for s in self.nest.sweeps[0].elements if isinstance(s, Load)])
        pointers += scope.pointers(self.stores)
        in_depths = not _fits_first_cache(self.nest)
        k, part, first = ("k", "part", "first") if in_depths else ("0", length, "true")
        body: list[str] = []
        for index, (r, (row, column)) in enumerate(zip(self.nest.reductions, self.factors, strict=True)):
            (x_row, x_step), w_step = self._steps(row), self._steps(column)[1]
            x = f"{scope.places[row]} + {k} * {x_step}, {x_row}, {x_step}"
            w = f"{scope.places[column]} + {k} * {w_step} + n, {w_step}"
            sums = f"{r.name}_sums + n - begin, {self.width}"
            if self.stores:
                access = self.stores[index].access
                sums = f"{scope.places[access]} + n, {self._steps(access)[0]}"
            body.append(f"multiply<R, L>({x}, {w}, {part}, {first}, {sums}, count);")
        body = over_lanes(f"{self._vector_loop()}(begin, end", body)
        if in_depths:
            depths = f"for_depths({length}, depth, [&](i64 k, i64 part, bool first) STITCH_LAMBDA {{"
            body = [depths, *indented(body), "});"]
        head = f"const Call{n}& call, [[maybe_unused]] i64 row, i64 begin, i64 end"
        head += (", i64 depth" if in_depths else "") + self._sums()
        return [
            "template <int R>",
            f"__attribute__((noinline)) void multiply_{n}({head}) {{",
            *indented([*self._coordinates(), *pointers, *body]),
            "}",
            "",
        ]

    def _steps(self, access: Access) -> tuple[str, str]:
        """Elements between neighbouring rows, and between neighbours along k."""
        last = len(self.nest.outer) - 1
        return dim(access.strides[last], "call.") if last >= 0 else "0", dim(access.strides[last + 1], "call.")

    def _finish(self) -> list[str]:
        n, scope = self.number, _SumScope(self.nest)
        pointers = [*self._coordinates(), *scope.pointers(self.nest.finish)]
        body = [line for s in self.nest.finish for line in scope.vector(s)]
        loop = self._vector_loop(_FINISHED // self.nest.reductions[0].dtype.size)
        rows = f"const Call{n}& call, i64 begin_row, i64 end_row, i64 begin, i64 end"
        return [
            f"__attribute__((noinline)) void finish_{n}({rows}{self._sums()}) {{",
            "  for (i64 row = begin_row; row < end_row; ++row) {",
            *indented(indented(pointers)),
            *indented(indented(over_lanes(f"{loop}(begin, end", body))),
            *(f"    {r.name}_sums += {self.width};" for r in self.nest.reductions),
            "  }",
            "}",
            "",
        ]

    def _rows_task(self) -> list[str]:
        """A unit is a group of rows that meet the same columns, a block of them."""
        n, rows = self.number, self.schedule.block
        lines = [f"const Call{n} call = *static_cast<const Call{n}*>(task);", *self._cut()]
        depth = ""
        if not _fits_first_cache(self.nest):
            lines.append(f"const i64 depth = rows > {rows} ? {dim(self.nest.inner[0], 'call.')} : kDepthOfFewRows;")
            depth = ", depth"
        if kept := self._kept():
            size = " + ".join(f"{rows} * {self.width} * {r.dtype.size}" for r in kept)
            lines.append(f"char* memory = static_cast<char*>(call.host->scratch(1, {size}));")
        for r in kept:
            lines += [
                f"auto* {r.name}_sums = reinterpret_cast<{register(r.dtype)}*>(memory);",
                f"memory += {rows} * {self.width} * {r.dtype.size};",
            ]
        taken = "" if self.one_block or not kept else ", of_task"
        end = "columns" if self.one_block else "begin + of_task < columns ? begin + of_task : columns"
        moved = "".join(f", {r.name}_sums + first * {self.width}" for r in kept)
        lines += [
            "for (i64 i = begin_unit; i < end_unit; ++i) {",
            f"  const i64 unit = {'i' if self.one_block else 'i / blocks'};",
            f"  const i64 in_group = unit % groups * {rows}, row = unit / groups * rows + in_group;",
            f"  const i64 count = rows - in_group < {rows} ? rows - in_group : {rows};",
            f"  const i64 begin = {'0' if self.one_block else f'i % blocks * {self.width}'};",
            f"  const i64 end = {end};",
            f"  for_groups<{rows}, {self._left()}>(count, [&](auto width, i64 first) STITCH_LAMBDA {{",
            f"    multiply_{n}<decltype(width)::lanes>(call, row + first, begin, end{depth}{taken}{moved});",
            "  });",
        ]
        if kept:
            sums = "".join(f", {r.name}_sums" for r in kept)
            lines.append(f"  finish_{n}(call, row, row + count, begin, end{taken}{sums});")
        return [f"void rows_{n}(void* task, i64 begin_unit, i64 end_unit) {{", *indented([*lines, "}"]), "}", ""]

    def _left(self) -> int:
        """How many rows may be left when all full groups are taken: every power of two that any such number has."""
        rows, there = self.schedule.block, self.rows
        return there.coefficient % rows if there.is_static else (1 << (rows - 1).bit_length()) - 1

    def _cut(self) -> list[str]:
        """How many groups there are, and blocks of columns."""
        rows = self.schedule.block
        lines = [
            f"const i64 rows = {self.group}, groups = (rows + {rows - 1}) / {rows};",
            f"const i64 columns = {self._row_length()};",
        ]
        if not self.one_block:
            few = f"rows <= {rows}, call.host->threads"
            lines.append(
                f"const i64 of_task = columns_of_task(columns, {few}), blocks = (columns + of_task - 1) / of_task;"
            )
        return lines

    def _loop(self) -> list[str]:
        factor = _PRODUCT_NANOSECONDS * self.schedule.block * len(self.nest.reductions)
        width = "columns" if self.one_block else "(columns < of_task ? columns : of_task)"
        cost = f"i64({factor:.2f} * f64({dim(self.nest.inner[0], 'call.')}) * f64({width})) + 5"
        units = f"{self._rows()} / rows * groups" + ("" if self.one_block else " * blocks")
        return [*self._cut(), f"return {{rows < 1 ? 0 : {units}, {cost}, rows_{self.number}, &call}};"]


def _plain_stores(nest: Nest) -> tuple[Store, ...]:
    """Where the sums are all that is stored, each once: its store, in the order of the reductions. Else none."""
    results = {s.name: s.reduction for s in nest.finish if isinstance(s, Reduced)}
    stores = [s for s in nest.finish if isinstance(s, Store)]
    plain = {
        results[s.value]: s
        for s in stores
        if s.value in results and s.access.strides[-1] == ONE and s.access.buffer.dtype is s.dtype
    }
    if len(results) + len(stores) < len(nest.finish) or not len(plain) == len(stores) == len(nest.reductions):
        return ()
    return tuple(plain[n] for n in range(len(nest.reductions)))


def _fits_first_cache(nest: Nest) -> bool:
    """Whether the columns of each product are known to be few."""
    size = nest.inner[0] * nest.inner[1]
    return size.is_static and size.coefficient * max(r.dtype.size for r in nest.reductions) <= _FIRST_CACHE


class _SumScope(Scope):
    """The names of `finish`, whose vectors are columns of a row."""

    def vector(self, s: Statement) -> list[str]:
        if isinstance(s, Reduced):
            name = self.nest.reductions[s.reduction].name
            return self._assign(s.name, s.dtype, f"load<L>({name}_sums + n - begin, count)", True)
        return super().vector(s)
