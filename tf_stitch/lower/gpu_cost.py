"""What a kernel moves on a GPU and how long that takes, estimated from its stages: one launch, some barriers, phases.

    phase 0         sweep 0 of x            reads x                    bytes / bandwidth    or what HEAVY functions take
    grid barrier                            parts of its sums          + barrier_ns
    phase 1         sweep 1 of x            reads x again, writes y    bytes / bandwidth

Where pieces keep values in waves, a phase is that of all waves together: what is not kept counts again, and each wave
has its barriers.

Each sweep reads a buffer once, however many threads read it: what lies close together in time is in a cache. What two
sweeps read is read twice, unless it is kept in a tile. A tile in registers or in shared memory costs nothing. So
the bytes are those between the grid and memory where the L2 cache holds nothing for long: an upper bound.

The time is for comparing kernels, and for seeing what they wait for. It is what memory takes at its bandwidth, less
where too few threads run to keep it busy (Little's law), or what arithmetic takes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tf_stitch.ir.types import Dim, product
from tf_stitch.lower.gpu_launch import evaluate
from tf_stitch.lower.gpu_schedule import Built, GpuSchedules, Home, Version, groups, parts_name, scratch_of
from tf_stitch.lower.gpu_steps import (
    Combine,
    GridBarrier,
    Publish,
    PublishDown,
    RunFinish,
    RunSweep,
    Stage,
    Step,
    Waves,
    flat,
    in_order,
)
from tf_stitch.lower.gpu_waves import Share, share_of
from tf_stitch.lower.kernel import Buffer, Compute, Load, Nest, Place, Statement, Store
from tf_stitch.ops import is_heavy
from tf_stitch.plan.gpu_target import GpuTarget

_ZERO = Dim(0)
_IN_FLIGHT = 16  # bytes that a thread waits for at a time: one widest access
_BUSY = 512  # threads that keep a multiprocessor's lanes busy: 4 warps for each quarter


@dataclass(frozen=True)
class Traffic:
    """Bytes that one sweep, or what follows the last one, reads and writes, by the name of the buffer."""

    nest: int
    read: Mapping[str, int]
    written: Mapping[str, int]

    @property
    def bytes(self) -> int:
        return sum(self.read.values()) + sum(self.written.values())


@dataclass(frozen=True)
class Phase:
    """What runs between two barriers of the grid.

    units: blocks that there is work for. heavy: evaluations of HEAVY functions.
    """

    traffic: tuple[Traffic, ...]
    units: int
    heavy: int

    @property
    def bytes(self) -> int:
        return sum(t.bytes for t in self.traffic)


@dataclass(frozen=True)
class GpuCost:
    """The cost of one launch on one GPU.

    blocks: of `threads` that a multiprocessor holds. occupancy: which part of the threads that it can hold they are.
    barriers: of the grid that a block waits at.
    ns: nanoseconds, launch and barriers included.
    """

    arch: str
    entry: str
    phases: tuple[Phase, ...]
    threads: int
    blocks: int
    occupancy: float
    barriers: int
    ns: float

    @property
    def bytes(self) -> int:
        return sum(phase.bytes for phase in self.phases)


def gpu_cost(
    schedules: GpuSchedules,
    target: GpuTarget,
    symbols: Mapping[str, int],
    built: Mapping[str, Built] | None = None,
) -> GpuCost:
    """Of the version that is launched for these values of the symbols.

    built: what the compiler says of each entry; without it a multiprocessor holds as many blocks as it was told.
    """
    variant = schedules.launch.chosen(symbols)
    version = schedules.versions[schedules.launch.variants.index(variant)]
    known = (built or {}).get(variant.entry)
    blocks = variant.blocks
    if known is not None:
        shared = known.shared_bytes + evaluate(variant.shared, symbols)
        blocks = target.blocks_together(variant.threads, known.registers, shared)
    grid = max(1, variant.grid(symbols, target.multiprocessors))
    phases = phases_of(version, symbols, grid)
    barriers = barriers_of(version, symbols, grid)
    resident = blocks * target.multiprocessors
    spent = sum(_phase_ns(p, target, min(p.units, resident) * variant.threads) for p in phases)
    ns = target.launch_ns + barriers * target.barrier_ns + spent
    occupancy = blocks * variant.threads / target.threads
    return GpuCost(target.arch, variant.entry, phases, variant.threads, blocks, occupancy, barriers, ns)


def _phase_ns(phase: Phase, target: GpuTarget, threads: int) -> float:
    if not threads:
        return 0.0
    busy = min(1.0, threads * _IN_FLIGHT / (target.bytes_per_ns * target.latency_ns))
    reached = min(1.0, threads / (target.multiprocessors * _BUSY))
    memory = phase.bytes / (target.bytes_per_ns * busy)
    return max(memory, phase.heavy / (target.heavy_per_ns * target.multiprocessors * reached))


def phases_of(version: Version, symbols: Mapping[str, int], grid: int) -> tuple[Phase, ...]:
    """What a grid of so many blocks does from barrier to barrier, in numbers."""
    parts = {name: evaluate(size, symbols) for name, size in scratch_of(version.kernel, version.schedules)}
    found: list[list[Stage]] = [[]]
    for part in in_order(version.parts):
        if isinstance(part, GridBarrier):
            found.append([])
        else:
            found[-1].append(part)
    shares = shares_of(version, symbols, grid)
    return tuple(_phase(version, stages, symbols, parts, shares) for stages in found)


def barriers_of(version: Version, symbols: Mapping[str, int], grid: int) -> int:
    """How often a block of such a grid waits for all others."""
    shares = shares_of(version, symbols, grid)
    found = 0
    for part in version.parts:
        times = shares[part.nest].waves if isinstance(part, Waves) else 1
        found += times * sum(isinstance(p, GridBarrier) for p in in_order([part]))
    return found


def shares_of(version: Version, symbols: Mapping[str, int], grid: int) -> dict[int, Share]:
    """What a grid of so many blocks makes of the rows that go in waves, by the numbers of their nests."""
    found: dict[int, Share] = {}
    for number, kept in version.kept:
        nest, s = version.kernel.nests[number], version.schedules[number]
        assert s.piece is not None
        rows = evaluate(groups(nest, s.lanes) if s.down else product(nest.outer), symbols)
        length = product(nest.inner).evaluate(symbols)
        found[number] = share_of(kept, rows, length, evaluate(s.piece, symbols), grid)
    return found


def _phase(
    version: Version,
    stages: Sequence[Stage],
    symbols: Mapping[str, int],
    parts: Mapping[str, int],
    shares: Mapping[int, Share],
) -> Phase:
    traffic: list[Traffic] = []
    heavy = 0.0
    kept = dict(version.kept)
    for stage in stages:
        home = version.schedules[stage.nest].home
        levels = [(1.0, version.nest_of(stage))]
        if stage.nest in kept:
            levels = list(zip(shares[stage.nest].parts, kept[stage.nest].levels, strict=True))
        walks = [(part, _Walk(stage.nest, nest, home, symbols)) for part, nest in levels]
        for step in flat(stage.body):
            crossing = _crossing(version, stage, step, parts)
            traffic.append(crossing or _together(stage.nest, [(part, w.traffic(step)) for part, w in walks]))
            heavy += sum(part * w.heavy(step) for part, w in walks)
    units = sum(evaluate(stage.units, symbols) for stage in stages)
    return Phase(tuple(t for t in traffic if t.bytes), units, round(heavy))


def _together(nest: int, levels: Sequence[tuple[float, Traffic]]) -> Traffic:
    """What levels move, each of which has a part of the elements."""

    def summed(found: Iterable[tuple[float, Mapping[str, int]]]) -> dict[str, int]:
        moved: dict[str, float] = {}
        for part, traffic in found:
            for name, count in traffic.items():
                moved[name] = moved.get(name, 0.0) + part * count
        return {name: round(count) for name, count in moved.items()}

    read, written = ((part, t.read) for part, t in levels), ((part, t.written) for part, t in levels)
    return Traffic(nest, summed(read), summed(written))


def _crossing(version: Version, stage: Stage, step: Step, parts: Mapping[str, int]) -> Traffic | None:
    """What pieces leave for each other in scratch."""

    def name(nest: int, reduction: int) -> str:
        return parts_name(nest, version.kernel.nests[nest].reductions[reduction])

    match step:
        case Publish(reduction):
            left = name(stage.nest, reduction)
            return Traffic(stage.nest, {}, {left: parts[left]})
        case PublishDown(reduction):
            left = name(stage.nest + 1, reduction - dict(version.joints)[stage.nest].first)
            return Traffic(stage.nest, {}, {left: parts[left]})
        case Combine(reduction):
            left = name(stage.nest, reduction)
            return Traffic(stage.nest, {left: parts[left]}, {})
        case _:
            return None


@dataclass
class _Sum:
    """Bytes of the distinct accesses to each buffer; never more than the buffer has."""

    symbols: Mapping[str, int]
    seen: set[object] = field(default_factory=set[object])
    bytes: dict[str, int] = field(default_factory=dict[str, int])

    def add(self, access: object, buffer: Buffer, count: int, rows: int) -> None:
        """count: of elements. rows: how often a tile is there."""
        if access in self.seen:
            return
        self.seen.add(access)
        whole = evaluate(buffer.size, self.symbols) * rows
        touched = self.bytes.get(buffer.name, 0) + min(count, whole) * buffer.dtype.size
        self.bytes[buffer.name] = min(touched, whole * buffer.dtype.size)


@dataclass(frozen=True)
class _Walk:
    """Counts what the steps of one nest's stages touch."""

    number: int
    nest: Nest
    home: Home
    symbols: Mapping[str, int]

    def traffic(self, step: Step) -> Traffic:
        read, written = _Sum(self.symbols), _Sum(self.symbols)
        for _, s in self._run(step):
            if not isinstance(s, Load | Store):
                continue
            buffer, rows = s.access.buffer, 1
            if buffer.place is Place.TILE:
                if self.home is not Home.SCRATCH:
                    continue
                rows = self._product(self.nest.outer)
            # An element of a table is looked up in each turn; any other access varies along the axes of its strides.
            every = isinstance(s, Load) and bool(s.at)
            along = [
                extent for extent, stride in zip(self._axes, s.access.strides, strict=True) if every or stride != _ZERO
            ]
            count = self._product(along) * (rows if buffer.place is Place.TILE else 1)
            (read if isinstance(s, Load) else written).add(s.access, buffer, count, rows)
        return Traffic(self.number, read.bytes, written.bytes)

    def heavy(self, step: Step) -> int:
        """Evaluations of HEAVY functions."""
        return sum(turns for turns, s in self._run(step) if isinstance(s, Compute) and is_heavy(s.function))

    def _run(self, step: Step) -> Iterator[tuple[int, Statement]]:
        """The statements of a step, each with how often it is run."""
        rows = self._product(self.nest.outer)
        match step:
            case RunSweep(number):
                sweep = self.nest.sweeps[number]
                yield from ((rows, s) for s in sweep.row)
                yield from ((rows * self._product(self.nest.inner), s) for s in sweep.elements)
            case RunFinish():
                yield from ((rows, s) for s in self.nest.finish)
            case _:
                pass

    @property
    def _axes(self) -> tuple[Dim, ...]:
        return (*self.nest.outer, *self.nest.inner)

    def _product(self, extents: Iterable[Dim]) -> int:
        return math.prod(extent.evaluate(self.symbols) for extent in extents)
