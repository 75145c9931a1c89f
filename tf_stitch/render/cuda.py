"""Kernel + schedules -> CUDA C++. Decides nothing; the text is meant to be read.

One `__global__` function for each version of a kernel. It goes through the stages of all nests: those that do not wait
for each other side by side, one's units behind the other's; a barrier of the grid between those that do.

The compiler is told not to contract a product and a sum (`--fmad=false`): a value that two readers share has the same
bits for both. Functions of the prelude ask for a fused multiply and add where they want one.
"""

from __future__ import annotations

from tf_stitch.ir.types import Dim
from tf_stitch.lower.gpu_launch import Formula, Parameter, times
from tf_stitch.lower.gpu_schedule import (
    GpuSchedules,
    Home,
    Version,
    parts_name,
    pieces,
    tiles_name,
)
from tf_stitch.lower.gpu_steps import GridBarrier, Stage, Waves, in_order
from tf_stitch.lower.kernel import Buffer, Kernel, Load, Place, Store, statements
from tf_stitch.lower.nests import tiles_in_place
from tf_stitch.render.c_family import STORAGE, formula, headers
from tf_stitch.render.cuda_functions import Functions
from tf_stitch.render.cuda_statements import bare, indented, words
from tf_stitch.render.cuda_waves import WavePrinter, waves_of
from tf_stitch.toolchain.artifact import Source

_SCRATCH_UNIT = 256
_SHARED_UNIT = 16
_LINE = 120


def render_cuda(kernel: Kernel, schedules: GpuSchedules) -> Source:
    """The CUDA source of a kernel: a function for each version, named as its variant's entry."""
    lines = [*_preamble(kernel, schedules)]
    for version in schedules.versions:
        lines += _entry(version, schedules)
    lines += ["}  // namespace stitch", "using namespace stitch;  // its entries are found by their names alone"]
    return Source(kernel.name, "\n".join(lines) + "\n")


def _preamble(kernel: Kernel, schedules: GpuSchedules) -> list[str]:
    nests = [nest for v in schedules.versions for nest in v.kernel.nests]
    waits = any(v.variant.resident for v in schedules.versions)
    combines = any(nest.reductions for nest in nests) or any(v.kernel.scratch for v in schedules.versions)
    includes = ["core.h", *(["block.h"] if combines else []), *(["grid.h"] if waits else [])]
    includes += ["waves.h"] if any(v.kept for v in schedules.versions) else []
    includes += headers([s for nest in nests for s in statements(nest)])
    return [
        f"// {kernel.name}: " + ", ".join(str(t) for t in kernel.outputs),
        *(f'#include "prelude/cuda/{name}"' for name in includes),
        "namespace stitch {",
        "",
    ]


def _entry(version: Version, schedules: GpuSchedules) -> list[str]:
    variant = version.variant
    bounds = f"__launch_bounds__({variant.threads}, {variant.blocks})"
    conditions = [f"// Where {bare(formula(c.small))} is at most {bare(formula(c.large))}." for c in variant.conditions]
    functions = Functions(version, _constant(version.kernel))
    body = [*_shared(version), *_slots(version, functions), *_scratch(version), *_stages(version, functions)]
    if "thread" in words(body):
        body.insert(0, "const int thread = threadIdx.x;")
    return [
        *functions.lines(),
        *conditions,
        f'extern "C" __global__ void {bounds}',
        *_signature(variant.entry, _parameters(version, schedules)),
        *indented(body),
        "}",
        "",
    ]


def _signature(entry: str, parameters: list[str]) -> list[str]:
    line = f"{entry}({', '.join(parameters)}) {{"
    if len(line) <= _LINE:
        return [line]
    return [f"{entry}(", *(f"    {p}," for p in parameters[:-1]), f"    {parameters[-1]}) {{"]


def _parameters(version: Version, schedules: GpuSchedules) -> list[str]:
    kernel = version.kernel
    buffers = _buffers(kernel)
    constant = _constant(kernel)
    forwarded = {output for _, output in kernel.forwards}
    found: list[str] = []
    for kind, number in schedules.launch.parameters:
        match kind:
            case Parameter.INPUT:
                b = buffers.get((Place.INPUT, number))
                type_ = kernel.inputs[number]
                assert type_ is not None
                restrict = " __restrict__" if number in constant else ""
                name = b.name if b else ""
                found.append(f"const {STORAGE[type_.dtype]}*{restrict} {name}".rstrip())
            case Parameter.OUTPUT:
                b = buffers[Place.OUTPUT, number]
                restrict = "" if number in forwarded else " __restrict__"
                found.append(f"{STORAGE[b.dtype]}*{restrict} {b.name}")
            case Parameter.SCRATCH:
                found.append("char* scratch")
            case Parameter.BARRIER:
                found.append("GridBarrier* barrier")
            case Parameter.SYMBOL:
                found.append(f"i64 {kernel.symbols[number].symbol}")
    return found


def _buffers(kernel: Kernel) -> dict[tuple[Place, int], Buffer]:
    accesses = [s.access for nest in kernel.nests for s in statements(nest) if isinstance(s, Load | Store)]
    return {(a.buffer.place, a.buffer.index): a.buffer for a in accesses if a.buffer.place is not Place.TILE}


def _constant(kernel: Kernel) -> frozenset[int]:
    """The inputs that nothing writes during a launch."""
    return frozenset(range(len(kernel.inputs))) - {source for source, _ in kernel.forwards}


def _shared(version: Version) -> list[str]:
    """Tiles in shared memory; those of different nests lie in the same place. Where waves keep theirs they say."""
    lines: list[str] = []
    for nest, s in zip(version.kernel.nests, version.schedules, strict=True):
        if s.home is not Home.SHARED or not nest.tiles:
            continue
        before: Buffer | None = None
        for place in tiles_in_place(nest):
            for tile in place:
                type_ = STORAGE[tile.dtype]
                where = f"reinterpret_cast<{type_}*>(shared)"
                if before is not None:
                    where = f"behind<{type_}, {_SHARED_UNIT}>({before.name}, {formula(before.size)})"
                lines.append(f"{type_}* const {tile.name} = {where};")
            before = place[-1]
    return ["extern __shared__ __align__(16) char shared[];", *lines] if lines or version.kept else []


def _slots(version: Version, functions: Functions) -> list[str]:
    """What threads leave for each other in waves, in each stage in the same place."""
    stages = [part for part in in_order(version.parts) if isinstance(part, Stage) and part.nest in dict(version.kept)]
    return list(dict.fromkeys(line for stage in stages for line in functions.printer(stage).declared()))


def _scratch(version: Version) -> list[str]:
    """Pointers to what lies in scratch, in the order of `lower.gpu.scratch_of`."""
    found: list[tuple[str, str, Formula]] = [(b.name, STORAGE[b.dtype], b.size) for b in version.kernel.scratch]
    for number, (nest, s) in enumerate(zip(version.kernel.nests, version.schedules, strict=True)):
        rows = Dim(1)
        for extent in nest.outer:
            rows = rows * extent
        if s.split:
            count = times(pieces(nest, s), rows)
            found += [(parts_name(number, r), STORAGE[r.dtype], count) for r in nest.reductions]
        if s.home is Home.SCRATCH:
            places = tiles_in_place(nest)
            found += [(tiles_name(number, p[0]), STORAGE[p[0].dtype], times(rows, p[0].size)) for p in places]
    lines: list[str] = []
    before: tuple[str, Formula] | None = None
    for name, type_, count in found:
        where = f"reinterpret_cast<{type_}*>(scratch)"
        if before is not None:
            where = f"behind<{type_}, {_SCRATCH_UNIT}>({before[0]}, {formula(before[1])})"
        lines.append(f"{type_}* const {name} = {where};")
        before = name, count
    return lines


# -- stages ----------------------------------------------------------------------------------------------------


def _stages(version: Version, functions: Functions) -> list[str]:
    phases: list[list[Stage | Waves]] = [[]]
    for part in version.parts:
        if isinstance(part, GridBarrier):
            phases.append([])
        else:
            phases[-1].append(part)
    lines = ["u32 turn = 0;"] if version.kept else []  # of the barrier: how many there are follows from the shape
    for number, phase in enumerate(phases):
        if number:
            lines.append(f"grid_barrier(barrier, {_turn(version, number - 1)});")
        lines += _phase(version, functions, phase, alone=len(phases) == 1)
    return lines


def _turn(version: Version, before: int) -> str:
    """Of the two words of the barrier, that of one which comes behind `before` others."""
    return "turn++ % 2" if version.kept else str(before % 2)


def _phase(version: Version, functions: Functions, phase: list[Stage | Waves], *, alone: bool) -> list[str]:
    waves = [part for part in phase if isinstance(part, Waves)]
    stages = [part for part in phase if isinstance(part, Stage)]
    lines: list[str] = []
    for part in waves:
        lines += ["{", *indented(_waves(version, functions, part)), "}"]
    called = [functions.call(stage) for stage in stages]
    if len(stages) == 1 and called[0] is None:
        only = functions.printer(stages[0]).alone()
        return lines + (only if alone and not waves else ["{", *indented(only), "}"])
    if stages:
        lines += ["{", "  i64 unit = blockIdx.x;"]
        for stage, call in zip(stages, called, strict=True):
            lines += indented(functions.printer(stage).in_turn() if call is None else call)
        lines.append("}")
    return lines


def _waves(version: Version, functions: Functions, waves: Waves) -> list[str]:
    kept = dict(version.kept)[waves.nest]
    parts: list[WavePrinter | str] = []
    for part in waves.parts:
        if isinstance(part, GridBarrier):
            parts.append(f"grid_barrier(barrier, {_turn(version, 0)});")
        else:
            parts.append(functions.wave_printer(part, kept))
    return waves_of(parts)
