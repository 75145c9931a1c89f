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

from collections.abc import Sequence
from dataclasses import replace

from tf_stitch.ir.types import Dim, product
from tf_stitch.lower.gpu_alternatives import SHARED_RESERVE, Alternative, alternatives, join
from tf_stitch.lower.gpu_inlining import inlined
from tf_stitch.lower.gpu_joining import Joint
from tf_stitch.lower.gpu_launch import (
    Condition,
    Formula,
    Larger,
    Launch,
    Parameter,
    Variant,
    total,
)
from tf_stitch.lower.gpu_schedule import (
    THREADS,
    WIDEST,
    Built,
    GpuSchedule,
    GpuSchedules,
    Home,
    Mapping,
    Version,
    groups,
    rounded,
    scratch_of,
    slot_bytes,
    tile_bytes,
    units_of,
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
    Waves,
    in_order,
    in_phases,
    with_block_barriers,
)
from tf_stitch.lower.gpu_waves import LEAST_ROOM, Kept, blocks_of_waves
from tf_stitch.lower.kernel import (
    Kernel,
    Load,
    Nest,
    Place,
    Reduced,
    Store,
)
from tf_stitch.lower.nests import sources_of, tiles_in_place
from tf_stitch.lower.renaming import apart
from tf_stitch.plan.gpu_target import GpuTarget

_ZERO = Dim(0)
SMALL = 2**31 - 2**16  # elements that an `int` counts, with some to spare for the last threads of a grid
_MOST_VERSIONS = 6
MANY_NESTS = 6
# Registers of a thread, assumed until the compiler has said how many it takes (`relaxed`): as a rule, and of kernels of
# many nests or of elements that are much to hold.
_REGISTERS = 64
_MORE_REGISTERS = 80  # where nests are joined, or waves have more than `_OFTEN` elements to a vector
_OFTEN = 4
_MANY_REGISTERS = 128
_MUCH = 64


def schedule_gpu(kernel: Kernel, target: GpuTarget) -> GpuSchedules:
    """How a kernel, as `lower.common` makes it, runs on a GPU."""
    kernel = inlined(kernel)
    kernel = apart(replace(kernel, forwards=_forwards(kernel)))
    choices = [alternatives(nest, kernel, target) for nest in kernel.nests]
    if len(choices) <= MANY_NESTS:
        join(kernel, choices)
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


def _questions(choices: Sequence[Sequence[Alternative]]) -> list[tuple[Condition, ...]]:
    """What versions there are, by their conditions; the last has none."""
    found = list(dict.fromkeys(a.conditions for alternatives in choices for a in alternatives if a.conditions))
    if len(choices) > MANY_NESTS:  # what suits one of them says little of the others
        return [()]
    return [*found[: _MOST_VERSIONS - 1], ()]


def _first(alternatives: Sequence[Alternative], known: Sequence[Condition]) -> Alternative:
    return next(a for a in alternatives if set(a.conditions) <= set(known))


def _small(kernel: Kernel) -> tuple[Condition, ...] | None:
    """When an int can count all there is: conditions, or None for never."""
    sizes = [t.size for t in (*kernel.inputs, *kernel.outputs) if t is not None] + [b.size for b in kernel.scratch]
    sizes += [product((*nest.outer, *nest.inner)) for nest in kernel.nests]
    if any(s.is_static and s.coefficient > SMALL for s in sizes):
        return None
    return tuple(Condition(s, Dim(SMALL)) for s in dict.fromkeys(sizes) if not s.is_static)


def _version(
    kernel: Kernel, chosen: Sequence[Alternative], conditions: tuple[Condition, ...], target: GpuTarget, *, wide: bool
) -> Version:
    kernel = replace(kernel, nests=tuple(a.nest for a in chosen))
    schedules = tuple(a.schedule for a in chosen)
    joints = {n: a.joint for n, a in enumerate(chosen) if a.joint is not None}
    tiled = frozenset(n for n, a in enumerate(chosen) if a.nest.tiles and a.schedule.home is Home.SHARED)
    waved = frozenset(n for n, a in enumerate(chosen) if a.levels)
    blocks = 1 if tiled else target.blocks_together(THREADS, _registers(chosen), SHARED_RESERVE)
    parts, room = _parts(kernel, chosen, joints, tiled, waved), 0
    if waved:
        nests = [joints[n].nest if n in joints else nest for n, nest in enumerate(kernel.nests)]
        blocks, room = _room(target, blocks, slot_bytes(parts, nests, schedules, waved))
        if not room:
            waved = frozenset[int]()
            parts = _parts(kernel, chosen, joints, tiled, waved)
    shared: Formula = Dim(room)
    for n in sorted(tiled):
        bytes_ = tile_bytes(kernel.nests[n])
        shared = bytes_ if shared == _ZERO else Larger(shared, bytes_)
    variant = Variant(
        entry=kernel.name,
        conditions=conditions,
        units=_most_units(parts),
        resident=any(isinstance(p, GridBarrier) for p in in_order(parts)),
        blocks=blocks,
        threads=THREADS,
        shared=shared,
        scratch=total([rounded(size, 256) for _, size in scratch_of(kernel, schedules)]),
    )
    kept = tuple((n, _kept(chosen[n], room)) for n in sorted(waved))
    return Version(variant, kernel, schedules, parts, wide, tuple(joints.items()), kept)


def _room(target: GpuTarget, most: int, slots: int) -> tuple[int, int]:
    """How many blocks of waves a multiprocessor holds, and the bytes in which each keeps something; of too few none.

    most: blocks that it holds otherwise. slots: bytes of a block's shared memory that are taken.
    """
    for blocks in range(blocks_of_waves(target, THREADS, most), 0, -1):
        room = (target.shared_for(blocks) - slots) // WIDEST * WIDEST
        if room >= LEAST_ROOM:
            return blocks, room
    return most, 0


def _kept(chosen: Alternative, room: int) -> Kept:
    """What pieces keep in so much of a block's shared memory; each tile begins at a whole vector."""
    s = chosen.schedule
    width, unit = (s.lanes, THREADS // s.lanes) if s.down else (1, s.lanes * s.vector)
    return Kept(chosen.levels, room - WIDEST * len(chosen.levels[0].tiles), width, unit)


def _parts(
    kernel: Kernel,
    chosen: Sequence[Alternative],
    joints: dict[int, Joint],
    tiled: frozenset[int],
    waved: frozenset[int],
) -> tuple[Part, ...]:
    """What the blocks do. waved: the nests that go in waves."""
    stages: list[list[list[Stage | Waves]]] = []
    for n, a in enumerate(chosen):
        if n in joints:
            stages.append(_joint_stages(n, joints[n], a.schedule))
        else:
            its_own = _stages(n, a.nest, a.schedule)
            stages.append(_in_waves(n, len(a.nest.sweeps), its_own) if n in waved else its_own)
    joined = frozenset(n + 1 for n in joints)
    return with_block_barriers(in_phases(kernel.nests, stages, sources_of(kernel), joined), tiled | waved, waved)


def _registers(chosen: Sequence[Alternative]) -> int:
    """What a thread may take, to begin with."""

    def held(a: Alternative) -> int:
        nest = a.joint.nest if a.joint else a.nest
        kept = len(tiles_in_place(nest)) + (len(a.joint.reductions) if a.joint else 0)
        loads = max(sum(isinstance(s, Load) for s in sweep.elements) for sweep in nest.sweeps)
        return a.schedule.vector * (kept * a.schedule.steps + loads)

    if len(chosen) > MANY_NESTS or any(held(a) > _MUCH for a in chosen):
        return _MANY_REGISTERS
    more = any(a.joint or (a.levels and a.schedule.vector > _OFTEN) for a in chosen)
    return _MORE_REGISTERS if more else _REGISTERS


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
    for part in in_order(parts):
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
    if any(v.variant.scratch != _ZERO or v.kernel.scratch for v in versions):  # of no elements, perhaps
        found.append((Parameter.SCRATCH, 0))
    if any(v.variant.resident for v in versions):
        found.append((Parameter.BARRIER, 0))
    return tuple(found + [(Parameter.SYMBOL, n) for n in range(len(kernel.symbols))])


# -- stages ----------------------------------------------------------------------------------------------------


def _stages(number: int, nest: Nest, s: GpuSchedule) -> list[list[Stage | Waves]]:
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


def _joint_stages(number: int, joint: Joint, s: GpuSchedule) -> list[list[Stage | Waves]]:
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


def _split_stages(number: int, nest: Nest, s: GpuSchedule, units: Formula) -> list[list[Stage | Waves]]:
    stages: list[list[Stage | Waves]] = []
    for sweep in range(len(nest.sweeps)):
        mine = _of(nest, sweep)
        needed = _read_in(nest, sweep)
        body: list[Step] = [*map(Combine, needed), *_of_pieces(s, needed), RunSweep(sweep)]
        body += [*map(Deposit, mine), *map(Collect, mine), *map(Publish, mine)]
        stages.append([Stage(number, units, tuple(body))])
    if nest.finish:
        needed = _read_in(nest, len(nest.sweeps))
        rows = groups(nest, s.lanes) if s.down else product(nest.outer)
        body = [*map(Combine, needed), *_of_pieces(s, needed), RunFinish()]
        finish = Stage(number, rows, tuple(body))
        if _of(nest, len(nest.sweeps) - 1):
            stages.append([finish])
        else:
            stages[-1].append(finish)
    return stages[1:] if s.joined else stages


def _in_waves(number: int, sweeps: int, stages: Sequence[Sequence[Stage | Waves]]) -> list[list[Stage | Waves]]:
    """The stages of a nest that is split, those with its sweeps in waves: they are the first of their phases."""
    parts: list[Stage | GridBarrier] = []
    for phase in stages[:sweeps]:
        assert isinstance(phase[0], Stage)
        parts += [*([GridBarrier()] if parts else []), phase[0]]
    last = [stage for phase in stages[:sweeps] for stage in phase[1:]]
    return [[Waves(number, tuple(parts)), *last], *map(list, stages[sweeps:])]


def _read_in(nest: Nest, sweep: int) -> list[int]:
    """The reductions whose results a sweep reads; `finish` comes after the last."""
    part = nest.sweeps[sweep].row + nest.sweeps[sweep].elements if sweep < len(nest.sweeps) else nest.finish
    return sorted({s.reduction for s in part if isinstance(s, Reduced)})
