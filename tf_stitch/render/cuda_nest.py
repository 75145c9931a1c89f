"""One loop nest as CUDA C++: a block's loop over its units, and in it what each step does.

for (i64 unit = blockIdx.x; unit < units; unit += gridDim.x) {
  const int row = unit * 8 + thread / 32;        which rows, pieces and columns the unit is
  const f32* x_at = x + row * 768;               pointers to them
  f32 sum_part = 0.0f;                           RunSweep: a loop of each thread
  for (...) {...}
  const f32 sum = across<Sum, 32>(sum_part);     Fold, Collect, ...
}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tf_stitch.ir.types import Dim, product
from tf_stitch.lower.gpu_joining import Joint
from tf_stitch.lower.gpu_launch import Larger, ceil_div
from tf_stitch.lower.gpu_schedule import THREADS, GpuSchedule, Home, Mapping, parts_name, tiles_name
from tf_stitch.lower.gpu_steps import (
    BlockBarrier,
    Collect,
    Combine,
    Deposit,
    EachPiece,
    EachRow,
    Fold,
    FoldKept,
    Keep,
    Publish,
    PublishDown,
    RunFinish,
    RunSweep,
    Stage,
    Step,
    flat,
)
from tf_stitch.lower.kernel import Load, Nest, Reduction, Statement, Store
from tf_stitch.lower.nests import tiles_in_place
from tf_stitch.ops import REDUCERS
from tf_stitch.plan.gpu_target import WARP
from tf_stitch.render.c_family import STORAGE, dim, formula, literal
from tf_stitch.render.cuda_statements import COMBINE, Scope, bare, combined, indented, register, words

_ZERO = Dim(0)

Values = list[tuple[str, str]]  # names, and expressions that none of these names stands in


class StagePrinter:
    """Prints one stage. index: "int" or "i64", what counts elements. constant: see Scope.

    waved: whether it is of a nest that goes in waves, which has its slots for all of its stages.
    """

    def __init__(
        self,
        stage: Stage,
        nest: Nest,
        schedule: GpuSchedule,
        index: str,
        constant: frozenset[int],
        joint: Joint | None = None,
        waved: bool = False,
    ) -> None:
        self.stage = stage
        self.waved = waved
        self.nest = nest
        self.schedule = schedule
        self.index = index
        self.joint = joint
        self.scope = Scope(nest, schedule, constant, index, joint.reductions if joint else ())
        self.down = schedule.down
        self.rows_of_threads = THREADS // schedule.lanes  # for COLUMNS: threads one below the other
        self.length = dim(product(nest.inner))
        exists = not self.down or nest.outer[-1].coefficient % schedule.lanes == 0
        self.inside = "" if exists else "inside"  # the condition under which this thread's column exists

    # .. the loop over units ....................................................................................

    def declared(self) -> list[str]:
        """The slots of the stage."""
        return [f"__shared__ {type_} {name}[{count}];" for type_, name, count in self.slots()]

    def _told(self) -> str:
        """The schedule, for who reads the code."""
        s = self.schedule
        who = {
            Mapping.ELEMENTS: f"{s.vector} elements to a thread" if s.vector > 1 else "an element to a thread",
            Mapping.WARPS: f"a row to {s.lanes} lanes of a warp" if s.lanes > 1 else "a row to a thread",
            Mapping.BLOCKS: "a row to a block" if s.piece is None else "a row to a block, in pieces",
            Mapping.SPLIT: "a piece of a row to a block" if self._has_sweep() else "a row to a block",
            Mapping.COLUMNS: f"{s.lanes} columns to a block" + ("" if s.piece is None else ", in pieces"),
            Mapping.COLUMNS_SPLIT: (
                f"a piece of {s.lanes} columns to a block" if self._has_sweep() else f"{s.lanes} columns to a block"
            ),
        }[s.mapping]
        if self.joint:
            who = "some rows to a block, and what they add to their columns"
        tiles = f"; tiles in {s.home.value}" if self.nest.tiles else ""
        return f"// {who[0].upper()}{who[1:]}{tiles}."

    def alone(self) -> list[str]:
        """The stage as the only one of its phase."""
        units, head = self._units()
        return [
            self._told(),
            *([] if self.waved else self.declared()),
            *head,
            f"for (i64 unit = blockIdx.x; unit < {units}; unit += gridDim.x) {{",
            *self._unit(),
            "}",
        ]

    def in_turn(self, *, declare: bool = True) -> list[str]:
        """The stage as one of several, which take their units one behind another: `unit` is declared before them.

        declare: whether with its slots.
        """
        units, head = self._units()
        head = [self._told(), *(self.declared() if declare and not self.waved else []), *head]
        loop = [f"for (; unit < {units}; unit += gridDim.x) {{", *self._unit(), "}", f"unit -= {units};"]
        return ["{", *indented([*head, *loop]), "}"]

    def _units(self) -> tuple[str, list[str]]:
        """How many there are, and the lines that stand before the loop."""
        units = formula(self.stage.units)
        if self.joint:
            return "units", [*self._of_stage(), f"const i64 units = ({self._rows} + piece_length - 1) / piece_length;"]
        if self.schedule.split and self._has_sweep():
            rows = self._groups() if self.down else self._rows
            return "units", [*self._of_stage(), f"const i64 units = {f'{rows} * ' if rows != '1' else ''}i64(pieces);"]
        if units.isidentifier() or units.isdigit():
            return units, self._of_stage()
        return "units", [*self._of_stage(), f"const i64 units = {bare(units)};"]

    def _unit(self) -> list[str]:
        """What is done for a unit."""
        if self.joint:
            return indented([*self._where(), *self._steps(self.stage.body)])
        lines = [*self._head(), *self._steps(self.stage.body)]
        guard = ""
        rows = product(self.nest.outer)
        if self.schedule.mapping is Mapping.ELEMENTS:
            lines, guard = self._elements(lines)
        elif self.schedule.mapping is Mapping.WARPS and rows.coefficient % (THREADS // self.schedule.lanes):
            guard = f"if (row < {self._rows}) "
        return indented([*self._where(), *self._tiles(), *_guard(guard, lines)])

    def _head(self) -> list[str]:
        """Coordinates, and pointers to the row."""
        coordinates, cut = self._coordinates()
        used = [s for step in flat(self.stage.body) for s in self._statements(step)]
        pointers = self.scope.point(used, coordinates)
        return self._with_read(cut, pointers, self.scope.counted(used))

    def _of_stage(self) -> list[str]:
        """What is the same for all units."""
        s, lines = self.schedule, list[str]()
        if s.mapping is Mapping.WARPS:
            lines.append(f"const int lane = thread % {s.lanes};")
        elif s.down:
            lines += [f"const int lane = thread % {s.lanes}, depth = thread / {s.lanes};"]
        if isinstance(s.piece, Larger):
            least, even = formula(s.piece.one), bare(formula(s.piece.other))
            lines.append(f"const {self.index} even = {even};")
            lines.append(f"const {self.index} piece_length = even > {least} ? even : {least};")
        elif s.piece is not None:
            lines.append(f"const {self.index} piece_length = {formula(s.piece)};")
        if s.split:
            lines.append(f"const {self.index} pieces = ({self.length} + piece_length - 1) / piece_length;")
        return lines

    def _cast(self, value: str) -> str:
        return value if value.isdigit() or self.index == "i64" else f"{self.index}({value})"

    def slots(self) -> list[tuple[str, str, int]]:
        """What threads leave for each other in shared memory: type, name, number."""
        found: list[tuple[str, str, int]] = []
        for step in flat(self.stage.body):
            if isinstance(step, Deposit):
                r, type_, _ = self._reduction(step.reduction)
                count = THREADS if self.down else THREADS // WARP
                found.append((type_, self._slot(r, step.totals), count))
        return found

    def _slot(self, r: Reduction, totals: bool) -> str:
        """Where threads leave their parts of a reduction, or their totals."""
        return f"{r.name}_{'totals' if totals and not self.waved else 'slots'}"

    def _groups(self) -> str:
        """Of columns, in all rows above them."""
        rest = product(self.nest.outer[:-1])
        width = formula(ceil_div(self.nest.outer[-1], self.schedule.lanes))
        return width if rest.is_one else f"{dim(rest)} * {width}"

    @property
    def _rows(self) -> str:
        return dim(product(self.nest.outer))

    # .. where a unit is ........................................................................................

    def _where(self) -> list[str]:
        """Coordinates of the unit, or of the thread in it."""
        s, unit = self.schedule, self._cast("unit")
        if s.mapping is Mapping.ELEMENTS:
            n = f"{unit} * {THREADS} + thread"
            n = f"({n}) * {s.vector}" if s.vector > 1 else n
            return [f"const {self.index} {'element' if self.nest.outer else 'n'} = {n};"]
        of_piece = s.split and self._has_sweep()
        if s.down:
            return self._where_down(f"{unit} / pieces" if of_piece else unit) + self._piece(of_piece, unit)
        if s.mapping is Mapping.WARPS:
            per_block = THREADS // s.lanes
            line = f"const {self.index} row = {unit} * {per_block} + thread / {s.lanes};"
            together = [f"const u32 together = __ballot_sync(whole_warp, row < {self._rows});"]
            return [line, *(together if self._partial_warps() else [])]
        if self.joint:
            rows = self._cast(self._rows)
            end = f"begin + piece_length < {rows} ? begin + piece_length : {rows}"
            return [f"const {self.index} begin = {unit} * piece_length;", f"const {self.index} end = {end};"]
        row = f"{unit} / pieces" if of_piece else unit
        lines = [f"const {self.index} row = {row};"] if self.nest.outer else []
        return lines + self._piece(of_piece, unit)

    def _partial_warps(self) -> bool:
        """Whether rows may end within a warp."""
        rows = product(self.nest.outer)
        return self.schedule.lanes < WARP and rows.coefficient % (WARP // self.schedule.lanes) != 0

    def _has_sweep(self) -> bool:
        return any(isinstance(step, RunSweep) for step in flat(self.stage.body))

    def _piece(self, of_piece: bool, unit: str) -> list[str]:
        if not of_piece:
            return []
        height = "height" if self.down else self.length
        return [
            f"const {self.index} piece = {unit} % pieces, begin = piece * piece_length;",
            f"const {self.index} end = begin + piece_length < {height} ? begin + piece_length : {self._cast(height)};",
        ]

    def _where_down(self, group: str) -> list[str]:
        """Columns that stand beyond the last are the last once more, of no height."""
        columns, lanes = self.nest.outer[-1], self.schedule.lanes
        rest = product(self.nest.outer[:-1])
        width = formula(ceil_div(columns, lanes))
        lines: list[str] = []
        across = group
        if not rest.is_one:
            lines.append(f"const {self.index} group = {group};")
            across = f"group % {self._cast(width)}"
        at = f"{across if across in (self._cast('unit'), 'group') else f'({across})'} * {lanes} + lane"
        if columns.coefficient % lanes == 0:
            lines += [f"const {self.index} column = {at};"]
            height = self._cast(self.length)
        else:
            lines += [
                f"const {self.index} at = {at};",
                f"const bool inside = at < {dim(columns)};",
                f"const {self.index} column = inside ? at : {self._cast(dim(columns))} - 1;",
            ]
            height = f"inside ? {self._cast(self.length)} : 0"
        if self._has_sweep():
            lines.append(f"const {self.index} height = {height};")
        if not rest.is_one:
            lines.append(f"const {self.index} above = group / {self._cast(width)};")
        return lines

    def _coordinates(self) -> tuple[list[str], list[Values]]:
        """Names of the outer coordinates, and the values that make them."""
        outer = self.nest.outer
        if not outer:
            return [], []
        if self.down:
            names, lines = self._cut("above", outer[:-1])
            return [*names, "column"], lines
        return self._cut("row", outer)

    def _cut(self, whole: str, extents: Sequence[Dim]) -> tuple[list[str], list[Values]]:
        """A number of a row as coordinates."""
        if not extents or product(extents).is_one:
            return ["0"] * len(extents), []
        if len(extents) == 1:
            return [whole], []
        cuts: list[Values] = []
        rest = whole
        for axis in range(len(extents) - 1, 0, -1):
            cuts.append(self._parted(f"o{axis}", f"r{axis}", rest, extents[axis]))
            rest = f"r{axis}"
        return [rest, *(f"o{axis}" for axis in range(1, len(extents)))], cuts

    def _parted(self, low: str, high: str, whole: str, extent: Dim) -> Values:
        """A coordinate as two, the lower of which runs over `extent`; where that is 0 there is none."""
        divisor = "1" if extent == _ZERO else self._cast(dim(extent))
        return [(low, f"{whole} % {divisor}"), (high, f"{whole} / {divisor}")]

    def _with_read(self, cuts: Sequence[Values], lines: list[str], later: frozenset[str] = frozenset()) -> list[str]:
        """`lines`, and before them those coordinates that are read: in them, `later`, or to make others."""
        for values in reversed(cuts):
            read = [f"{name} = {value}" for name, value in values if name in words(lines) | later]
            lines = [*([f"const {self.index} {', '.join(read)};"] if read else []), *lines]
        return lines

    def _elements(self, inside: list[str]) -> tuple[list[str], str]:
        s, (extent,) = self.schedule, self.nest.inner
        whole = product((*self.nest.outer, extent))
        name = "element" if self.nest.outer else "n"
        if self.nest.outer:
            inside = self._with_read([self._parted("n", "row", "element", extent)], inside)
        sure = whole.coefficient % (THREADS * s.vector) == 0
        return inside, "" if sure else f"if ({name} < {bare(dim(whole))}) "

    def _statements(self, step: Step) -> Sequence[Statement]:
        match step:
            case RunSweep(number):
                return self.nest.sweeps[number].row + self.nest.sweeps[number].elements
            case RunFinish():
                return self.nest.finish
            case _:
                return ()

    # .. tiles ..................................................................................................

    def _tiles(self) -> list[str]:
        """Of the unit: in registers, or where in memory its row is."""
        s = self.schedule
        lines: list[str] = []
        if s.home is Home.REGISTERS:
            lines += [self._of_thread(register(tile.dtype), tile.name) for tile in self.nest.tiles]
        elif s.home is Home.SCRATCH and self._has_sweep():
            used = {s.access.buffer for step in flat(self.stage.body) for s in _accesses(self._statements(step))}
            row = f" + row * {self._cast(self.length)}" if self.nest.outer else ""
            for place in tiles_in_place(self.nest):
                base = tiles_name(self.stage.nest, place[0])
                lines += [f"{STORAGE[t.dtype]}* {t.name} = {base}{row};" for t in place if t in used]
        return lines

    # .. steps ..................................................................................................

    def _steps(self, body: Sequence[Step], piece: bool = False) -> list[str]:
        return [line for step in body for line in self._step(step, piece)]

    def _reduction(self, number: int) -> tuple[Reduction, str, str]:
        """A reduction, its register's type, and the name of its operation."""
        r = self.nest.reductions[number]
        return r, register(r.dtype), COMBINE[REDUCERS[r.reducer].combine]

    def _neutral(self, r: Reduction) -> str:
        value = REDUCERS[r.reducer].neutral(r.dtype)
        return literal(r.dtype, np.asarray(value).astype(r.dtype.numpy).tobytes())

    def _step(self, step: Step, piece: bool) -> list[str]:
        s = self.schedule
        match step:
            case RunSweep(number):
                return self._sweep(number, piece)
            case EachPiece(body):
                return self._each_piece(body)
            case EachRow(body):
                return self._each_row(body)
            case PublishDown(number):
                return self._publish_down(number)
            case BlockBarrier():
                return ["__syncthreads();"]
            case RunFinish():
                return self._finish()
            case Fold(number):
                r, type_, op = self._reduction(number)
                together = ", together" if self._partial_warps() else ""
                value = f"{r.name}_part" if s.lanes == 1 else f"across<{op}, {s.lanes}>({r.name}_part{together})"
                return [f"const {type_} {r.name} = {value};"]
            case Deposit(number, totals):
                return self._deposit(number, totals)
            case Collect(number, totals):
                return self._collect(number, totals, piece)
            case Keep(number):
                r, _, _ = self._reduction(number)
                turn = f"piece % {self.rows_of_threads} == depth" if self.down else f"piece % {WARP} == thread % {WARP}"
                return [f"if ({turn}) {combined(r.reducer, r.dtype, f'{r.name}_kept', f'{r.name}_piece')}"]
            case FoldKept(number):
                r, type_, op = self._reduction(number)
                return [f"const {type_} {r.name} = across<{op}, {WARP}>({r.name}_kept);"]
            case Publish(number):
                return self._publish(number)
            case Combine(number):
                return self._combine(number)

    def _deposit(self, number: int, totals: bool) -> list[str]:
        r, _, op = self._reduction(number)
        value, slots = f"{r.name}_{'kept' if totals else 'part'}", self._slot(r, totals)
        if self.down:
            return [f"{slots}[thread] = {value};"]
        return [f"leave({slots}, across<{op}, {WARP}>({value}));"]

    def _collect(self, number: int, totals: bool, piece: bool) -> list[str]:
        r, type_, op = self._reduction(number)
        name = f"{r.name}_piece" if not totals and (piece or self.schedule.split) else r.name
        slots = self._slot(r, totals)
        if self.down:
            return [f"const {type_} {name} = collect_down<{op}, {self.schedule.lanes}, {THREADS}>({slots});"]
        return [f"const {type_} {name} = collect<{op}, {THREADS // WARP}>({slots});"]

    def _publish(self, number: int) -> list[str]:
        r, _, _ = self._reduction(number)
        parts = parts_name(self.stage.nest, r)
        if self.down:
            guard = f"depth == 0 && {self.inside}" if self.inside else "depth == 0"
            return [f"if ({guard}) store({parts} + piece * {self._cast(self._rows)} + {self._flat()}, {r.name}_piece);"]
        return [f"if (thread == 0) store({parts} + unit, {r.name}_piece);"]

    def _flat(self) -> str:
        """The number of a column, above all rest."""
        rest = product(self.nest.outer[:-1])
        return "column" if rest.is_one else f"(above * {self._cast(dim(self.nest.outer[-1]))} + column)"

    def _combine(self, number: int) -> list[str]:
        r, type_, _ = self._reduction(number)
        parts, kept = parts_name(self.stage.nest, r), f"{r.name}_kept"
        if self.down:
            start, step = "depth", self.rows_of_threads
            place = f"{parts} + p * {self._cast(self._rows)} + {self._flat()}"
        else:
            start, step = f"thread % {WARP}", WARP
            row = "row * pieces + " if self.nest.outer else ""
            place = f"{parts} + {row}p"
        body = combined(r.reducer, r.dtype, kept, f"load_fresh({place})")
        return [
            f"{type_} {kept} = {self._neutral(r)};",
            f"for ({self.index} p = {start}; p < pieces; p += {step}) {body}",
        ]

    def _each_piece(self, body: tuple[Step, ...]) -> list[str]:
        lines: list[str] = []
        for step in flat(body):
            if isinstance(step, RunSweep):
                lines += self.scope.scalars(self.nest.sweeps[step.sweep].row)
            if isinstance(step, Keep):
                r, type_, _ = self._reduction(step.reduction)
                lines.append(f"{type_} {r.name}_kept = {self._neutral(r)};")
        height = "height" if self.down else self._cast(self.length)
        whole = self._cast(self.length)
        return [
            *lines,
            f"for ({self.index} piece = 0, begin = 0; begin < {whole}; ++piece, begin += piece_length) {{",
            f"  const {self.index} end = begin + piece_length < {height} ? begin + piece_length : {height};",
            *indented(self._steps(body, piece=True)),
            "}",
        ]

    def _each_row(self, body: tuple[Step, ...]) -> list[str]:
        assert self.joint is not None
        lines: list[str] = []
        for number in self.joint.reductions:
            r, type_, _ = self._reduction(number)
            neutral = self._neutral(r)
            part, vector = f"{r.name}_part", self.schedule.vector
            lines.append(self._of_thread(type_, part))
            each = f"for (auto& part : {part}) " if self.schedule.steps > 1 else ""
            one = "part" if each else part
            lines.append(f"{each}for (auto& x : {one}.v) x = {neutral};" if vector > 1 else f"{each}{one} = {neutral};")
        head = f"for ({self.index} row = begin; row < end; ++row) {{"
        return [*lines, head, *indented([*self._tiles(), *self._head(), *self._steps(body)]), "}"]

    def _publish_down(self, number: int) -> list[str]:
        r, _, _ = self._reduction(number)
        parts = parts_name(self.stage.nest + 1, replace(r, name=r.name.removesuffix("_down")))
        part = f"{r.name}_part" + ("[k]" if self.schedule.steps > 1 else "")
        store = f"store({parts} + {self._cast('unit')} * {self._cast(self.length)} + n, {part});"
        return self._along([store], in_piece=False)

    def _of_thread(self, type_: str, name: str) -> str:
        """The declaration of registers for each of a thread's elements."""
        s = self.schedule
        type_ = type_ if s.vector == 1 else f"Pack<{type_}, {s.vector}>"
        return f"{type_} {name}{f'[{s.steps}]' if s.steps > 1 else ''};"

    def _finish(self) -> list[str]:
        s = self.schedule
        if self.down:
            guard = f"depth == 0 && {self.inside}" if self.inside else "depth == 0"
        else:
            guard = "lane == 0" if s.mapping is Mapping.WARPS else "thread == 0"
        return [f"if ({guard}) {{", *indented(self.scope.scalars(self.nest.finish)), "}"]

    # .. a sweep ................................................................................................

    def _sweep(self, number: int, piece: bool) -> list[str]:
        s = self.schedule
        lines = self.scope.scalars(self.nest.sweeps[number].row)
        lines += [
            f"{register(r.dtype)} {r.name}_part = {self._neutral(r)};"
            for n, r in enumerate(self.nest.reductions)
            if r.sweep == number and n not in self.scope.down
        ]
        return lines + self._elements_of(number, piece or s.split)

    def _elements_of(self, number: int, in_piece: bool) -> list[str]:
        """The elements of a sweep, of the thread's part of the unit."""
        step = self._element(self.nest.sweeps[number].elements, "n")
        return step if self.schedule.mapping is Mapping.ELEMENTS else self._along(step, in_piece)

    def _element(self, elements: Sequence[Statement], linear: str) -> list[str]:
        """A thread's step: what is done for element n, which is number `linear` of a tile."""
        inner, cut = self._inner()
        turn = "k" if self.schedule.steps > 1 else ""
        hoisted = self.scope.known.copy()
        step = self._with_read(cut, self.scope.step(elements, inner, linear, turn))
        self.scope.known = hoisted
        return step

    def _inner(self) -> tuple[list[str], list[Values]]:
        """Coordinates of element n of the row, and the values that make them."""
        if len(self.nest.inner) == 1:
            return ["n"], []
        cuts: list[Values] = []
        rest = "n"
        for axis in range(len(self.nest.inner) - 1, 0, -1):
            cuts.append(self._parted(f"i{axis}", f"q{axis}", rest, self.nest.inner[axis]))
            rest = f"q{axis}"
        return [rest, *(f"i{axis}" for axis in range(1, len(self.nest.inner)))], cuts

    def _along(self, step: list[str], in_piece: bool, first: str = "begin", last: str = "end") -> list[str]:
        """The loop along the row, or down the column; in a piece from `first` to `last`."""
        s = self.schedule
        lane = "lane" if s.mapping is Mapping.WARPS else "thread"
        if self.down:
            start = f"{first} + depth" if in_piece else "depth"
            end = last if in_piece else "height"
            head = f"for ({self.index} n = {start}; n < {end}; n += {self.rows_of_threads}) {{"
            return ["#pragma unroll 4", head, *indented(step), "}"]
        vector = f" * {s.vector}" if s.vector > 1 else ""
        if not s.steps:
            start = f"{first} + {lane}{vector}" if in_piece else f"{lane}{vector}"
            end = last if in_piece else self.length
            head = f"for ({self.index} n = {start}; n < {end}; n += {s.lanes * s.vector}) {{"
            return ["#pragma unroll 4", head, *indented(step), "}"]
        length = product(self.nest.inner)
        exact = length.is_static and length.coefficient == s.steps * s.lanes * s.vector
        place = f"{lane}{vector}" if s.steps == 1 else f"(k * {s.lanes} + {lane}){vector}"
        if exact:
            step = [f"const int n = {place};", *step] if "n" in words(step) else step
        else:
            step = _guard(f"if (const int n = {place}; n < {self.length}) ", step)
        if s.steps == 1:
            return ["{", *indented(step), "}"] if exact else step
        return ["#pragma unroll", f"for (int k = 0; k < {s.steps}; ++k) {{", *indented(step), "}"]


def _accesses(statements: Sequence[Statement]) -> list[Load | Store]:
    return [s for s in statements if isinstance(s, Load | Store)]


def _guard(condition: str, lines: list[str]) -> list[str]:
    return [f"{condition}{{", *indented(lines), "}"] if condition else lines
