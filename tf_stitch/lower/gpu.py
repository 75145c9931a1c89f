"""GPU schedules: how a Nest is given to blocks, warps and threads. Decisions only; `render.cuda` prints them.

  ELEMENTS  no reduction: a thread takes a vector of neighbours
  WARPS     short rows: a row to some lanes of a warp, which combine by shuffles
  BLOCKS    a row to a block, which combines through shared memory
  SPLIT     few long rows: a piece of a row to a block; pieces are combined behind a barrier of the grid
  COLUMNS   reductions down columns, whose neighbours lie side by side: a warp reads neighbours of a row, a thread goes
            down its column
  COLUMNS_SPLIT   a piece of the rows to a block, as SPLIT

Where the elements of a row are between its sweeps is its tile's *home*: registers (a thread comes back to its own
elements, so nothing crosses threads), shared memory, or scratch. What is loaded again by a later sweep is kept in a
tile, too, where that is nearer than memory.

    x   x   x   x | x   x   x   x | ...    vectors of 4: thread 0, thread 1, ...; then all threads go on, `steps` times

A long row is cut in *pieces*, whose length depends on the row's alone. BLOCKS and COLUMNS go through the pieces one by
one and combine them as SPLIT does, by the same tree: the bits are the same. So how many rows there are, and how large
the GPU is, may decide between them.

What is not known yet, the length of a row, is decided at launch: a kernel has some *versions*, each for the shapes
that its conditions hold for.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tf_stitch.ir.types import ONE, Dim, product
from tf_stitch.lower.gpu_inlining import inlined
from tf_stitch.lower.gpu_joining import Joint, joint
from tf_stitch.lower.gpu_launch import (
    CeilDiv,
    Condition,
    Formula,
    Larger,
    Launch,
    Parameter,
    Variant,
    ceil_div,
    times,
    total,
)
from tf_stitch.lower.gpu_steps import (
    Collect,
    Combine,
    Deposit,
    EachPiece,
    EachRow,
    Fold,
    FoldKept,
    GridBarrier,
    Keep,
    Part,
    Publish,
    PublishDown,
    RunFinish,
    RunSweep,
    Stage,
    Step,
    in_phases,
    with_block_barriers,
)
from tf_stitch.lower.kernel import (
    Access,
    Buffer,
    Kernel,
    Load,
    Nest,
    Place,
    Reduced,
    Reduction,
    Statement,
    Store,
    Sweep,
    runs_down,
    statements,
)
from tf_stitch.lower.nests import longest, sources_of, tiles_in_place
from tf_stitch.lower.renaming import apart
from tf_stitch.plan.gpu_target import WARP, GpuTarget
from tf_stitch.plan.pieces import memory_strides

_ZERO = Dim(0)
THREADS = 256  # of a block
_WIDEST = 16  # bytes of one access of a thread
_STEPS = 8  # of a loop that is unrolled
_TILE_REGISTERS = 64  # of a thread, for what is kept of a row
_MOST_PIECES = 1024  # of a row: 32 to each lane, when they are combined
_ROWS_OF_THREAD = 32  # down a column, of the shortest piece
_MOST_PIECES_DOWN = 128
_ROWS_OF_JOINT = 4  # of the shortest piece of rows that are joined with their columns
_MOST_JOINT_PIECES = 256
_SHARED_RESERVE = 4096  # bytes: for what warps leave for each other
SMALL = 2**31 - 2**16  # elements that an `int` counts, with some to spare for the last threads of a grid
_MOST_VERSIONS = 6
_MANY_NESTS = 6
# Registers of a thread, assumed until the compiler has said how many it takes (`relaxed`): as a rule, and of kernels of
# many nests or of elements that are much to hold.
_REGISTERS = 64
_MORE_REGISTERS = 80  # where nests are joined
_MANY_REGISTERS = 128
_MUCH = 64


class Mapping(enum.Enum):
    ELEMENTS = "elements"
    WARPS = "warps"
    BLOCKS = "blocks"
    SPLIT = "split"
    COLUMNS = "columns"
    COLUMNS_SPLIT = "columns split"


class Home(enum.Enum):
    """Where tiles are."""

    REGISTERS = "registers"
    SHARED = "shared"
    SCRATCH = "scratch"


@dataclass(frozen=True)
class GpuSchedule:
    """How one nest runs.

    vector: neighbours that a thread takes at a time. lanes: threads side by side, along a row; for COLUMNS, across.
    steps: how often they go on along the row, where the loop is unrolled; else 0.
    piece: elements of a row in a piece, for COLUMNS along the column; None where a row is one piece.
    joined: BLOCKS, a unit being a piece of the rows, with the first sweep of the next nest; COLUMNS_SPLIT without that.
    """

    mapping: Mapping
    vector: int
    lanes: int = THREADS
    steps: int = 0
    piece: Formula | None = None
    home: Home = Home.REGISTERS
    joined: bool = False

    @property
    def down(self) -> bool:
        return self.mapping in (Mapping.COLUMNS, Mapping.COLUMNS_SPLIT)

    @property
    def split(self) -> bool:
        return self.mapping in (Mapping.SPLIT, Mapping.COLUMNS_SPLIT)


@dataclass(frozen=True)
class Version:
    """A kernel as it is for some shapes: one entry of the source.

    kernel: with tiles for what is loaded again. schedules: of its nests. parts: what a block does.
    wide: whether indices may pass 2^31. joints: by the number of the rows' nest.
    """

    variant: Variant
    kernel: Kernel
    schedules: tuple[GpuSchedule, ...]
    parts: tuple[Part, ...]
    wide: bool
    joints: tuple[tuple[int, Joint], ...] = ()

    def nest_of(self, stage: Stage) -> Nest:
        """The nest that the stage is a part of: where it is joined with the next one, the joint one."""
        return dict(self.joints)[stage.nest].nest if stage.nest in dict(self.joints) else self.kernel.nests[stage.nest]


@dataclass(frozen=True)
class Built:
    """What the compiler says of an entry: registers of a thread, bytes that it spilled, static shared bytes."""

    registers: int
    spilled_bytes: int
    shared_bytes: int


@dataclass(frozen=True)
class GpuSchedules:
    """All that the printer needs, and all that a launch does. `versions` runs parallel to `launch.variants`."""

    launch: Launch
    versions: tuple[Version, ...]


def schedule_gpu(kernel: Kernel, target: GpuTarget) -> GpuSchedules:
    """How a kernel, as `lower.common` makes it, runs on a GPU."""
    kernel = inlined(kernel)
    kernel = apart(replace(kernel, forwards=_forwards(kernel)))
    choices = [_alternatives(nest, kernel, target) for nest in kernel.nests]
    if len(choices) <= _MANY_NESTS:
        _join(kernel, choices)
    questions = _questions(choices)
    small = _small(kernel)
    drafts = [(q, [_first(c, q) for c in choices]) for q in questions]
    versions: list[Version] = []
    for question, chosen in drafts:
        if small is not None:
            versions.append(_version(kernel, chosen, (*question, *small), target, wide=False))
    if small is None or small:
        versions.append(_version(kernel, drafts[-1][1], (), target, wide=True))
    if len(versions) > 1:
        versions = [_named(v, f"{kernel.name}_{n}") for n, v in enumerate(versions)]
    launch = Launch(tuple(v.variant for v in versions), _parameters(kernel, versions))
    return GpuSchedules(launch, tuple(versions))


def _named(version: Version, entry: str) -> Version:
    return replace(version, variant=replace(version.variant, entry=entry))


def _forwards(kernel: Kernel) -> tuple[tuple[int, int], ...]:
    """Those where the thread that stores an element is the only one to read it: a row's scalars are read by all."""

    def apart(source: int, output: int) -> bool:
        for nest in kernel.nests:
            shared = [s for sweep in nest.sweeps for s in sweep.row]
            if any(
                _is(nest_store, Place.OUTPUT, output) for nest_store in nest.finish if isinstance(nest_store, Store)
            ):
                shared += [s for sweep in nest.sweeps for s in sweep.elements]
            if any(_is(s, Place.INPUT, source) for s in shared if isinstance(s, Load)):
                return False
        return True

    return tuple(pair for pair in kernel.forwards if apart(*pair))


def _is(s: Load | Store, place: Place, index: int) -> bool:
    return (s.access.buffer.place, s.access.buffer.index) == (place, index)


# -- versions --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Alternative:
    """A nest and how it may run where the conditions hold."""

    conditions: tuple[Condition, ...]
    nest: Nest
    schedule: GpuSchedule
    joint: Joint | None = None


def _questions(choices: Sequence[Sequence[_Alternative]]) -> list[tuple[Condition, ...]]:
    """What versions there are, by their conditions; the last has none."""
    found = list(dict.fromkeys(a.conditions for alternatives in choices for a in alternatives if a.conditions))
    if len(choices) > _MANY_NESTS:  # what suits one of them says little of the others
        return [()]
    return [*found[: _MOST_VERSIONS - 1], ()]


def _first(alternatives: Sequence[_Alternative], known: Sequence[Condition]) -> _Alternative:
    return next(a for a in alternatives if set(a.conditions) <= set(known))


def _small(kernel: Kernel) -> tuple[Condition, ...] | None:
    """When an int can count all there is: conditions, or None for never."""
    sizes = [t.size for t in (*kernel.inputs, *kernel.outputs) if t is not None] + [b.size for b in kernel.scratch]
    sizes += [product((*nest.outer, *nest.inner)) for nest in kernel.nests]
    if any(s.is_static and s.coefficient > SMALL for s in sizes):
        return None
    return tuple(Condition(s, Dim(SMALL)) for s in dict.fromkeys(sizes) if not s.is_static)


def _version(
    kernel: Kernel, chosen: Sequence[_Alternative], conditions: tuple[Condition, ...], target: GpuTarget, *, wide: bool
) -> Version:
    kernel = replace(kernel, nests=tuple(a.nest for a in chosen))
    schedules = tuple(a.schedule for a in chosen)
    joints = {n: a.joint for n, a in enumerate(chosen) if a.joint is not None}
    stages = [
        _joint_stages(n, joints[n], a.schedule) if n in joints else _stages(n, a.nest, a.schedule)
        for n, a in enumerate(chosen)
    ]
    joined = frozenset(n + 1 for n in joints)
    tiled = frozenset(n for n, a in enumerate(chosen) if a.nest.tiles and a.schedule.home is Home.SHARED)
    parts = with_block_barriers(in_phases(kernel.nests, stages, sources_of(kernel), joined), tiled)
    shared: Formula = _ZERO
    for n in sorted(tiled):
        bytes_ = tile_bytes(kernel.nests[n])
        shared = bytes_ if shared == _ZERO else Larger(shared, bytes_)
    variant = Variant(
        entry=kernel.name,
        conditions=conditions,
        units=_most_units(parts),
        resident=any(isinstance(p, GridBarrier) for p in parts),
        blocks=1 if tiled else target.blocks_together(THREADS, _registers(chosen), _SHARED_RESERVE),
        threads=THREADS,
        shared=shared,
        scratch=total([_rounded(size, 256) for _, size in scratch_of(kernel, schedules)]),
    )
    return Version(variant, kernel, schedules, parts, wide, tuple(joints.items()))


def _registers(chosen: Sequence[_Alternative]) -> int:
    """What a thread may take, to begin with."""

    def held(a: _Alternative) -> int:
        nest = a.joint.nest if a.joint else a.nest
        kept = len(tiles_in_place(nest)) + (len(a.joint.reductions) if a.joint else 0)
        loads = max(sum(isinstance(s, Load) for s in sweep.elements) for sweep in nest.sweeps)
        return a.schedule.vector * (kept * a.schedule.steps + loads)

    if len(chosen) > _MANY_NESTS or any(held(a) > _MUCH for a in chosen):
        return _MANY_REGISTERS
    return _MORE_REGISTERS if any(a.joint for a in chosen) else _REGISTERS


def relaxed(schedules: GpuSchedules, target: GpuTarget, built: dict[str, Built]) -> GpuSchedules:
    """The schedules with bounds that fit what the compiler has said of each entry; the same where they do already.

    Where it spilled, a multiprocessor holds fewer blocks; where it took fewer registers than it might, as many more as
    they leave room for. To be built again, and asked again, until nothing changes: a bound that was raised holds.
    """

    def fitted(v: Version) -> Version:
        known = built[v.variant.entry]
        if known.spilled_bytes:
            blocks = v.variant.blocks // 2
        elif v.variant.shared != _ZERO:  # what that leaves room for depends on the shapes
            blocks = v.variant.blocks
        else:
            blocks = target.blocks_together(v.variant.threads, known.registers, known.shared_bytes)
        return replace(v, variant=replace(v.variant, blocks=max(1, blocks)))

    versions = tuple(map(fitted, schedules.versions))
    return GpuSchedules(replace(schedules.launch, variants=tuple(v.variant for v in versions)), versions)


def _most_units(parts: Sequence[Part]) -> Formula:
    phases: list[list[Formula]] = [[]]
    for part in parts:
        if isinstance(part, GridBarrier):
            phases.append([])
        else:
            phases[-1].append(part.units)
    most: Formula | None = None
    for phase in dict.fromkeys(total(p) for p in phases):
        most = phase if most is None else Larger(most, phase)
    assert most is not None
    return most


def _parameters(kernel: Kernel, versions: Sequence[Version]) -> tuple[tuple[Parameter, int], ...]:
    found = [(Parameter.INPUT, n) for n, type_ in enumerate(kernel.inputs) if type_ is not None]
    found += [(Parameter.OUTPUT, n) for n in range(len(kernel.outputs))]
    if any(v.variant.scratch != _ZERO for v in versions):
        found.append((Parameter.SCRATCH, 0))
    if any(v.variant.resident for v in versions):
        found.append((Parameter.BARRIER, 0))
    return tuple(found + [(Parameter.SYMBOL, n) for n in range(len(kernel.symbols))])


# -- memory ----------------------------------------------------------------------------------------------------


def _rounded(size: Formula, unit: int) -> Formula:
    return times(Dim(unit), ceil_div(size, unit))


def tile_bytes(nest: Nest) -> Formula:
    """Of shared memory that a nest's tiles take."""
    return total([_rounded(times(place[0].size, Dim(place[0].dtype.size)), _WIDEST) for place in tiles_in_place(nest)])


def scratch_of(kernel: Kernel, schedules: Sequence[GpuSchedule]) -> list[tuple[str, Formula]]:
    """What lies in scratch, one behind another, each at a multiple of 256 bytes: its name and its bytes.

    Values that nests leave for later ones; what pieces leave of reductions; tiles of all rows.
    """
    found: list[tuple[str, Formula]] = [(b.name, times(b.size, Dim(b.dtype.size))) for b in kernel.scratch]
    for number, (nest, s) in enumerate(zip(kernel.nests, schedules, strict=True)):
        rows = product(nest.outer)
        if s.split:
            count = times(pieces(nest, s), rows)
            found += [(parts_name(number, r), times(count, Dim(r.dtype.size))) for r in nest.reductions]
        if s.home is Home.SCRATCH:
            for place in tiles_in_place(nest):
                size = times(rows, place[0].size, Dim(place[0].dtype.size))
                found.append((tiles_name(number, place[0]), size))
    return found


def parts_name(nest: int, reduction: Reduction) -> str:
    """What pieces leave of a reduction of nest number `nest`."""
    return f"{reduction.name}_parts{nest}"


def tiles_name(nest: int, tile: Buffer) -> str:
    """The tiles of all rows of nest number `nest`."""
    return f"{tile.name}s{nest}"


def pieces(nest: Nest, s: GpuSchedule) -> Formula:
    """How many a row has, or a column."""
    assert s.piece is not None
    return _in_pieces(product(nest.inner), s.piece)


def _in_pieces(length: Dim, piece: Formula) -> Formula:
    if isinstance(piece, Dim) and piece.is_static:
        return ceil_div(length, piece.coefficient)
    return CeilDiv(length, piece)


# -- stages ----------------------------------------------------------------------------------------------------


def _stages(number: int, nest: Nest, s: GpuSchedule) -> list[list[Stage]]:
    """Of a nest; those that the grid need not wait between together."""
    units = units_of(nest, s)
    if s.mapping is Mapping.ELEMENTS:
        return [[Stage(number, units, (RunSweep(0),))]]
    if s.split:
        return _split_stages(number, nest, s, units)
    body: list[Step] = []
    for sweep in range(len(nest.sweeps)):
        body += _whole(nest, s, sweep)
    if nest.finish:
        body.append(RunFinish())
    return [[Stage(number, units, tuple(body))]]


def units_of(nest: Nest, s: GpuSchedule) -> Formula:
    """How much work there is for blocks."""
    rows = product(nest.outer)
    match s.mapping:
        case Mapping.ELEMENTS:
            return ceil_div(rows * product(nest.inner), THREADS * s.vector)
        case Mapping.WARPS:
            return ceil_div(rows, THREADS // s.lanes)
        case Mapping.BLOCKS if s.joined:
            assert s.piece is not None
            return _in_pieces(rows, s.piece)
        case Mapping.BLOCKS:
            return rows
        case Mapping.SPLIT:
            return times(rows, pieces(nest, s))
        case Mapping.COLUMNS:
            return _groups(nest, s.lanes)
        case Mapping.COLUMNS_SPLIT:
            return times(_groups(nest, s.lanes), pieces(nest, s))


def _groups(nest: Nest, lanes: int) -> Formula:
    """Of columns that a warp has side by side."""
    return times(product(nest.outer[:-1]), ceil_div(nest.outer[-1], lanes))


def _of(nest: Nest, sweep: int) -> list[int]:
    return [n for n, r in enumerate(nest.reductions) if r.sweep == sweep]


def _whole(nest: Nest, s: GpuSchedule, sweep: int) -> list[Step]:
    """A sweep of a row, or a column, that one block goes through; and its reductions."""
    mine = _of(nest, sweep)
    if not mine:
        return [RunSweep(sweep)]
    if s.mapping is Mapping.WARPS:
        return [RunSweep(sweep), *map(Fold, mine)]
    combined: list[Step] = [RunSweep(sweep), *map(Deposit, mine), *map(Collect, mine)]
    if s.piece is None:
        return combined
    return [EachPiece((*combined, *map(Keep, mine))), *_of_pieces(s, mine)]


def _of_pieces(s: GpuSchedule, reductions: Sequence[int]) -> list[Step]:
    """What lanes have kept of pieces, combined."""
    if s.down:
        return [*(Deposit(r, totals=True) for r in reductions), *(Collect(r, totals=True) for r in reductions)]
    return [FoldKept(r) for r in reductions]


def _joint_stages(number: int, joint: Joint, s: GpuSchedule) -> list[list[Stage]]:
    """Each row of a piece goes through all sweeps, the last of them the next nest's first."""
    nest, last = joint.nest, len(joint.nest.sweeps) - 1
    body: list[Step] = []
    for sweep in range(last):
        body += _whole(nest, replace(s, piece=None), sweep)
    if nest.finish:
        body.append(RunFinish())
    body.append(RunSweep(last))
    steps = (EachRow(tuple(body)), *map(PublishDown, joint.reductions))
    return [[Stage(number, units_of(nest, s), steps)]]


def _split_stages(number: int, nest: Nest, s: GpuSchedule, units: Formula) -> list[list[Stage]]:
    stages: list[list[Stage]] = []
    for sweep in range(len(nest.sweeps)):
        mine = _of(nest, sweep)
        needed = _read_in(nest, sweep)
        body: list[Step] = [*map(Combine, needed), *_of_pieces(s, needed), RunSweep(sweep)]
        body += [*map(Deposit, mine), *map(Collect, mine), *map(Publish, mine)]
        stages.append([Stage(number, units, tuple(body))])
    if nest.finish:
        needed = _read_in(nest, len(nest.sweeps))
        rows = _groups(nest, s.lanes) if s.down else product(nest.outer)
        body = [*map(Combine, needed), *_of_pieces(s, needed), RunFinish()]
        finish = Stage(number, rows, tuple(body))
        if _of(nest, len(nest.sweeps) - 1):
            stages.append([finish])
        else:
            stages[-1].append(finish)
    return stages[1:] if s.joined else stages


def _read_in(nest: Nest, sweep: int) -> list[int]:
    """The reductions whose results a sweep reads; `finish` comes after the last."""
    part = nest.sweeps[sweep].row + nest.sweeps[sweep].elements if sweep < len(nest.sweeps) else nest.finish
    return sorted({s.reduction for s in part if isinstance(s, Reduced)})


# -- alternatives ----------------------------------------------------------------------------------------------


def _alternatives(nest: Nest, kernel: Kernel, target: GpuTarget) -> list[_Alternative]:
    """How a nest may run, best first; the last may always."""
    if not nest.reductions:
        return _elements(nest)
    accesses = [s.access for s in statements(nest) if isinstance(s, Load | Store)]
    if not nest.tiles and runs_down(nest.outer, accesses):
        return _columns(nest, target)
    return _rows(nest, kernel, target)


def _elements(nest: Nest) -> list[_Alternative]:
    length = nest.inner[-1]
    vector = _vector(nest)
    found = [_Alternative((), nest, GpuSchedule(Mapping.ELEMENTS, vector))]
    if vector == 1 and not nest.outer and not length.is_static:
        widest = _vector(replace(nest, inner=(Dim(_WIDEST) * length,)))
        if widest > 1:
            whole = Condition(_rounded(length, widest), length)
            found.insert(0, _Alternative((whole,), nest, GpuSchedule(Mapping.ELEMENTS, widest)))
    return found


def _rows(nest: Nest, kernel: Kernel, target: GpuTarget) -> list[_Alternative]:
    kept, vector = _keeping_loads(nest), _vector(nest)
    length, rows = product(nest.inner), product(nest.outer)
    places = tiles_in_place(kept)
    of_element = sum(2 if place[0].dtype.size == 8 else 1 for place in places)
    steps = max(1, min(_STEPS, _TILE_REGISTERS // (vector * max(of_element, 1))))
    most = longest(length, kernel)
    found: list[_Alternative] = []
    for mapping, threads in ((Mapping.WARPS, WARP), (Mapping.BLOCKS, THREADS)):
        reach = threads * vector * steps
        lanes = _lanes(length, vector) if mapping is Mapping.WARPS else threads
        fitting = -(-length.coefficient // (lanes * vector)) if length.is_static else steps
        schedule = GpuSchedule(mapping, vector, lanes, max(1, fitting))
        if most is not None and most <= reach:
            return [*found, _Alternative((), kept, schedule)]
        if not length.is_static:
            found.append(_Alternative((Condition(length, Dim(reach)),), kept, schedule))
    unit = THREADS * vector
    piece = _piece(length, unit, unit * _STEPS, _MOST_PIECES)
    long = GpuSchedule(Mapping.SPLIT, vector, THREADS, 0, piece, Home.SCRATCH)
    few = Condition(times(rows, Dim(2)), Dim(target.multiprocessors))
    found += _where(few, nest, long)
    limit = target.shared_bytes_of_block - _SHARED_RESERVE
    fits = Condition(tile_bytes(kept), Dim(limit))
    if kept.tiles:
        found += _where(fits, kept, replace(long, mapping=Mapping.BLOCKS, home=Home.SHARED))
    found.append(_Alternative((), nest, replace(long, mapping=Mapping.BLOCKS)))
    return _until_sure(found)


def _where(condition: Condition, nest: Nest, schedule: GpuSchedule) -> list[_Alternative]:
    """An alternative under a condition; under none where it is known to hold, and none where it is known not to."""
    small, large = condition.small, condition.large
    if isinstance(small, Dim) and isinstance(large, Dim) and small.is_static and large.is_static:
        return [_Alternative((), nest, schedule)] if condition.holds({}) else []
    return [_Alternative((condition,), nest, schedule)]


def _until_sure(found: list[_Alternative]) -> list[_Alternative]:
    sure = next(n for n, a in enumerate(found) if not a.conditions)
    return found[: sure + 1]


def _columns(nest: Nest, target: GpuTarget) -> list[_Alternative]:
    columns, height = nest.outer[-1], product(nest.inner)
    lanes = _lanes(columns, 1)
    shortest = THREADS // lanes * _ROWS_OF_THREAD
    if height.is_static and height.coefficient <= shortest:
        return [_Alternative((), nest, GpuSchedule(Mapping.COLUMNS, 1, lanes))]
    piece = _piece(height, THREADS // lanes, shortest, _MOST_PIECES_DOWN)
    split = GpuSchedule(Mapping.COLUMNS_SPLIT, 1, lanes, 0, piece)
    many = Condition(Dim(2 * target.multiprocessors), _groups(nest, lanes))
    found = _where(many, nest, replace(split, mapping=Mapping.COLUMNS))
    return _until_sure([*found, _Alternative((), nest, split)])


def _join(kernel: Kernel, choices: list[list[_Alternative]]) -> None:
    """Adds, in front of all others, that a nest and the one behind it are joined.

    It is where a thread has registers for its part of a row, and of the columns' sums.
    """
    for number in range(len(kernel.nests) - 1):
        rows, down = kernel.nests[number], kernel.nests[number + 1]
        by_rows = bool(rows.reductions) and not choices[number][-1].schedule.down
        found = joint(rows, down) if by_rows and choices[number + 1][-1].schedule.down else None
        if found is None:
            continue
        found = replace(found, nest=_keeping_loads(found.nest))
        vector = _vector(found.nest)
        of_element = len(tiles_in_place(found.nest)) + len(found.reductions)
        steps = min(_STEPS, _TILE_REGISTERS // (vector * of_element))
        length = product(rows.inner)
        reach = THREADS * vector * steps
        if not steps or (length.is_static and length.coefficient > reach):
            continue
        conditions = () if length.is_static else (Condition(length, Dim(reach)),)
        fitting = -(-length.coefficient // (THREADS * vector)) if length.is_static else steps
        piece = _piece(product(rows.outer), 1, _ROWS_OF_JOINT, _MOST_JOINT_PIECES)
        in_rows = GpuSchedule(Mapping.BLOCKS, vector, THREADS, max(1, fitting), piece, joined=True)
        in_columns = GpuSchedule(Mapping.COLUMNS_SPLIT, 1, _lanes(length, 1), 0, piece, joined=True)
        others = [a for a in choices[number] if a.schedule.mapping is not Mapping.WARPS]  # those are shorter still
        choices[number] = _until_sure([_Alternative(conditions, rows, in_rows, found), *others])
        choices[number + 1] = _until_sure([_Alternative(conditions, down, in_columns), *choices[number + 1]])


def _lanes(length: Dim, vector: int) -> int:
    """As many lanes as a row has vectors, in a power of two; a warp's where it is longer or not known."""
    if not length.is_static:
        return WARP
    vectors = -(-length.coefficient // vector)
    return min(WARP, 1 << max(0, vectors - 1).bit_length())


def _piece(length: Dim, unit: int, shortest: int, most: int) -> Formula:
    """The length of a piece: a multiple of `unit`, at least `shortest`, so that there are at most `most`."""
    even = ceil_div(length, most * unit)
    if isinstance(even, Dim) and even.is_static:
        return Dim(max(shortest, even.coefficient * unit))
    return Larger(Dim(shortest), times(Dim(unit), even))


def _vector(nest: Nest) -> int:
    """How many neighbours a thread may take at a time: at a multiple of their size in memory, and all there."""
    accesses = [s.access for sweep in nest.sweeps for s in sweep.elements if isinstance(s, Load | Store)]
    accesses = [a for a in accesses if a.buffer.place is not Place.TILE]
    along = [a for a in accesses if a.strides[-1] == ONE]
    if not along or any(a.strides[-1] not in (ONE, _ZERO) for a in accesses):
        return 1
    vector = _WIDEST // max(a.buffer.dtype.size for a in along)
    vector = min(vector, 8)
    while vector > 1 and not (
        nest.inner[-1].coefficient % vector == 0
        and all(step.coefficient % vector == 0 for a in along for step in (*a.strides[:-1], *a.offset))
    ):
        vector //= 2
    return vector


def _keeping_loads(nest: Nest) -> Nest:
    """The nest with a tile for each of a row's elements that more than one sweep loads from memory.

    x -> sum(x), x -> (x - mean)^2, x -> y         x -> tile, sum(x)     tile -> (x - mean)^2     tile -> y
    """
    outer = len(nest.outer)
    first: dict[Access, int] = {}
    again: dict[Access, Buffer] = {}
    for number, sweep in enumerate(nest.sweeps):
        for s in sweep.elements:
            if not isinstance(s, Load) or s.access.buffer.place is Place.TILE:
                continue
            varies = any(d != _ZERO for d in s.access.strides[:outer]) or not outer or product(nest.outer).is_one
            if varies and first.setdefault(s.access, number) < number and s.access not in again:
                tile = Buffer(Place.TILE, len(nest.tiles) + len(again), f"{s.name}_tile", s.dtype, product(nest.inner))
                again[s.access] = tile
    if not again:
        return nest
    strides = memory_strides(tuple(nest.inner))
    places = {a: Access(tile, (_ZERO,) * outer + strides) for a, tile in again.items()}

    def kept(number: int, sweep: Sweep) -> Sweep:
        elements: list[Statement] = []
        stored: set[Access] = set()  # the same may be loaded twice, under two names
        for s in sweep.elements:
            place = places.get(s.access) if isinstance(s, Load) else None
            if place is None or not isinstance(s, Load):
                elements.append(s)
            elif first[s.access] != number:
                elements.append(replace(s, access=place))
            else:
                elements.append(s)
                if s.access not in stored:
                    stored.add(s.access)
                    elements.append(Store(place, s.name, s.dtype))
        return replace(sweep, elements=tuple(elements))

    sweeps = tuple(kept(n, sweep) for n, sweep in enumerate(nest.sweeps))
    return replace(nest, sweeps=sweeps, tiles=(*nest.tiles, *again.values()))
