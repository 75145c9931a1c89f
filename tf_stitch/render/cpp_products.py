"""A nest that is a product of matrices (`lower.products`), as C++.

multiply_0<R>   the sums of R rows, into memory that only this task sees: they stay in L1
finish_0        for some rows, what follows from their sums, and stores
rows_0          the task: groups of rows through both
"""

from __future__ import annotations

from dataclasses import replace

from tf_stitch.ir.types import ONE
from tf_stitch.lower.cpu import Schedule
from tf_stitch.lower.kernel import Access, Load, Nest, Reduced, Reduction, Statement, Store
from tf_stitch.lower.products import products_of, rows_of
from tf_stitch.render.c_family import dim, register
from tf_stitch.render.columns import turned, turned_strides
from tf_stitch.render.cpp_nest import NestPrinter
from tf_stitch.render.cpp_statements import Scope
from tf_stitch.render.sharing import Form

_PRODUCT_NANOSECONDS = 0.02
_FIRST_CACHE = 32 << 10  # bytes
_FINISHED = 128


class ProductPrinter(NestPrinter):
    """Prints the functions of one nest of products."""

    def __init__(self, number: int, form: Form, schedule: Schedule) -> None:
        super().__init__(number, replace(form, nest=turned(form.nest)), schedule)
        outer = len(form.nest.outer)
        self.factors = [
            tuple(replace(a, strides=turned_strides(a.strides, outer, 1)) for a in (p.row, p.column))
            for p in products_of(form.nest)
        ]
        self.group = dim(rows_of(form.nest), "call.")
        self.stores = _plain_stores(self.nest)

    def _tasks(self) -> list[str]:
        return [*self._multiply(), *([] if self.stores else self._finish()), *self._rows_task()]

    def _columns(self) -> str:
        return self._row_length()

    def _sums(self) -> str:
        """As parameters: one array [rows, columns] for each product."""
        return "".join(f", {register(r.dtype)}* {r.name}_sums" for r in self._kept())

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
            sums = f"{r.name}_sums + n, {self._columns()}"
            if self.stores:
                access = self.stores[index].access
                sums = f"{scope.places[access]} + n, {self._steps(access)[0]}"
            body.append(f"  multiply<R, L>({x}, {w}, {part}, {first}, {sums}, count);")
        loop = f"{self._vector_loop()}(0, {self._columns()}"
        body = [
            f"{loop}, [&](auto width, i64 n, [[maybe_unused]] auto count) STITCH_LAMBDA {{",
            "  constexpr int L = decltype(width)::lanes;",
            *body,
            "});",
        ]
        if in_depths:
            depths = f"for_depths({length}, depth, [&](i64 k, i64 part, bool first) STITCH_LAMBDA {{"
            body = [depths, *_indented(body), "});"]
        head = f"const Call{n}& call, [[maybe_unused]] i64 row, [[maybe_unused]] i64 depth{self._sums()}"
        return [
            "template <int R>",
            f"__attribute__((noinline)) void multiply_{n}({head}) {{",
            *_indented([*self._coordinates(), *pointers, *body]),
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
        rows = f"const Call{n}& call, i64 begin_row, i64 end_row"
        return [
            f"__attribute__((noinline)) void finish_{n}({rows}{self._sums()}) {{",
            "  for (i64 row = begin_row; row < end_row; ++row) {",
            *_indented(_indented(pointers)),
            f"    {loop}(0, {self._columns()}, [&](auto width, i64 n, [[maybe_unused]] auto count) STITCH_LAMBDA {{",
            "      constexpr int L = decltype(width)::lanes;",
            *("      " + line for line in body),
            "    });",
            *(f"    {r.name}_sums += {self._columns()};" for r in self.nest.reductions),
            "  }",
            "}",
            "",
        ]

    def _rows_task(self) -> list[str]:
        """A unit is a group of rows that meet the same columns."""
        n, rows, columns = self.number, self.schedule.block, self._columns()
        lines = [
            f"const Call{n} call = *static_cast<const Call{n}*>(task);",
            f"const i64 rows = {self.group}, groups = (rows + {rows - 1}) / {rows};",
            f"const i64 depth = rows > {rows} ? {dim(self.nest.inner[0], 'call.')} : kDepthOfFewRows;",
        ]
        if kept := self._kept():
            size = " + ".join(f"{rows} * {columns} * {r.dtype.size}" for r in kept)
            lines.append(f"char* memory = static_cast<char*>(call.host->scratch(1, {size}));")
        for r in kept:
            lines += [
                f"auto* {r.name}_sums = reinterpret_cast<{register(r.dtype)}*>(memory);",
                f"memory += {rows} * {columns} * {r.dtype.size};",
            ]
        moved = "".join(f", {r.name}_sums + first * {columns}" for r in kept)
        lines += [
            "for (i64 unit = begin_unit; unit < end_unit; ++unit) {",
            f"  const i64 in_group = unit % groups * {rows}, row = unit / groups * rows + in_group;",
            f"  const i64 count = rows - in_group < {rows} ? rows - in_group : {rows};",
            f"  for_groups<{rows}>(count, [&](auto width, i64 first) STITCH_LAMBDA {{",
            f"    multiply_{n}<decltype(width)::lanes>(call, row + first, depth{moved});",
            "  });",
        ]
        if kept:
            sums = "".join(f", {r.name}_sums" for r in kept)
            lines.append(f"  finish_{n}(call, row, row + count{sums});")
        return [f"void rows_{n}(void* task, i64 begin_unit, i64 end_unit) {{", *_indented([*lines, "}"]), "}", ""]

    def _loop(self) -> list[str]:
        rows = self.schedule.block
        products = " * ".join(["f64(" + dim(d, "call.") + ")" for d in self.nest.inner])
        factor = _PRODUCT_NANOSECONDS * rows * len(self.nest.reductions)
        return [
            f"const i64 rows = {self.group}, groups = (rows + {rows - 1}) / {rows};",
            f"const i64 count = rows < 1 ? 0 : {self._rows()} / rows * groups;",
            f"return {{count, i64({factor:.2f} * {products}) + 5, rows_{self.number}, &call}};",
        ]


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
            return self._assign(s.name, s.dtype, f"load<L>({name}_sums + n, count)", True)
        return super().vector(s)


def _indented(lines: list[str]) -> list[str]:
    return ["  " + line for line in lines]
