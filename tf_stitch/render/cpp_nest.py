"""One loop nest as C++: its sweeps, the tasks that run them, and how they are launched."""

from __future__ import annotations

import numpy as np

from tf_stitch.ir.types import Dim, DType
from tf_stitch.lower.cpu import PLAIN, Driver, Schedule
from tf_stitch.lower.kernel import Accumulate, Buffer, Compute, Place, Reduction, Statement, Store, Sweep
from tf_stitch.lower.nests import row_invariant, tiles_in_place
from tf_stitch.ops import REDUCERS, is_heavy
from tf_stitch.render.c_family import STORAGE, dim, register
from tf_stitch.render.cpp_statements import Scope, accumulator_type, pack_literal, scalar_type
from tf_stitch.render.sharing import Form

_COMBINE = {"add": "Sum", "mul": "Product", "max": "Largest", "min": "Smallest", "and": "AllOf", "or": "AnyOf"}


class NestPrinter:
    """Prints the functions of nests of one form. `number` is part of their names."""

    def __init__(self, number: int, form: Form, schedule: Schedule) -> None:
        self.number = number
        self.form = form
        self.nest = form.nest
        self.schedule = schedule

    @property
    def is_plain(self) -> bool:
        """Whether there is a function `loop`, in the place of `launch`."""
        return self.schedule.driver in PLAIN

    @property
    def may_split(self) -> bool:
        return self.schedule.driver is Driver.ROWS_OR_SPLIT

    @property
    def needs_memory(self) -> bool:
        """Whether there is a function `bytes`, and `launch` takes that much memory of its own."""
        return self.may_split

    def functions(self) -> list[str]:
        return [*self._call_struct(), *self._tasks(), *self._bytes(), *self._launch()]

    def _call_struct(self) -> list[str]:
        """What all tasks of a nest are given."""
        return [
            f"struct Call{self.number} {{",
            *(f"  {_pointer(b)};" for b in self.form.buffers),
            *(f"  i64 {s};" for s in self.form.symbols),
            *(["  bool streams;"] if self.schedule.streams else []),
            "  const StitchHost* host;",
            "};",
            "",
        ]

    def _tasks(self) -> list[str]:
        lines: list[str] = []
        if self.nest.reductions:
            lines += self._row_struct()
        if self.schedule.driver is Driver.COLUMNS:
            return self._columns_sweep(self.nest.sweeps[0]) + self._columns_task()
        for number, sweep in enumerate(self.nest.sweeps):
            lines += self._sweep(number, sweep)
        if self.nest.finish:
            lines += self._finish()
        if self.nest.reductions:
            lines += self._rows_task()
            if self.may_split:
                for number in range(len(self.nest.sweeps)):
                    lines += self._split_task(number)
        else:
            lines += self._blocks_task()
        return lines

    # .. rows of results ........................................................................................

    def _row_struct(self) -> list[str]:
        fields = [
            f"  {scalar_type(accumulator_type(r))} {r.name} = {self._neutral(r, accumulator_type(r))};"
            for r in self.nest.reductions
        ]
        return [f"struct Row{self.number} {{", *fields, "};", ""]

    def _neutral(self, reduction: Reduction, type_: str) -> str:
        value = REDUCERS[reduction.reducer].neutral(reduction.dtype)
        if type_ == "mask":
            return f"splat<1>({'true' if value else 'false'})"
        dtype = DType.F64 if type_ == "f64" else reduction.dtype
        return pack_literal(dtype, np.asarray(value).astype(dtype.numpy).tobytes())

    def _combine(self, reduction: Reduction) -> str:
        return _COMBINE[REDUCERS[reduction.reducer].combine]

    def _of_sweep(self, sweep: int) -> list[tuple[int, Reduction]]:
        return [(n, r) for n, r in enumerate(self.nest.reductions) if r.sweep == sweep]

    # .. a sweep ................................................................................................

    def _tiles(self) -> list[Buffer]:
        return [*self.nest.tiles, *(r.tile for r in self.nest.repeats)]

    def _signature(self, name: str, extra: str = "") -> str:
        tiles = "".join(f", {STORAGE[t.dtype]}* {t.name}" for t in self._tiles())
        state = f", Row{self.number}& state" if self.nest.reductions else ""
        call = f"const Call{self.number}& call"
        return f"STITCH_INLINE void {name}({call}, [[maybe_unused]] i64 row{extra}{tiles}{state}) {{"

    def _arguments(self, extra: str = "") -> str:
        tiles = "".join(f", {t.name}" for t in self._tiles())
        state = ", state" if self.nest.reductions else ""
        return f"call, row{extra}{tiles}{state}"

    def _settled(self) -> list[str]:
        """Ends a function that streams: what it has stored is there for every thread."""
        return ["if (call.streams) settle();"] if self.schedule.streams else []

    def _sweep(self, number: int, sweep: Sweep) -> list[str]:
        scope = Scope(self.nest, self.schedule.streams)
        head = self._coordinates() + scope.pointers(sweep.row + sweep.elements)
        head += [line for s in sweep.row for line in scope.scalar(s)]
        reductions = self._of_sweep(number)
        head += [f"auto partial{index} = {self._accumulator(r)};" for index, r in reductions]
        fold = [line for index, r in reductions for line in self._fold(index, r)]
        body = [line for s in sweep.elements for line in scope.vector(s)]
        loop = f"{self._vector_loop()}(begin, end"
        streamed = [s.access for s in sweep.elements if isinstance(s, Store) and scope.is_streamed(s.access)]
        if streamed and not reductions and self.schedule.body == "both" and len(self.nest.inner) == 1:
            lanes = f"{self.schedule.lanes}, {self.schedule.narrow}"
            loop = f"for_aligned_lanes<{lanes}>({scope.places[streamed[0]]}, call.streams, begin, end"
        name = f"sweep_{self.number}_{number}"
        return [
            self._signature(name, ", i64 begin, i64 end"),
            *("  " + line for line in head + self._loops(loop, body, fold, reductions) + fold),
            "}",
            "",
        ]

    def _vector_loop(self, most: int | None = None) -> str:
        """The prelude's loop over the vector axis. most: lanes of a step."""
        lanes, narrow = min(self.schedule.lanes, most or self.schedule.lanes), self.schedule.narrow
        return {
            "both": f"for_lanes<{lanes}, {narrow}>",
            "wide": f"for_wide_lanes<{lanes}>",
            "narrow": f"for_narrow_lanes<{narrow}>",
        }[self.schedule.body]

    def _loops(self, loop: str, body: list[str], fold: list[str], reductions: list[tuple[int, Reduction]]) -> list[str]:
        """The vector loop, within loops over the inner axes before the last."""
        vector = over_lanes(loop, body)
        if len(self.nest.inner) == 1:
            return vector
        lines = [
            "  " * axis + f"for (i64 i{axis} = 0; i{axis} < {dim(extent, 'call.')}; ++i{axis}) {{"
            for axis, extent in enumerate(self.nest.inner[:-1])
        ]
        depth = len(lines)
        if fold:  # as often as where there is one inner axis, so that long sums lose as little
            vector += [
                f"if ((folded += end - begin) >= {self.schedule.block}) {{",
                *("  " + line for line in fold),
                *(f"  partial{index} = {self._accumulator(r)};" for index, r in reductions),
                "  folded = 0;",
                "}",
            ]
            lines.insert(0, "i64 folded = 0;")
        lines += ["  " * depth + line for line in vector]
        return lines + ["  " * axis + "}" for axis in range(depth - 1, -1, -1)]

    def _accumulator(self, reduction: Reduction) -> str:
        lanes, narrow = self.schedule.lanes, self.schedule.narrow
        widths = {"both": (lanes, narrow), "wide": (lanes, lanes), "narrow": (narrow, narrow)}[self.schedule.body]
        neutral = self._neutral(reduction, register(reduction.dtype))
        return f"accumulator<{self._combine(reduction)}, {widths[0]}, {widths[1]}>({neutral})"

    def _fold(self, index: int, reduction: Reduction) -> list[str]:
        """Adds what the lanes hold to the row's result."""
        partial, wide = f"partial{index}.result()", accumulator_type(reduction)
        if wide != register(reduction.dtype):
            partial = f"convert<{wide}>({partial})"
        name = f"state.{reduction.name}"
        return [f"{name} = {self._combine(reduction)}::of({name}, {partial});"]

    def _finish(self) -> list[str]:
        scope = Scope(self.nest)
        lines = self._coordinates() + scope.pointers(self.nest.finish)
        lines += [line for s in self.nest.finish for line in scope.scalar(s)]
        return [self._signature(f"finish_{self.number}"), *("  " + line for line in lines), "}", ""]

    def _coordinates(self) -> list[str]:
        """The outer coordinates, from the row number."""
        count = len(self.nest.outer)
        if count <= 1:
            return []
        lines: list[str] = []
        rest = "row"
        for axis in range(count - 1, 0, -1):
            extent = dim(self.nest.outer[axis], "call.")
            lines.append(f"const i64 o{axis} = {rest} % ({extent});")
            lines.append(f"const i64 r{axis} = {rest} / ({extent});")
            rest = f"r{axis}"
        lines.append(f"const i64 o0 = {rest};")
        return ["[[maybe_unused]] " + line for line in lines]

    # .. tasks ..................................................................................................

    def _tile_lines(self, shared_row: str | None) -> list[str]:
        """Pointers to the tiles: of the task, or of row `shared_row` in the call's memory."""
        if not self.nest.tiles:
            return []
        lines: list[str] = []
        offset = "0"
        base = "tiles" if shared_row is None else f"tiles + {shared_row} * tile_bytes"
        for place in tiles_in_place(self.nest):
            for tile in place:
                type_ = STORAGE[tile.dtype]
                lines.append(f"{type_}* {tile.name} = reinterpret_cast<{type_}*>({base} + {offset});")
            size = f"{dim(place[0].size, 'call.')} * {place[0].dtype.size}"
            offset = f"{offset} + ({size} + 63) / 64 * 64"
        return lines

    def _tile_bytes(self, scope: str = "call.") -> str:
        tiles = [place[0] for place in tiles_in_place(self.nest)]
        return " + ".join(f"({dim(t.size, scope)} * {t.dtype.size} + 63) / 64 * 64" for t in tiles) or "0"

    def _row_length(self) -> str:
        return dim(self.nest.inner[-1], "call.")

    def _rows_task(self) -> list[str]:
        lines = [
            f"void rows_{self.number}(void* task, i64 begin_row, i64 end_row) {{",
            f"  const Call{self.number} call = *static_cast<const Call{self.number}*>(task);",
        ]
        if self.nest.tiles:
            lines.append(f"  char* tiles = static_cast<char*>(call.host->scratch(1, {self._tile_bytes()}));")
        lines += ["  " + line for line in self._tile_lines(None)]
        lines += [
            "  for (i64 row = begin_row; row < end_row; ++row) {",
            f"    Row{self.number} state;",
        ]
        for number in range(len(self.nest.sweeps)):
            name = f"sweep_{self.number}_{number}"
            if len(self.nest.inner) > 1 or self.schedule.one_block:
                lines.append(f"    {name}({self._arguments(f', 0, {self._row_length()}')});")
            else:
                lines.append(
                    f"    for_blocks<{self.schedule.block}>({self._row_length()}, [&](i64 begin, i64 end) "
                    f"STITCH_LAMBDA {{ {name}({self._arguments(', begin, end')}); }});"
                )
        if self.nest.finish:
            lines.append(f"    finish_{self.number}({self._arguments()});")
        return [*lines, "  }", *indented(self._settled()), "}", ""]

    def _split_task(self, sweep: int) -> list[str]:
        """A task of SPLIT: unit u is block u % blocks of row u / blocks; its partial results go to parts[u]."""
        n, block = self.number, self.schedule.block
        lines = [
            f"struct Split{n}_{sweep} {{ Call{n}* call; i64 blocks; Row{n}* rows; Row{n}* parts; char* tiles; }};",
            f"void split_{n}_{sweep}(void* task, i64 begin_unit, i64 end_unit) {{",
            f"  const auto& split = *static_cast<const Split{n}_{sweep}*>(task);",
            f"  const Call{n} call = *split.call;",
        ]
        if self.nest.tiles:
            lines += ["  char* tiles = split.tiles;", f"  const i64 tile_bytes = {self._tile_bytes()};"]
        lines += [
            f"  const i64 length = {self._row_length()};",
            "  for (i64 unit = begin_unit; unit < end_unit; ++unit) {",
            "    const i64 row = unit / split.blocks;",
            f"    const i64 begin = unit % split.blocks * {block};",
            f"    const i64 end = begin + {block} < length ? begin + {block} : length;",
            f"    Row{n} state = split.rows[row];",
            *(f"    state.{r.name} = Row{n}{{}}.{r.name};" for _, r in self._of_sweep(sweep)),
            *("    " + line for line in self._tile_lines("row")),
            f"    sweep_{n}_{sweep}({self._arguments(', begin, end')});",
            "    split.parts[unit] = state;",
            "  }",
            *indented(self._settled()),
            "}",
            "",
        ]
        return lines

    def _bytes(self) -> list[str]:
        """Whether a call is SPLIT, and the memory that takes: rows' tiles and results, and those of their blocks."""
        if not self.may_split:
            return []
        n, block = self.number, self.schedule.block
        return [
            f"bool splits_{n}(const Call{n}& call) {{",
            "  const i64 threads = call.host->threads;",
            f"  return threads > 1 && {self._rows()} < 2 * threads && {self._row_length()} > {block};",
            "}",
            "",
            f"i64 bytes_{n}(const Call{n}& call) {{",
            f"  if (!splits_{n}(call)) return 0;",
            f"  const i64 blocks = ({self._row_length()} + {block - 1}) / {block};",
            f"  const i64 results = ((1 + blocks) * i64(sizeof(Row{n})) + 63) / 64 * 64;",
            f"  return {self._rows()} * (results + {self._tile_bytes()});",
            "}",
            "",
        ]

    def _launch(self) -> list[str]:
        if self.is_plain:
            call = f"Call{self.number}& call"
            lines = self._loop()
            return [f"__attribute__((noinline)) Loop loop_{self.number}({call}) {{", *indented(lines), "}", ""]
        memory = ", char* own" if self.needs_memory else ""
        return [
            f"void launch_{self.number}(Call{self.number}& call{memory}) {{",
            "  const StitchHost* host = call.host;",
            *("  " + line for line in self._launches()),
            "}",
            "",
        ]

    def _rows(self) -> str:
        return " * ".join(f"{dim(d, 'call.')}" for d in self.nest.outer) or "1"

    def _row_cost(self) -> str:
        whole = " * ".join(f"{dim(d, 'call.')}" for d in self.nest.inner)
        return f"i64({self.nest.nanoseconds:.2f} * f64({whole})) + 5"

    def _launches(self) -> list[str]:
        """Of rows that may be split."""
        n, block = self.number, self.schedule.block
        plain = f"host->parallel_for(host->context, {self._rows()}, {self._row_cost()}, rows_{n}, &call);"
        lines = [
            f"if (!splits_{n}(call)) {{",
            "  " + plain,
            "  return;",
            "}",
            f"const i64 count = {self._rows()}, blocks = ({self._row_length()} + {block - 1}) / {block};",
            f"auto* rows = reinterpret_cast<Row{n}*>(own);",
            "auto* parts = rows + count;",
            f"for (i64 row = 0; row < count; ++row) rows[row] = Row{n}{{}};",
        ]
        if self.nest.tiles:
            lines += [
                f"char* tiles = own + count * (((1 + blocks) * i64(sizeof(Row{n})) + 63) / 64 * 64);",
                f"const i64 tile_bytes = {self._tile_bytes()};",
            ]
        tiles = "tiles" if self.nest.tiles else "nullptr"
        for sweep in range(len(self.nest.sweeps)):
            block_cost = f"i64({self.nest.nanoseconds * block / len(self.nest.sweeps):.0f})"
            lines += [
                f"Split{n}_{sweep} task_{sweep} = {{&call, blocks, rows, parts, {tiles}}};",
                f"host->parallel_for(host->context, count * blocks, {block_cost}, split_{n}_{sweep}, &task_{sweep});",
            ]
            if self._of_sweep(sweep):
                lines.append("for (i64 unit = 0; unit < count * blocks; ++unit) {")
                lines.append(f"  Row{n}& state = rows[unit / blocks];")
                lines += [
                    f"  state.{r.name} = {self._combine(r)}::of(state.{r.name}, parts[unit].{r.name});"
                    for _, r in self._of_sweep(sweep)
                ]
                lines.append("}")
        if self.nest.finish:
            lines.append("for (i64 row = 0; row < count; ++row) {")
            lines.append(f"  Row{n}& state = rows[row];")
            lines += ["  " + line for line in self._tile_lines("row")]
            lines += [f"  finish_{n}({self._arguments()});", "}"]
        return lines

    def _blocks_task(self) -> list[str]:
        n, block = self.number, self.schedule.block
        inner = " * ".join(f"{dim(d, 'call.')}" for d in self.nest.inner[:-1])
        assert not inner, "an element-wise nest has one inner axis"
        length = self._row_length()
        head = [f"const i64 length = {length};"]
        where = ["constexpr i64 row = 0;", f"const i64 begin = unit * {block};"]
        if self.nest.outer:
            head = [f"const i64 length = {length}, blocks = (length + {block - 1}) / {block};"]
            where = [
                "const i64 row = blocks == 1 ? unit : unit / blocks;",
                f"const i64 begin = blocks == 1 ? 0 : unit % blocks * {block};",
            ]
        return [
            f"void blocks_{n}(void* task, i64 begin_unit, i64 end_unit) {{",
            f"  const Call{self.number} call = *static_cast<const Call{self.number}*>(task);",
            *self._repeat_lines(),
            *indented(head),
            "  for (i64 unit = begin_unit; unit < end_unit; ++unit) {",
            *indented(indented(where)),
            f"    const i64 end = begin + {block} < length ? begin + {block} : length;",
            f"    sweep_{n}_0({self._arguments(', begin, end')});",
            "  }",
            *indented(self._settled()),
            "}",
            "",
        ]

    def _columns_sweep(self, sweep: Sweep) -> list[str]:
        """All columns of some rows: what does not depend on the row stands outside of the loop over rows.

        Not where that takes many loops over the rows, each of a part of them: memory is faster end to end.
        """
        scope = Scope(self.nest, self.schedule.streams)
        invariant = row_invariant(self.nest)

        def varies(s: Statement) -> bool:
            return isinstance(s, Store | Accumulate) or s.name not in invariant

        fixed = [s for s in sweep.row if not varies(s)], [s for s in sweep.elements if not varies(s)]
        moving = [s for s in sweep.row if varies(s)], [s for s in sweep.elements if varies(s)]
        head = scope.pointers([*fixed[0], *fixed[1]]) + [line for s in fixed[0] for line in scope.scalar(s)]
        columns = [line for s in fixed[1] for line in scope.vector(s)]
        rows = scope.pointers([*moving[0], *moving[1]]) + [line for s in moving[0] for line in scope.scalar(s)]
        elements = [line for s in moving[1] for line in scope.vector(s)]
        along = f"for (i64 n = 0; n < {self._row_length()}; n += {self.schedule.lanes}) {{"
        down = "for (i64 row = begin_row; row < end_row; ++row) {"
        heavy = any(isinstance(s, Compute) and is_heavy(s.function) for s in fixed[1])
        if heavy or self.nest.inner[-1] == Dim(self.schedule.lanes):
            loops = [along, *indented(columns), "  " + down, *indented(indented([*rows, *elements]))]
        else:
            loops = [down, *indented(rows), "  " + along, *indented(indented([*columns, *elements]))]
        return [
            f"STITCH_INLINE void sweep_{self.number}_0(const Call{self.number}& call, i64 begin_row, i64 end_row) {{",
            f"  constexpr int L = {self.schedule.lanes};",
            "  constexpr All count;",
            *indented([*head, *loops, "  }", "}"]),
            "}",
            "",
        ]

    def _columns_task(self) -> list[str]:
        n, block = self.number, self.schedule.block
        return [
            f"void blocks_{n}(void* task, i64 begin_unit, i64 end_unit) {{",
            f"  const Call{self.number} call = *static_cast<const Call{self.number}*>(task);",
            f"  const i64 rows = {self._rows()};",
            "  for (i64 unit = begin_unit; unit < end_unit; ++unit) {",
            f"    const i64 begin = unit * {block}, end = begin + {block} < rows ? begin + {block} : rows;",
            f"    sweep_{n}_0(call, begin, end);",
            "  }",
            *indented(self._settled()),
            "}",
            "",
        ]

    def _repeat_lines(self) -> list[str]:
        """Fills the tiles that repeat a row's parameters."""
        if not self.nest.repeats:
            return []
        sizes = [self.schedule.block * r.tile.dtype.size for r in self.nest.repeats]
        lines = [f"  char* tiles = static_cast<char*>(call.host->scratch(1, {sum(-(-s // 64) * 64 for s in sizes)}));"]
        offset = 0
        for r, size in zip(self.nest.repeats, sizes, strict=True):
            type_ = STORAGE[r.tile.dtype]
            base = f"call.{r.source.buffer.name}" + "".join(f" + {dim(term, 'call.')}" for term in r.source.offset)
            lines.append(f"  auto* {r.tile.name} = reinterpret_cast<{type_}*>(tiles + {offset});")
            lines.append(f"  repeat({r.tile.name}, {base}, {r.period}, {self.schedule.block});")
            offset += -(-size // 64) * 64
        return lines

    def _loop(self) -> list[str]:
        n, block = self.number, self.schedule.block
        if self.nest.reductions:
            return [f"return {{{self._rows()}, {self._row_cost()}, rows_{n}, &call}};"]
        if self.schedule.driver is Driver.COLUMNS:
            units = f"({self._rows()} + {block - 1}) / {block}"
            cost = round(self.nest.nanoseconds * block * self.nest.inner[0].coefficient) + 2
            return [f"return {{{units}, {cost}, blocks_{n}, &call}};"]
        return [
            f"const i64 length = {self._row_length()}, blocks = (length + {block - 1}) / {block};",
            f"const i64 unit = length < {block} ? length : {block};",
            f"const i64 cost = i64({self.nest.nanoseconds:.2f} * f64(unit)) + 2;",
            f"return {{{self._rows()} * blocks, cost, blocks_{n}, &call}};",
        ]


def over_lanes(loop: str, body: list[str]) -> list[str]:
    """A loop of the prelude over the vector axis. loop: its call, up to the last argument."""
    return [
        f"{loop}, [&](auto width, [[maybe_unused]] i64 n, [[maybe_unused]] auto count) STITCH_LAMBDA {{",
        "  constexpr int L = decltype(width)::lanes;",
        *indented(body),
        "});",
    ]


def indented(lines: list[str]) -> list[str]:
    return ["  " + line for line in lines]


def _pointer(buffer: Buffer) -> str:
    const = "const " if buffer.place is Place.INPUT else ""
    return f"{const}{STORAGE[buffer.dtype]}* {buffer.name}"
