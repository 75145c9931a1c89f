"""A nest of products (`lower.products`), as C++.

multiply_0<R>   the sums of R rows, for some columns, and what follows from them

Where much follows, it is done for more columns at a time than there are registers for sums:

multiply_0<R>   the sums of R rows, for some columns, into memory that only this task sees, where they stay in L1
finish_0        for these rows and columns, what follows from the sums, and stores

rows_0          the task: groups of rows, and blocks of columns, through these
"""

from __future__ import annotations

from dataclasses import replace

from tf_stitch.ir.types import ONE, product
from tf_stitch.lower.cpu import Schedule
from tf_stitch.lower.kernel import (
    Access,
    Accumulate,
    Coordinate,
    Load,
    Nest,
    Reduced,
    Reduction,
    Statement,
    Store,
)
from tf_stitch.lower.nests import invariant
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
_FOLLOWS_AT_ONCE = 12  # statements behind the sums, printed for each row of a group


class ProductPrinter(NestPrinter):
    """Prints the functions of one nest of products.

    at_once: what follows from the sums is part of `multiply`. in_depths: it goes through k in pieces (products.h).
    """

    def __init__(self, number: int, form: Form, schedule: Schedule) -> None:
        super().__init__(number, replace(form, nest=turned(form.nest)), schedule)
        outer = len(form.nest.outer)
        self.factors = [
            (*(replace(a, strides=turned_strides(a.strides, outer, 1)) for a in (p.row, p.column)), p.by_column)
            for p in products_of(form.nest)
        ]
        self.rows = rows_of(form.nest)
        self.group = dim(self.rows, "call.")
        self.stores = _plain_stores(self.nest)
        never_few = product(self.nest.outer).coefficient > schedule.block  # rows
        self.in_depths = len(self.nest.inner) == 2 and not (never_few or _fits_first_cache(self.nest))
        self.at_once = not self.stores and not self.in_depths and _follows_at_once(self.nest)
        columns = self.nest.inner[-1]
        self.one_block = columns.is_static and columns.coefficient <= _TASK_COLUMNS
        self.width = dim(columns, "call.") if self.one_block else "of_task"

    def _tasks(self) -> list[str]:
        return [*self._multiply(), *(self._finish() if self._kept() else []), *self._rows_task()]

    def _sums(self) -> str:
        """As parameters: one array for each product, of `width` columns; that of column n is at `n - begin`."""
        sums = "".join(f", {register(r.dtype)}* {r.name}_sums" for r in self._kept())
        return sums if self.one_block or not sums else f", i64 of_task{sums}"

    def _kept(self) -> tuple[Reduction, ...]:
        """The products whose sums something else follows from, later."""
        return () if self.stores or self.at_once else self.nest.reductions

    def _multiply(self) -> list[str]:
        n = self.number
        scope = Scope(self.nest)
        loads = (s for s in self.nest.sweeps[0].elements if isinstance(s, Load))
        pointers = scope.pointers([*loads, *(self.stores or (self.nest.finish if self.at_once else ()))])
        body = [f"Sums<{register(r.dtype)}, R, L> {r.name}_rows;" for r in self.nest.reductions]
        for index, r in enumerate(self.nest.reductions):
            clear = f"{r.name}_rows.clear();"
            if self.in_depths:
                body += [f"if (first) {clear}", f"else {r.name}_rows.take({self._place(index, scope)}, count);"]
            else:
                body.append(clear)
        body += self._products(scope)
        if self.at_once:
            body += self._following(scope)
        else:
            for index, r in enumerate(self.nest.reductions):
                body.append(f"{r.name}_rows.give({self._place(index, scope)}, count);")
        body = over_lanes(f"{self._vector_loop()}(begin, end", body)
        if self.in_depths:
            length = dim(self.nest.inner[0], "call.")
            depths = f"for_depths({length}, depth, [&](i64 k, i64 part, bool first) STITCH_LAMBDA {{"
            body = [depths, *indented(body), "});"]
        head = f"const Call{n}& call, [[maybe_unused]] i64 row, i64 begin, i64 end"
        head += (", i64 depth" if self.in_depths else "") + self._sums()
        return [
            "template <int R>",
            f"__attribute__((noinline)) void multiply_{n}({head}) {{",
            *indented([*self._coordinates(), *pointers, *body]),
            "}",
            "",
        ]

    def _products(self, scope: Scope) -> list[str]:
        """Adds all products to the sums; axes of k before the last are loops around all of them."""
        *around, last = self.nest.inner[:-1]
        lines: list[str] = []
        for r, (row, column, by_column) in zip(self.nest.reductions, self.factors, strict=True):
            x_row, *_, x_step = self._steps(row)
            *_, w_step = self._steps(column)
            part = "part" if self.in_depths else dim(last, "call.")
            x, w = (f"{scope.places[a]}{self._around(a)}" for a in (row, column))
            if self.in_depths:
                x, w = f"{x} + k * {x_step}", f"{w} + k * {w_step}"
            x += " + n" if by_column else ""
            name = "multiply_columns" if by_column else "multiply"
            lines.append(f"{r.name}_rows.{name}({x}, {x_row}, {x_step}, {w} + n, {w_step}, {part}, count);")
        for axis in range(len(around) - 1, -1, -1):
            loop = f"for (i64 i{axis} = 0; i{axis} < {dim(around[axis], 'call.')}; ++i{axis}) {{"
            lines = [loop, *indented(lines), "}"]
        return lines

    def _around(self, access: Access) -> str:
        """What loops around the last axis of k add to an address."""
        steps = enumerate(self._steps(access)[1:-1])
        return "".join(f" + i{axis} * {step}" for axis, step in steps if step != "0")

    def _place(self, index: int, scope: Scope) -> str:
        """Where the sums of a step are kept or stored: address, and elements between neighbouring rows."""
        if self.stores:
            access = self.stores[index].access
            return f"{scope.places[access]} + n, {self._steps(access)[0]}"
        return f"{self.nest.reductions[index].name}_sums + n - begin, {self.width}"

    def _following(self, scope: Scope) -> list[str]:
        """What follows from the sums, for each row; once for all of them what is the same."""
        outer = len(self.nest.outer)
        same = invariant(self.nest.finish, slice(max(outer - 1, 0), outer))
        once: list[str] = []
        each: list[str] = []
        scope = _RowScope(scope)
        for s in self.nest.finish:
            if isinstance(s, Load | Store):
                step = self._steps(s.access)[0]
                if step != "0":
                    scope.places[s.access] = f"{scope.places[s.access]} + r * {step}"
            part = each if isinstance(s, Store | Accumulate) or s.name not in same else once
            part += scope.vector(s)
        return [*once, "#pragma GCC unroll 8", "for (int r = 0; r < R; ++r) {", *indented(each), "}"]

    def _steps(self, access: Access) -> list[str]:
        """Elements between neighbouring rows, and between neighbours along each axis of k."""
        outer = len(self.nest.outer)
        row = dim(access.strides[outer - 1], "call.") if outer else "0"
        return [row, *(dim(s, "call.") for s in access.strides[outer:-1])]

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
        if self.in_depths:
            length = dim(self.nest.inner[0], "call.")
            lines.append(f"const i64 depth = {self._rows()} > {rows} ? {length} : kDepthOfFewRows;")
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
        cost = f"i64({factor:.2f} * f64({dim(product(self.nest.inner[:-1]), 'call.')}) * f64({width})) + 5"
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
    size = product(nest.inner)
    return size.is_static and size.coefficient * max(r.dtype.size for r in nest.reductions) <= _FIRST_CACHE


def _follows_at_once(nest: Nest) -> bool:
    """Whether so little follows from the sums that it is printed for every row of a group."""
    by_place = any(isinstance(s, Coordinate) or (isinstance(s, Load) and s.at) for s in nest.finish)
    return not by_place and len(nest.finish) <= _FOLLOWS_AT_ONCE * len(nest.reductions)


class _SumScope(Scope):
    """The names of `finish`, whose vectors are columns of a row."""

    def vector(self, s: Statement) -> list[str]:
        if isinstance(s, Reduced):
            name = self.nest.reductions[s.reduction].name
            return self._assign(s.name, s.dtype, f"load<L>({name}_sums + n - begin, count)", True)
        return super().vector(s)


class _RowScope(Scope):
    """The names behind the products of a step, in row r of the group: other names are as in `around`."""

    def __init__(self, around: Scope) -> None:
        super().__init__(around.nest)
        self.places = dict(around.places)

    def vector(self, s: Statement) -> list[str]:
        if isinstance(s, Reduced):
            return self._assign(s.name, s.dtype, f"{self.nest.reductions[s.reduction].name}_rows.sum[r]", True)
        return super().vector(s)
