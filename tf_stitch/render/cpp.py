"""Kernel + schedules -> C++ for the CPU. Decides nothing; the text is meant to be read.

For a layer norm over rows of 768 it prints, in this order:

    struct Call0    {pointers, symbols, host}                     what every task of the nest is given
    struct Row0     {results of the nest's reductions}
    sweep_0_0 ...   one pass over [begin, end) of a row: loads, arithmetic, stores, accumulators
    finish_0        scalars and stores after the last pass
    rows_0          the task: some rows, each swept as often as need be
    loop_0          the parallel loop; launch_0 where a nest is more than one
    run, shape      the two entry points of abi.h
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tf_stitch.ir.types import Dim
from tf_stitch.lower.chaining import rows_of, rows_of_unit
from tf_stitch.lower.cpu import Driver, Schedule
from tf_stitch.lower.kernel import Buffer, Kernel, Place, statements
from tf_stitch.lower.launches import launches
from tf_stitch.lower.scratch import shared_memory
from tf_stitch.render.c_family import STORAGE, dim, headers
from tf_stitch.render.cpp_down import DownPrinter
from tf_stitch.render.cpp_nest import NestPrinter
from tf_stitch.render.cpp_products import ProductPrinter
from tf_stitch.render.host_part import shape, table
from tf_stitch.render.sharing import Form, Use, forms_of
from tf_stitch.toolchain.artifact import Source


def render(kernel: Kernel, schedules: Sequence[Schedule]) -> Source:
    """The C++ source of a kernel; `schedules` runs parallel to `kernel.nests`."""
    joined = {n for n, s in enumerate(schedules) if s.joined}
    apart = frozenset(joined | {n - 1 for n in joined})
    forms, uses = forms_of(kernel.nests, schedules, [_unit(s) for s in schedules], apart)
    printers = _printers(forms, uses, schedules)
    lines = [
        *_preamble(kernel, schedules),
        *(line for printer in printers for line in printer.functions()),
        *_run(kernel, [(printers[use.form], use) for use in uses], schedules),
        *shape(kernel),
        *table(kernel),
    ]
    return Source(kernel.name, "\n".join(lines) + "\n")


def _unit(schedule: Schedule) -> int:
    """What the length of a nest has to stay a multiple of; 0 where it cannot be another one."""
    return {"both": 1, "wide": schedule.lanes, "narrow": 0}[schedule.body]


def _printers(forms: Sequence[Form], uses: Sequence[Use], schedules: Sequence[Schedule]) -> list[NestPrinter]:
    printers: list[NestPrinter] = []
    for number, form in enumerate(forms):
        schedule = next(s for s, use in zip(schedules, uses, strict=True) if use.form == number)
        if schedule.driver is Driver.PRODUCTS:
            printers.append(ProductPrinter(number, form, schedule))
        elif schedule.driver is Driver.DOWN:
            printers.append(DownPrinter(number, form, schedule, printers[-1] if schedule.joined else None))
        else:
            printers.append(NestPrinter(number, form, schedule))
    return printers


# -- the frame of the file --------------------------------------------------------------------------------------


def _preamble(kernel: Kernel, schedules: Sequence[Schedule]) -> list[str]:
    includes = [
        "core.h",
        "launch.h",
        "loop.h",
        *(["down.h"] if any(s.driver is Driver.DOWN for s in schedules) else []),
        *(["products.h"] if any(s.driver is Driver.PRODUCTS for s in schedules) else []),
        *(["bundles.h"] if any(s.bundle > 1 for s in schedules) else []),
        *headers([s for nest in kernel.nests for s in statements(nest)]),
    ]
    return [
        f"// {kernel.name}: " + ", ".join(str(t) for t in kernel.outputs),
        *(f'#include "prelude/cpu/{name}"' for name in includes),
        '#include "abi.h"',
        "using namespace stitch;",
        "namespace {",
        "",
    ]


def _run(kernel: Kernel, nests: Sequence[tuple[NestPrinter, Use]], schedules: Sequence[Schedule]) -> list[str]:
    lines = [
        "void run(const StitchTensor* inputs, void* const* outputs, const i64* symbols, const StitchHost* host) {",
        *(f"  [[maybe_unused]] const i64 {s.symbol} = symbols[{n}];" for n, s in enumerate(kernel.symbols)),
    ]
    if any(s.streams for s in schedules):
        traffic = " + ".join(f"{bytes_} * {dim(size)}" for size, bytes_ in kernel.traffic.items())
        lines.append(f"  const bool streams = {traffic} > host->cache_bytes;")
    for number, (_, use) in enumerate(nests):
        streams = ["streams"] if schedules[number].streams else []
        values = [*map(_address, use.buffers, use.offsets), *map(dim, use.dims), *streams, "host"]
        lines.append(f"  Call{use.form} call_{number} = {{{', '.join(values)}}};")
    launched = launches(kernel, schedules)
    memory = shared_memory(kernel, launched)
    own = [number for number, (printer, _) in enumerate(nests) if printer.needs_memory]
    if kernel.scratch or own:
        lines.append("  i64 bytes = 0;")
        for place, size in enumerate(memory.bytes):
            lines += [f"  const i64 scratch_{place} = bytes;", f"  bytes += ({dim(size)} + 63) / 64 * 64;"]
        for number in own:
            lines += [
                f"  const i64 own_{number}_offset = bytes;",
                f"  bytes += bytes_{nests[number][1].form}(call_{number});",
            ]
        lines.append("  char* shared = bytes ? static_cast<char*>(host->scratch(0, bytes)) : nullptr;")
        for number, (printer, use) in enumerate(nests):
            for field, b, offset in zip(printer.form.buffers, use.buffers, use.offsets, strict=True):
                if b.place is Place.SCRATCH:
                    pointer = (
                        f"reinterpret_cast<{STORAGE[b.dtype]}*>(shared + scratch_{memory.place[b]}){_behind(offset)}"
                    )
                    lines.append(f"  call_{number}.{field.name} = {pointer};")
    lines += _launched(kernel, nests, schedules, launched)
    return [*lines, "}", ""]


def _launched(
    kernel: Kernel,
    nests: Sequence[tuple[NestPrinter, Use]],
    schedules: Sequence[Schedule],
    launched: Sequence[Sequence[int]],
) -> list[str]:
    lines: list[str] = []
    for together in launched:
        number = together[-1]  # of a nest that is joined with the one before: it launches both
        printer, use = nests[number]
        if schedules[number].chained:
            lines += _chain(kernel, nests, schedules, together)
            continue
        if printer.is_plain:
            loops = ", ".join(f"loop_{nests[n][1].form}(call_{n})" for n in together)
            lines += [f"  const Loop loops_{number}[] = {{{loops}}};", f"  launch(host, loops_{number});"]
            continue
        arguments = [f"call_{number}"]
        if printer.needs_memory:
            arguments.append(f"shared + own_{number}_offset")
        if schedules[number].joined:
            arguments.append(f"call_{number - 1}")
            if nests[number - 1][0].needs_memory:
                arguments.append(f"shared + own_{number - 1}_offset")
        lines.append(f"  launch_{use.form}({', '.join(arguments)});")
    return lines


def _chain(
    kernel: Kernel, nests: Sequence[tuple[NestPrinter, Use]], schedules: Sequence[Schedule], together: Sequence[int]
) -> list[str]:
    """Launches nests that follow each other row by row."""
    rows = rows_of([kernel.nests[n] for n in together])
    units = {n: rows_of_unit(kernel.nests[n], schedules[n], rows) for n in together}
    links = ", ".join(f"{{loop_{nests[n][1].form}(call_{n}), {unit}}}" for n, unit in units.items())
    name = f"links_{together[-1]}"
    return [
        f"  const Link {name}[] = {{{links}}};",
        f"  launch_chain(host, {dim(rows)}, {math.lcm(*units.values())}, {name});",
    ]


def _address(b: Buffer, offset: Sequence[Dim]) -> str:
    """Scratch has none yet."""
    if b.place is Place.INPUT:
        return f"static_cast<const {STORAGE[b.dtype]}*>(inputs[{b.index}].data)"
    if b.place is Place.SCRATCH:
        return "nullptr"
    return f"static_cast<{STORAGE[b.dtype]}*>(outputs[{b.index}]){_behind(offset)}"


def _behind(offset: Sequence[Dim]) -> str:
    return "".join(f" + {dim(term)}" for term in offset)
