"""Kernel + schedules -> C++ for the CPU. Decides nothing; the text is meant to be read.

For a layer norm over rows of 768 it prints, in this order:

    struct Call     {pointers, symbols, host}                     what every task sees
    struct Row0     {results of the nest's reductions}
    sweep_0_0 ...   one pass over [begin, end) of a row: loads, arithmetic, stores, accumulators
    finish_0        scalars and stores after the last pass
    rows_0          the task: some rows, each swept as often as need be
    run, shape      the two entry points of abi.h
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tf_stitch.ir.types import ONE, Dim, DType
from tf_stitch.lower.cpu import Driver, Schedule
from tf_stitch.lower.kernel import (
    Access,
    Accumulate,
    Buffer,
    Compute,
    ExtentOf,
    Kernel,
    Literal,
    Load,
    Nest,
    Place,
    Reduced,
    Reduction,
    Statement,
    Store,
    Sweep,
)
from tf_stitch.ops import REDUCERS
from tf_stitch.render.c_family import STORAGE, defined, dim, expression, headers, literal, register
from tf_stitch.toolchain.artifact import Source

_COMBINE = {"add": "Sum", "mul": "Product", "max": "Largest", "min": "Smallest", "and": "AllOf", "or": "AnyOf"}
_ZERO = Dim(0)


def render(kernel: Kernel, schedules: Sequence[Schedule]) -> Source:
    """The C++ source of a kernel; `schedules` runs parallel to `kernel.nests`."""
    nests = [_NestPrinter(kernel, n, nest, s) for n, (nest, s) in enumerate(zip(kernel.nests, schedules, strict=True))]
    lines = [
        *_preamble(kernel),
        *_call_struct(kernel),
        *(line for nest in nests for line in nest.functions()),
        *_run(kernel, nests),
        *_shape(kernel),
        *_table(kernel),
    ]
    return Source(kernel.name, "\n".join(lines) + "\n")


# -- the frame of the file --------------------------------------------------------------------------------------


def _preamble(kernel: Kernel) -> list[str]:
    statements = [s for nest in kernel.nests for part in (*nest.sweeps,) for s in (*part.row, *part.elements)]
    statements += [s for nest in kernel.nests for s in nest.finish]
    includes = ["stitch.h", "loop.h", *headers(statements)]
    return [
        f"// {kernel.name}: " + ", ".join(str(t) for t in kernel.outputs),
        *(f'#include "prelude/cpu/{name}"' for name in includes),
        '#include "abi.h"',
        "using namespace stitch;",
        "namespace {",
        "",
    ]


def _pointer(buffer: Buffer) -> str:
    const = "const " if buffer.place is Place.INPUT else ""
    return f"{const}{STORAGE[buffer.dtype]}* {buffer.name}"


def _buffers(kernel: Kernel) -> list[Buffer]:
    """The buffers that a call shares, each once: inputs, outputs, scratch."""
    found: dict[Buffer, None] = {}
    for nest in kernel.nests:
        for statement in _statements(nest):
            if isinstance(statement, Load | Store) and statement.access.buffer.place is not Place.TILE:
                found[statement.access.buffer] = None
        found.update((r.source.buffer, None) for r in nest.repeats)
    order = [Place.INPUT, Place.OUTPUT, Place.SCRATCH]
    return sorted(found, key=lambda b: (order.index(b.place), b.index))


def _statements(nest: Nest) -> Iterable[Statement]:
    for sweep in nest.sweeps:
        yield from sweep.row
        yield from sweep.elements
    yield from nest.finish


def _call_struct(kernel: Kernel) -> list[str]:
    symbols = [f"  i64 {s.symbol};" for s in kernel.symbols]
    return [
        "struct Call {",
        *(f"  {_pointer(b)};" for b in _buffers(kernel)),
        *symbols,
        "  const StitchHost* host;",
        "};",
        "",
    ]


def _run(kernel: Kernel, nests: list[_NestPrinter]) -> list[str]:
    lines = [
        "void run(const StitchTensor* inputs, void* const* outputs, const i64* symbols, const StitchHost* host) {",
        "  Call call = {};",
        "  call.host = host;",
    ]
    lines += [f"  call.{s.symbol} = symbols[{n}];" for n, s in enumerate(kernel.symbols)]
    for b in _buffers(kernel):
        type_ = STORAGE[b.dtype]
        if b.place is Place.INPUT:
            lines.append(f"  call.{b.name} = static_cast<const {type_}*>(inputs[{b.index}].data);")
        elif b.place is Place.OUTPUT:
            lines.append(f"  call.{b.name} = static_cast<{type_}*>(outputs[{b.index}]);")
    shared = [(b, f"{dim(b.size, 'call.')} * {b.dtype.size}") for b in kernel.scratch]
    splits = [n for n in nests if n.may_split]
    if shared or splits:
        lines.append("  i64 bytes = 0;")
        for b, size in shared:
            lines += [f"  const i64 {b.name}_offset = bytes;", f"  bytes += ({size} + 63) / 64 * 64;"]
        lines.append("  char* shared = nullptr;")
        for nest in splits:
            lines += nest.reserve()
        lines.append("  if (bytes) shared = static_cast<char*>(host->scratch(0, bytes));")
        for b, _ in shared:
            type_ = STORAGE[b.dtype]
            lines.append(f"  call.{b.name} = reinterpret_cast<{type_}*>(shared + {b.name}_offset);")
    for nest in nests:
        lines += nest.launch()
    return [*lines, "}", ""]


def _shape(kernel: Kernel) -> list[str]:
    lines = ["int shape(const StitchTensor* inputs, i64* symbols, i64* dims) {"]
    ranks = [
        f"inputs[{number}].rank != {len(type_.dims)}" for number, type_ in enumerate(kernel.inputs) if type_ is not None
    ]
    if ranks:
        lines.append(f"  if ({' || '.join(ranks)}) return 1;")
    for number, s in enumerate(kernel.symbols):
        value = f"inputs[{s.input}].dims[{s.axis}]"
        if not s.divisor.is_one:
            divisor = dim(s.divisor)
            lines.append(f"  if ({divisor} == 0 || {value} % {divisor} != 0) return 1;")
            value = f"{value} / {divisor}"
        lines += [f"  const i64 {s.symbol} = {value};", f"  symbols[{number}] = {s.symbol};"]
    for number, guard in enumerate(kernel.guards):
        lines.append(f"  if (inputs[{guard.input}].dims[{guard.axis}] != {dim(guard.dim)}) return {number + 2};")
    for number, bound in enumerate(kernel.bounds):
        lines.append(f"  if ({dim(bound.small)} > {dim(bound.large)}) return {number + 2 + len(kernel.guards)};")
    outputs = [d for t in kernel.outputs for d in t.dims]
    lines += [f"  dims[{n}] = {dim(d)};" for n, d in enumerate(outputs)]
    lines += ["  (void)inputs, (void)symbols, (void)dims;", "  return 0;", "}", ""]
    return lines


def _table(kernel: Kernel) -> list[str]:
    ranks = ", ".join(str(len(t.dims)) for t in kernel.outputs)
    forwards = ", ".join(f"{i}, {o}" for i, o in kernel.forwards)
    texts = ['"the inputs have the ranks that were planned for"'] + [f'"{g.text}"' for g in (*kernel.guards, *kernel.bounds)]
    return [
        f"const int ranks[] = {{{ranks}}};",
        f"const int forwards[] = {{{forwards + ', ' if forwards else ''}-1}};",
        f"const char* const guards[] = {{{', '.join(texts)}}};",
        "}  // namespace",
        "",
        'extern "C" __attribute__((visibility("default"))) const StitchKernel tf_stitch_kernel = {',
        f"    TF_STITCH_ABI_VERSION, {len(kernel.inputs)}, {len(kernel.outputs)}, {len(kernel.symbols)}, {len(texts)},",
        f'    ranks, forwards, "{kernel.name}", guards, shape, run}};',
    ]


# -- one nest ---------------------------------------------------------------------------------------------------


def _accumulator_type(reduction: Reduction) -> str:
    """What a reduction's blocks are added up in: a sum of f32 in f64, so that long rows lose nothing there."""
    if reduction.dtype is DType.F32 and reduction.reducer == "sum":
        return "f64"
    return register(reduction.dtype)


def _scalar(type_: str) -> str:
    return "Mask<1>" if type_ == "mask" else f"Pack<{type_}, 1>"


def _pack_literal(dtype: DType, bits: bytes) -> str:
    value = literal(dtype, bits)
    return f"splat<1>({value})" if dtype is DType.BOOL else f"splat<{register(dtype)}, 1>({value})"


class _NestPrinter:
    """Prints the functions of one nest. `number` is part of their names."""

    def __init__(self, kernel: Kernel, number: int, nest: Nest, schedule: Schedule) -> None:
        self.kernel = kernel
        self.number = number
        self.nest = nest
        self.schedule = schedule
        self.axes = nest.outer + nest.inner

    @property
    def may_split(self) -> bool:
        return self.schedule.driver is Driver.ROWS_OR_SPLIT

    def functions(self) -> list[str]:
        lines: list[str] = []
        if self.nest.reductions:
            lines += self._row_struct()
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
            f"  {_scalar(_accumulator_type(r))} {r.name} = {self._neutral(r, _accumulator_type(r))};"
            for r in self.nest.reductions
        ]
        return [f"struct Row{self.number} {{", *fields, "};", ""]

    def _neutral(self, reduction: Reduction, type_: str) -> str:
        import numpy as np

        value = REDUCERS[reduction.reducer].neutral(reduction.dtype)
        if type_ == "mask":
            return f"splat<1>({'true' if value else 'false'})"
        dtype = DType.F64 if type_ == "f64" else reduction.dtype
        return _pack_literal(dtype, np.asarray(value).astype(dtype.numpy).tobytes())

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
        return f"STITCH_INLINE void {name}(const Call& call, [[maybe_unused]] i64 row{extra}{tiles}{state}) {{"

    def _arguments(self, extra: str = "") -> str:
        tiles = "".join(f", {t.name}" for t in self._tiles())
        state = ", state" if self.nest.reductions else ""
        return f"call, row{extra}{tiles}{state}"

    def _sweep(self, number: int, sweep: Sweep) -> list[str]:
        scope = _Scope(self)
        head = self._coordinates(sweep.row + sweep.elements)
        head += scope.pointers(sweep.row + sweep.elements)
        head += [line for s in sweep.row for line in scope.scalar(s)]
        lanes, narrow = self.schedule.lanes, self.schedule.narrow
        reductions = self._of_sweep(number)
        for index, r in reductions:
            neutral = self._neutral(r, register(r.dtype))
            combine = self._combine(r)
            wide, small = (lanes, narrow) if self.schedule.body == "both" else (lanes, lanes)
            if self.schedule.body == "narrow":
                wide, small = narrow, narrow
            head.append(f"auto acc_{index} = accumulator<{combine}, {wide}, {small}>({neutral});")
        body = [line for s in sweep.elements for line in scope.vector(s)]
        loop = {
            "both": f"for_lanes<{lanes}, {narrow}>",
            "wide": f"for_wide_lanes<{lanes}>",
            "narrow": f"for_narrow_lanes<{narrow}>",
        }[self.schedule.body]
        loops: list[str] = []
        depth = 0
        for axis, extent in enumerate(self.nest.inner[:-1]):
            loops.append("  " * depth + f"for (i64 i{axis} = 0; i{axis} < {dim(extent, 'call.')}; ++i{axis})")
            depth += 1
        pad = "  " * depth
        loops.append(
            pad + f"{loop}(begin, end, [&](auto width, [[maybe_unused]] i64 n, [[maybe_unused]] auto count) STITCH_LAMBDA {{"
        )
        loops.append(pad + "  constexpr int L = decltype(width)::lanes;")
        loops += [pad + "  " + line for line in body]
        loops.append(pad + "});")
        tail = []
        for index, r in reductions:
            partial = f"acc_{index}.result()"
            if _accumulator_type(r) != register(r.dtype):
                partial = f"convert<{_accumulator_type(r)}>({partial})"
            tail.append(f"state.{r.name} = {self._combine(r)}::of(state.{r.name}, {partial});")
        name = f"sweep_{self.number}_{number}"
        return [
            self._signature(name, ", i64 begin, i64 end"),
            *("  " + line for line in head + loops + tail),
            "}",
            "",
        ]

    def _finish(self) -> list[str]:
        scope = _Scope(self)
        lines = self._coordinates(self.nest.finish) + scope.pointers(self.nest.finish)
        lines += [line for s in self.nest.finish for line in scope.scalar(s)]
        return [self._signature(f"finish_{self.number}"), *("  " + line for line in lines), "}", ""]

    def _coordinates(self, statements: Sequence[Statement]) -> list[str]:
        """The outer coordinates that some access needs, from the row number."""
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
        for tile in self.nest.tiles:
            size = f"{dim(tile.size, 'call.')} * {tile.dtype.size}"
            base = "tiles" if shared_row is None else f"tiles + {shared_row} * tile_bytes"
            lines.append(f"{STORAGE[tile.dtype]}* {tile.name} = reinterpret_cast<{STORAGE[tile.dtype]}*>({base} + {offset});")
            offset = f"{offset} + ({size} + 63) / 64 * 64"
        return lines

    def _tile_bytes(self, scope: str = "call.") -> str:
        parts = [f"({dim(t.size, scope)} * {t.dtype.size} + 63) / 64 * 64" for t in self.nest.tiles]
        return " + ".join(parts) or "0"

    def _row_length(self) -> str:
        return dim(self.nest.inner[-1], "call.")

    def _rows_task(self) -> list[str]:
        lines = [
            f"void rows_{self.number}(void* task, i64 begin_row, i64 end_row) {{",
            "  const Call& call = *static_cast<const Call*>(task);",
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
            extent = self.nest.inner[-1]
            if len(self.nest.inner) > 1 or (extent.is_static and extent.coefficient <= self.schedule.block):
                lines.append(f"    {name}({self._arguments(f', 0, {self._row_length()}')});")
            else:
                lines.append(
                    f"    for_blocks<{self.schedule.block}>({self._row_length()}, [&](i64 begin, i64 end) STITCH_LAMBDA {{ "
                    f"{name}({self._arguments(', begin, end')}); }});"
                )
        if self.nest.finish:
            lines.append(f"    finish_{self.number}({self._arguments()});")
        return [*lines, "  }", "}", ""]

    def _split_task(self, sweep: int) -> list[str]:
        """A task of SPLIT: unit u is block u % blocks of row u / blocks; its partial results go to parts[u]."""
        n, block = self.number, self.schedule.block
        lines = [
            f"struct Split{n}_{sweep} {{ const Call* call; i64 blocks; Row{n}* rows; Row{n}* parts; char* tiles; }};",
            f"void split_{n}_{sweep}(void* task, i64 begin_unit, i64 end_unit) {{",
            f"  const auto& split = *static_cast<const Split{n}_{sweep}*>(task);",
            "  const Call& call = *split.call;",
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
            "}",
            "",
        ]
        return lines

    def reserve(self) -> list[str]:
        """Statements of `run` that reserve the call's memory for SPLIT: results of rows, of units, tiles."""
        n = self.number
        return [
            f"  const i64 rows_{n}_count = {self._rows()}, length_{n} = {self._row_length()};",
            f"  const i64 blocks_{n} = (length_{n} + {self.schedule.block - 1}) / {self.schedule.block};",
            f"  const bool split_{n} = host->threads > 1 && rows_{n}_count < 2 * host->threads && blocks_{n} > 1;",
            f"  const i64 tile_bytes_{n} = {self._tile_bytes()};",
            f"  const i64 tiles_{n}_offset = bytes;",
            f"  if (split_{n}) bytes += rows_{n}_count * tile_bytes_{n};",
            f"  const i64 state_{n}_offset = bytes;",
            f"  if (split_{n}) bytes += (rows_{n}_count * (1 + blocks_{n}) * i64(sizeof(Row{n})) + 63) / 64 * 64;",
        ]

    def _rows(self) -> str:
        return " * ".join(f"{dim(d, 'call.')}" for d in self.nest.outer) or "1"

    def launch(self) -> list[str]:
        """The statements of `run` that run this nest."""
        n = self.number
        whole = " * ".join(f"{dim(d, 'call.')}" for d in self.nest.inner)
        if not self.nest.reductions:
            return self._launch_blocks()
        cost = f"i64({self.nest.nanoseconds:.2f} * f64({whole})) + 5"
        plain = f"host->parallel_for(host->context, {self._rows()}, {cost}, rows_{n}, &call);"
        if not self.may_split:
            return ["  " + plain]
        lines = [f"  if (!split_{n}) {{", "    " + plain, "  } else {"]
        lines += [
            f"    auto* rows = reinterpret_cast<Row{n}*>(shared + state_{n}_offset);",
            f"    auto* parts = rows + rows_{n}_count;",
            f"    char* tiles = shared + tiles_{n}_offset;",
            f"    for (i64 row = 0; row < rows_{n}_count; ++row) rows[row] = Row{n}{{}};",
        ]
        for sweep in range(len(self.nest.sweeps)):
            block_cost = f"i64({self.nest.nanoseconds * self.schedule.block / len(self.nest.sweeps):.0f})"
            lines += [
                f"    Split{n}_{sweep} task_{sweep} = {{&call, blocks_{n}, rows, parts, tiles}};",
                f"    host->parallel_for(host->context, rows_{n}_count * blocks_{n}, {block_cost}, split_{n}_{sweep}, &task_{sweep});",
            ]
            if self._of_sweep(sweep):
                lines.append(f"    for (i64 unit = 0; unit < rows_{n}_count * blocks_{n}; ++unit) {{")
                lines.append(f"      Row{n}& state = rows[unit / blocks_{n}];")
                lines += [
                    f"      state.{r.name} = {self._combine(r)}::of(state.{r.name}, parts[unit].{r.name});"
                    for _, r in self._of_sweep(sweep)
                ]
                lines.append("    }")
        if self.nest.finish:
            lines.append(f"    for (i64 row = 0; row < rows_{n}_count; ++row) {{")
            lines.append(f"      Row{n}& state = rows[row];")
            if self.nest.tiles:
                lines.append(f"      const i64 tile_bytes = tile_bytes_{n};")
            lines += ["      " + line for line in self._tile_lines("row")]
            lines += [f"      finish_{n}({self._arguments()});", "    }"]
        return [*lines, "  }"]

    def _blocks_task(self) -> list[str]:
        n, block = self.number, self.schedule.block
        inner = " * ".join(f"{dim(d, 'call.')}" for d in self.nest.inner[:-1])
        assert not inner, "an element-wise nest has one inner axis"
        return [
            f"void blocks_{n}(void* task, i64 begin_unit, i64 end_unit) {{",
            "  const Call& call = *static_cast<const Call*>(task);",
            *self._repeat_lines(),
            f"  const i64 length = {self._row_length()}, blocks = (length + {block - 1}) / {block};",
            "  for (i64 unit = begin_unit; unit < end_unit; ++unit) {",
            "    const i64 row = blocks == 1 ? unit : unit / blocks;",
            f"    const i64 begin = blocks == 1 ? 0 : unit % blocks * {block};",
            f"    const i64 end = begin + {block} < length ? begin + {block} : length;",
            f"    sweep_{n}_0({self._arguments(', begin, end')});",
            "  }",
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
            base = f"call.{r.source.buffer.name}" + (f" + {r.source.offset}" if r.source.offset else "")
            lines.append(f"  auto* {r.tile.name} = reinterpret_cast<{type_}*>(tiles + {offset});")
            lines.append(f"  repeat({r.tile.name}, {base}, {r.period}, {self.schedule.block});")
            offset += -(-size // 64) * 64
        return lines

    def _launch_blocks(self) -> list[str]:
        n, block = self.number, self.schedule.block
        length = self._row_length()
        return [
            "  {",
            f"    const i64 length = {length}, blocks = (length + {block - 1}) / {block};",
            f"    const i64 unit = length < {block} ? length : {block};",
            f"    host->parallel_for(host->context, {self._rows()} * blocks, i64({self.nest.nanoseconds:.2f} * f64(unit)) + 2, blocks_{n}, &call);",
            "  }",
        ]


class _Scope:
    """The names of one function: which are scalars, which vectors, and where each access points."""

    def __init__(self, nest: _NestPrinter) -> None:
        self.nest = nest
        self.dtypes: dict[str, DType] = {}
        self.vectors: set[str] = set()
        self.places: dict[Access, str] = {}

    def pointers(self, statements: Sequence[Statement]) -> list[str]:
        """One pointer per access, advanced to the row (and moved on by the loops over further inner axes)."""
        lines: list[str] = []
        taken: set[str] = set()
        for s in statements:
            if not isinstance(s, Load | Store) or s.access in self.places:
                continue
            access, name = s.access, f"{s.access.buffer.name}_at"
            while name in taken:
                name += "_"
            taken.add(name)
            self.places[access] = name
            base = access.buffer.name if access.buffer.place is Place.TILE else f"call.{access.buffer.name}"
            repeated = any(access.buffer == r.tile for r in self.nest.nest.repeats)
            offset = " - begin" if repeated else self._row_offset(access)
            const = "const " if access.buffer.place is Place.INPUT else ""
            lines.append(f"{const}{STORAGE[access.buffer.dtype]}* {name} = {base}{offset};")
        return lines

    def _row_offset(self, access: Access) -> str:
        outer = self.nest.nest.outer
        parts: list[str] = []
        for axis, stride in enumerate(access.strides[: len(outer)]):
            if stride == _ZERO or outer[axis].is_one:
                continue
            coordinate = "row" if len(outer) == 1 else f"o{axis}"
            parts.append(coordinate if stride.is_one else f"{coordinate} * {dim(stride, 'call.')}")
        if access.offset:
            parts.append(str(access.offset))
        return "".join(f" + {p}" for p in parts)

    def _inner_offset(self, access: Access) -> str:
        """The part of an address that the loops over the inner axes before the last add."""
        first = len(self.nest.nest.outer)
        parts: list[str] = []
        for axis, stride in enumerate(access.strides[first:-1]):
            if stride != _ZERO:
                parts.append(f" + i{axis} * {dim(stride, 'call.')}")
        return "".join(parts)

    # .. statements .............................................................................................

    def _assign(self, name: str, dtype: DType, value: str, vector: bool) -> list[str]:
        self.dtypes[name] = dtype
        if vector:
            self.vectors.add(name)
        return [f"const auto {name} = {value};"]

    def scalar(self, s: Statement) -> list[str]:
        match s:
            case Load(name, dtype, access):
                return self._assign(name, dtype, f"load<1>({self.places[access]})", False)
            case Literal(name, dtype, bits):
                return self._assign(name, dtype, _pack_literal(dtype, bits), False)
            case ExtentOf(name, dtype, extent):
                type_ = register(dtype)
                return self._assign(name, dtype, f"splat<{type_}, 1>({type_}({dim(extent, 'call.')}))", False)
            case Compute(name, dtype, _, operands):
                value = expression(s, list(operands), [self.dtypes[o] for o in operands])
                return self._assign(name, dtype, value, False)
            case Reduced(name, dtype, number):
                reduction = self.nest.nest.reductions[number]
                value = f"state.{reduction.name}"
                if _accumulator_type(reduction) != register(dtype):
                    value = f"convert<{register(dtype)}>({value})"
                return self._assign(name, dtype, value, False)
            case Store(access, value):
                return [f"store({self.places[access]}, {value});"]
            case Accumulate():
                raise AssertionError("a scalar is never accumulated")

    def vector(self, s: Statement) -> list[str]:
        match s:
            case Load(name, dtype, access):
                return self._assign(name, dtype, self._vector_load(access), True)
            case Literal() | ExtentOf() | Reduced():
                return self.scalar(s)
            case Compute(name, dtype, _, operands):
                wide = [self._wide(o) for o in operands]
                return self._assign(name, dtype, expression(s, wide, [self.dtypes[o] for o in operands]), True)
            case Store(access, value):
                return [self._vector_store(access, self._wide(value))]
            case Accumulate(number, value):
                return [f"acc_{number}.add({self._wide(value)}, count);"]

    def _wide(self, name: str) -> str:
        return name if name in self.vectors else f"splat<L>({name})"

    def _vector_load(self, access: Access) -> str:
        stride, at = access.strides[-1], f"{self.places[access]}{self._inner_offset(access)}"
        if stride == _ZERO:
            return f"splat<L>(load<1>({at}))"
        if stride == ONE:
            return f"load<L>({at} + n, count)"
        step = dim(stride, "call.")
        return f"load_strided<L>({at} + n * ({step}), {step}, count)"

    def _vector_store(self, access: Access, value: str) -> str:
        stride, at = access.strides[-1], f"{self.places[access]}{self._inner_offset(access)}"
        if stride == ONE:
            return f"store({at} + n, {value}, count);"
        step = dim(stride, "call.")
        return f"store_strided({at} + n * ({step}), {step}, {value}, count);"
