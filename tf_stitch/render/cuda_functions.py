"""Nests that are alike but for their memory and their lengths are printed once, as a device function.

    60 variables, updated alike     __device__ i64 update_0(i64 unit, const f32* w, ..., i64 length)
                                    unit = update_0(unit, w0, ..., 4096);       a call for each, one behind another
                                    unit = update_0(unit, w1, ..., 768);

A function takes its share of the units and hands on what is left of the block's number. What threads leave for each
other in shared memory is the caller's: each call has its own, so that no barrier is needed between two of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tf_stitch.ir.types import Dim
from tf_stitch.lower.gpu_schedule import GpuSchedule, Home, Mapping, Version, parts_name, units_of
from tf_stitch.lower.gpu_steps import Stage, in_order
from tf_stitch.lower.gpu_waves import Kept
from tf_stitch.lower.kernel import Buffer, Load, Nest, Place, Reduction, statements
from tf_stitch.render.c_family import STORAGE, dim
from tf_stitch.render.cuda_nest import StagePrinter
from tf_stitch.render.cuda_statements import indented
from tf_stitch.render.cuda_waves import WavePrinter
from tf_stitch.render.sharing import Form, forms_of


@dataclass(frozen=True)
class _Function:
    """One stage of a form."""

    name: str
    form: Form
    schedule: GpuSchedule
    stage: Stage


class Functions:
    """The device functions of one version, and the printers of the stages that have none. constant: see Scope."""

    def __init__(self, version: Version, constant: frozenset[int]) -> None:
        self.version = version
        self.constant = constant
        self.index = "i64" if version.wide else "int"
        nests, schedules = version.kernel.nests, version.schedules
        self.stages: dict[int, list[Stage]] = {n: [] for n in range(len(nests))}
        for part in in_order(version.parts):
            if isinstance(part, Stage):
                self.stages[part.nest].append(part)
        alone = frozenset(
            n for n, s in enumerate(schedules) if s.joined or (nests[n].tiles and s.home is not Home.REGISTERS)
        ) | frozenset(dict(version.kept))
        keys = [(_alike(s), self._bodies(n), self._constants(nests[n])) for n, s in enumerate(schedules)]
        units = [s.vector if s.mapping is Mapping.ELEMENTS else 0 for s in schedules]
        self.forms, self.uses = forms_of(nests, keys, units, alone)
        times = Counter(use.form for use in self.uses)
        self.found: dict[tuple[int, int], _Function] = {}
        for form, count in times.items():
            if count > 1:
                self._add(form)

    def _bodies(self, nest: int) -> tuple[object, ...]:
        return tuple(stage.body for stage in self.stages[nest])

    def _constants(self, nest: Nest) -> tuple[bool, ...]:
        """Which loads are of memory that nothing writes."""
        loads = [s.access.buffer for s in statements(nest) if isinstance(s, Load)]
        return tuple(b.place is Place.INPUT and b.index in self.constant for b in loads)

    def _add(self, form: int) -> None:
        first = next(n for n, use in enumerate(self.uses) if use.form == form)
        schedule = self.version.schedules[first]
        nest = self.forms[form].nest
        for number, stage in enumerate(self.stages[first]):
            whole = units_of(nest, schedule) if stage.units == units_of(self._nest(first), schedule) else stage.units
            name = f"{self.version.variant.entry}_{form}" + (f"_{number}" if len(self.stages[first]) > 1 else "")
            self.found[form, number] = _Function(name, self.forms[form], schedule, replace(stage, units=whole))

    def _nest(self, number: int) -> Nest:
        return self.version.kernel.nests[number]

    def printer(self, stage: Stage) -> StagePrinter:
        """Of a stage where it stands."""
        nest, schedule = self.version.nest_of(stage), self.version.schedules[stage.nest]
        joint = dict(self.version.joints).get(stage.nest)
        waved = stage.nest in dict(self.version.kept)
        return StagePrinter(stage, nest, schedule, self.index, self.constant, joint, waved)

    def wave_printer(self, stage: Stage, kept: Kept) -> WavePrinter:
        """Of a stage that waves go through."""
        nest, schedule = self.version.nest_of(stage), self.version.schedules[stage.nest]
        return WavePrinter(stage, nest, schedule, self.index, self.constant, kept)

    def lines(self) -> list[str]:
        """The functions."""
        lines: list[str] = []
        for f in self.found.values():
            printer = StagePrinter(f.stage, f.form.nest, f.schedule, self.index, self.constant)
            parameters = [*map(_pointer, f.form.buffers), *(f"{type_}* {name}" for type_, name, _ in printer.slots())]
            parameters += [f"{STORAGE[r.dtype]}* {parts_name(f.stage.nest, r)}" for r in self._published(f)]
            parameters += [f"i64 {s}" for s in f.form.symbols]
            lines += [
                f"__device__ __noinline__ i64 {f.name}(i64 unit, {', '.join(parameters)}) {{",
                "  const int thread = threadIdx.x;",
                *indented(printer.in_turn(declare=False)),
                "  return unit;",
                "}",
                "",
            ]
        return lines

    def _published(self, f: _Function) -> Sequence[Reduction]:
        return f.form.nest.reductions if f.schedule.split else ()

    def call(self, stage: Stage) -> list[str] | None:
        """The call that a stage is; None where it has no function."""
        use = self.uses[stage.nest]
        f = self.found.get((use.form, self.stages[stage.nest].index(stage)))
        if f is None:
            return None
        nest = self.version.kernel.nests[stage.nest]
        slots = self.printer(stage).slots()
        parts = [parts_name(stage.nest, r) for r in nest.reductions] if f.schedule.split else []
        values = [
            *map(_address, use.buffers, use.offsets),
            *(name for _, name, _ in slots),
            *parts,
            *map(dim, use.dims),
        ]
        line = f"unit = {f.name}(unit, {', '.join(values)});"
        if not slots:
            return [line]
        return ["{", *(f"  __shared__ {type_} {name}[{count}];" for type_, name, count in slots), f"  {line}", "}"]


def _alike(s: GpuSchedule) -> tuple[GpuSchedule, bool]:
    """A schedule but for the length of its pieces, which follows from that of the row."""
    return replace(s, piece=None), s.piece is not None


def _pointer(buffer: Buffer) -> str:
    const = "const " if buffer.place is Place.INPUT else ""
    return f"{const}{STORAGE[buffer.dtype]}* {buffer.name}"


def _address(buffer: Buffer, offset: Sequence[Dim]) -> str:
    return buffer.name + "".join(f" + {dim(term)}" for term in offset)
