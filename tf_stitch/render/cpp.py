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

from tf_stitch.lower.cpu import Driver, Schedule
from tf_stitch.lower.kernel import Buffer, Kernel, Load, Nest, Place, Statement, Store
from tf_stitch.render.c_family import STORAGE, dim, headers
from tf_stitch.render.cpp_down import DownPrinter
from tf_stitch.render.cpp_nest import NestPrinter
from tf_stitch.toolchain.artifact import Source


def render(kernel: Kernel, schedules: Sequence[Schedule]) -> Source:
    """The C++ source of a kernel; `schedules` runs parallel to `kernel.nests`."""
    nests = _printers(kernel, schedules)
    lines = [
        *_preamble(kernel, any(s.driver is Driver.DOWN for s in schedules)),
        *_call_struct(kernel),
        *(line for nest in nests for line in nest.functions()),
        *_run(kernel, nests, schedules),
        *_shape(kernel),
        *_table(kernel),
    ]
    return Source(kernel.name, "\n".join(lines) + "\n")


def _printers(kernel: Kernel, schedules: Sequence[Schedule]) -> list[NestPrinter]:
    printers: list[NestPrinter] = []
    for number, (nest, schedule) in enumerate(zip(kernel.nests, schedules, strict=True)):
        if schedule.driver is Driver.DOWN:
            before = printers[-1] if schedule.joined else None
            printers.append(DownPrinter(kernel, number, nest, schedule, before))
        else:
            printers.append(NestPrinter(kernel, number, nest, schedule))
    return printers


# -- the frame of the file --------------------------------------------------------------------------------------


def _preamble(kernel: Kernel, down: bool) -> list[str]:
    statements = [s for nest in kernel.nests for part in (*nest.sweeps,) for s in (*part.row, *part.elements)]
    statements += [s for nest in kernel.nests for s in nest.finish]
    includes = ["core.h", "loop.h", *(["down.h"] if down else []), *headers(statements)]
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


def _run(kernel: Kernel, nests: Sequence[NestPrinter], schedules: Sequence[Schedule]) -> list[str]:
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
    splits = [n for n in nests if n.needs_memory]
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
    for nest, schedule in zip(nests, [*schedules[1:], None], strict=True):
        if schedule is None or not schedule.joined:  # else the next launches both
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
    texts = ['"the inputs have the ranks that were planned for"'] + [
        f'"{g.text}"' for g in (*kernel.guards, *kernel.bounds)
    ]
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
