"""The invariants of schedules for a GPU, checked in tests and at debug level. A failure is a bug of ours.

  - the kernel of each version is a kernel (`lower.verify`), and its nests' sweeps run once each, in order;
  - a value that crosses threads has a barrier between the write and each read, and between each read and the next
    write: the block's in shared memory; the grid's in scratch, and for what one nest stores and another one touches;
  - what a reduction leaves is combined before it is read, by all threads of the row;
  - shared memory is within what a block of the target may have;
  - where pieces keep values in waves, the levels of a nest do the same, and what is kept fits and is found again;
  - where blocks wait for each other, a multiprocessor holds as many as the version says;
  - a thread's vectors are at multiples of their size, and whole;
  - for every shape there is a version: the last has no conditions.

Loops are gone through twice, as the second time round meets what the first has left.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace

from tf_stitch.ir.types import ONE, Dim, product
from tf_stitch.lower.gpu_alternatives import steps_between
from tf_stitch.lower.gpu_launch import Condition, evaluate
from tf_stitch.lower.gpu_schedule import THREADS, WIDEST, GpuSchedule, GpuSchedules, Home, Mapping, Version, slot_bytes
from tf_stitch.lower.gpu_steps import (
    BlockBarrier,
    Collect,
    Combine,
    Deposit,
    EachPiece,
    EachRow,
    Fold,
    FoldKept,
    GridBarrier,
    Keep,
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
from tf_stitch.lower.gpu_waves import Kept
from tf_stitch.lower.kernel import Accumulate, Load, Nest, Place, Reduced, Statement, Store, Sweep
from tf_stitch.lower.nests import Memory, read_by, scattered, sources_of, stored_by
from tf_stitch.lower.verify import verify_kernel
from tf_stitch.plan.gpu_target import WARP, GpuTarget
from tf_stitch.plan.verify import check, naming, sampled_symbols

_STATIC_SHARED = 48 * 1024  # bytes that a block may declare


def verify_gpu(schedules: GpuSchedules, target: GpuTarget) -> None:
    """Checks every invariant that the module lists.

    Raises:
      BrokenInvariant: naming the version, the nest and the rule.
    """
    check(bool(schedules.versions), "there is a version")
    check(not schedules.versions[-1].variant.conditions, "the last version has no conditions")
    variants = tuple(v.variant for v in schedules.versions)
    check(variants == schedules.launch.variants, "the launch is that of the versions")
    check(len({v.entry for v in variants}) == len(variants), "each version has an entry of its own")
    for version in schedules.versions:
        with naming(version.variant.entry):
            verify_kernel(version.kernel)
            for number, schedule in enumerate(version.schedules):
                with naming(f"nest {number}"):
                    whole = version.whole(number)
                    _verify_schedule(whole, schedule)
                    _verify_steps(whole, schedule, [p for p in in_order(version.parts) if _is_of(p, number)])
            for number, kept in version.kept:
                with naming(f"nest {number}"):
                    _verify_kept(number, kept, version)
            _verify_shared(version)
            _verify_grid(version)
            _verify_limits(version, target)


def _is_of(part: Stage | GridBarrier, nest: int) -> bool:
    return isinstance(part, Stage) and part.nest == nest


# -- schedules -------------------------------------------------------------------------------------------------


def _verify_schedule(nest: Nest, s: GpuSchedule) -> None:
    power = s.lanes & (s.lanes - 1) == 0 < s.lanes
    check(power and s.vector & (s.vector - 1) == 0 < s.vector, f"{s}: lanes and vectors are powers of two")
    check((s.mapping is Mapping.ELEMENTS) == (not nest.reductions), f"{s}: what reduces goes by rows or columns")
    in_warp = s.mapping is Mapping.WARPS or s.down
    check(s.lanes <= WARP if in_warp else s.lanes == THREADS, f"{s}: lanes are those of a warp, or of the block")
    check(not s.split or s.piece is not None, f"{s}: what is split has pieces")
    check(not s.down or (s.vector == 1 and not nest.tiles), f"{s}: down columns there are no tiles and no vectors")
    check(s.home is not Home.REGISTERS or not nest.tiles or s.steps > 0, f"{s}: registers are counted by the compiler")
    if s.home is Home.REGISTERS and nest.tiles:
        check(not s.split and (s.piece is None or s.joined), f"{s}: registers are a thread's, for one row")
    if s.steps and product(nest.inner).is_static:
        reach = s.steps * s.lanes * s.vector
        check(reach >= product(nest.inner).coefficient, f"{s}: the steps reach the end of the row")
    if s.piece is not None and not s.down and not s.joined:
        unit = s.lanes * s.vector
        for symbols in sampled_symbols(sorted({x for d in nest.inner for x in d.symbols})):
            whole = evaluate(s.piece, symbols) % unit == 0
            check(whole, f"{s}: in each sweep a thread comes back to its own elements, so a piece is whole steps")
    if s.vector == 1:
        return
    tail = s.mapping is Mapping.ELEMENTS and not nest.outer  # a condition of the version says that there is none
    check(tail or nest.inner[-1].coefficient % s.vector == 0, f"{s}: a row is a number of vectors")
    for sweep in nest.sweeps:
        one_by_one = scattered(sweep)
        for e in sweep.elements:
            if not isinstance(e, Load | Store) or (isinstance(e, Load) and e.name in one_by_one):
                continue
            if e.access.strides[-1] == ONE and e.access.buffer.place is not Place.TILE:
                whole = all(d.coefficient % s.vector == 0 for d in steps_between(e))
                check(whole, f"{s}, {e}: a vector at a multiple of its size")


def _verify_steps(nest: Nest, s: GpuSchedule, stages: Sequence[Stage | GridBarrier]) -> None:
    """Sweeps in order, and their reductions combined before they are read."""
    found = [step for stage in stages if isinstance(stage, Stage) for step in flat(stage.body)]
    sweeps = [step.sweep for step in found if isinstance(step, RunSweep)]
    first = int(s.joined and s.down)  # the nest before has done it
    check(sweeps == list(range(first, len(nest.sweeps))), f"sweeps run once each, in order, and not {sweeps}")
    check(bool(nest.finish) == any(isinstance(step, RunFinish) for step in found), "what is left to finish is finished")
    for stage in stages:
        assert isinstance(stage, Stage)
        known: set[int] = set()  # reductions whose results this stage's threads have
        _verify_known(nest, s, stage.body, known, in_piece=False)


def _verify_known(nest: Nest, s: GpuSchedule, body: Sequence[Step], known: set[int], *, in_piece: bool) -> None:
    parts: set[int] = set()  # accumulated by threads
    kept: set[int] = set()
    for step in body:
        match step:
            case RunSweep(number):
                part = nest.sweeps[number].row + nest.sweeps[number].elements
                needed = {e.reduction for e in part if isinstance(e, Reduced)}
                check(needed <= known, f"sweep {number} reads reductions {needed - known}, which are not combined")
                parts |= {n for n, r in enumerate(nest.reductions) if r.sweep == number}
            case RunFinish():
                needed = {e.reduction for e in nest.finish if isinstance(e, Reduced)}
                check(needed <= known, f"finish reads reductions {needed - known}, which are not combined")
            case Fold(number):
                check(number in parts and s.mapping is Mapping.WARPS, f"{step}: lanes of a row are in one warp")
                known.add(number)
            case Deposit(number, totals):
                check(number in (kept if totals else parts), f"{step}: there is something to leave")
            case Collect(number, totals):
                if totals or not (in_piece or s.split):
                    known.add(number)
            case EachPiece(inner):
                _verify_known(nest, s, inner, known, in_piece=True)
                kept |= {e.reduction for e in inner if isinstance(e, Keep)}
            case EachRow(inner):
                _verify_known(nest, s, inner, known, in_piece=False)
                parts |= {n for n, r in enumerate(nest.reductions) if r.sweep == len(nest.sweeps) - 1}
            case PublishDown(number):
                check(number in parts and s.joined, f"{step}: there is something to leave")
            case Combine(number):
                kept.add(number)
            case FoldKept(number):
                check(number in kept and not s.down, f"{step}: lanes keep pieces")
                known.add(number)
            case Keep() | Publish() | BlockBarrier():
                pass


# -- waves -----------------------------------------------------------------------------------------------------


def _verify_kept(number: int, kept: Kept, version: Version) -> None:
    """Levels do the same, and what a thread keeps it finds again."""
    s, nest, whole = version.schedules[number], version.kernel.nests[number], kept.levels[0]
    waves = [p for p in version.parts if isinstance(p, Waves) and p.nest == number]
    check(len(waves) == 1 and s.split, f"{s}: pieces that keep something go in waves")
    stages = [p for p in waves[0].parts if isinstance(p, Stage)]
    check({p.nest for p in stages} == {number}, "while a nest's pieces are kept, no other nest is at work")
    check([p.units for p in stages] == [stages[0].units] * len(stages), "all sweeps of a wave have the same pieces")
    check(kept.levels[-1] == nest and not nest.tiles, "at last nothing is kept")
    check(s.home is Home.SHARED, f"{s}: what is kept is in shared memory")
    for level, other in enumerate(kept.levels):
        with naming(f"level {level}"):
            check(other.tiles == whole.tiles[: len(whole.tiles) - level], "each level keeps a tile less")
            for sweep, its_sweep in zip(nest.sweeps, other.sweeps, strict=True):
                check(_effects(sweep) == _effects(its_sweep), "levels accumulate and store the same")
            verify_kernel(replace(version.kernel, nests=_with(version.kernel.nests, number, other)))
    unit = (THREADS // s.lanes, s.lanes) if s.down else (s.lanes * s.vector, 1)
    check((kept.unit, kept.width) == unit, f"{s}: tiles end where all threads of the block have made a step")
    for share in (0, kept.unit, 7 * kept.unit, 2**31):
        places = kept.places(share)
        check(sorted(places, reverse=True) == list(places), "of a later tile no more is kept")
        check(all(p % kept.unit == 0 for p in places), "whole steps are kept")
        bytes_ = sum(
            -(-p * kept.width * t.dtype.size // WIDEST) * WIDEST for p, t in zip(places, whole.tiles, strict=True)
        )
        least = {source.symbol: 0 for source in version.kernel.symbols}  # what another nest keeps of a row comes on top
    check(Condition(Dim(bytes_), version.variant.shared).holds(least), f"{bytes_} bytes are kept, more than there are")


def _with(nests: tuple[Nest, ...], number: int, nest: Nest) -> tuple[Nest, ...]:
    return (*nests[:number], nest, *nests[number + 1 :])


def _effects(sweep: Sweep) -> list[Statement]:
    """What a sweep leaves but for tiles."""
    stores = [s for s in sweep.elements if isinstance(s, Store) and s.access.buffer.place is not Place.TILE]
    return [*sweep.row, *(s for s in sweep.elements if isinstance(s, Accumulate)), *stores]


# -- barriers --------------------------------------------------------------------------------------------------


@dataclass
class _Shared:
    """Shared memory since the last barrier of the block: who may still be writing, or reading, what."""

    written: set[tuple[int, int, bool]] = field(default_factory=set[tuple[int, int, bool]])
    read: set[tuple[int, int, bool]] = field(default_factory=set[tuple[int, int, bool]])
    tiles: set[int] = field(default_factory=set[int])


def _verify_shared(version: Version) -> None:
    state = _Shared()
    tiled = {
        n
        for n, (nest, s) in enumerate(zip(version.kernel.nests, version.schedules, strict=True))
        if nest.tiles and s.home is Home.SHARED
    } | dict(version.kept).keys()
    for part in in_order(version.parts, 2):
        if isinstance(part, GridBarrier):
            state = _Shared()
            continue
        for _ in range(2):
            _walk_shared(part.nest, part.body, state, tiled, dict(version.kept))


def _walk_shared(nest: int, body: Sequence[Step], state: _Shared, tiled: set[int], waved: Container[int]) -> None:
    for step in body:
        match step:
            case Deposit(reduction, totals):
                slot = (nest, reduction, totals and nest not in waved)
                check(slot not in state.read, f"nest {nest}: a barrier between a read of {slot} and {step}")
                state.written.add(slot)
            case Collect(reduction, totals):
                slot = (nest, reduction, totals and nest not in waved)
                check(slot not in state.written, f"nest {nest}: a barrier between a write of {slot} and {step}")
                state.read.add(slot)
            case BlockBarrier():
                state.written.clear()
                state.read.clear()
                state.tiles.clear()
            case EachPiece(inner) | EachRow(inner):
                for _ in range(2):
                    _walk_shared(nest, inner, state, tiled, waved)
            case RunSweep() if nest in tiled:
                check(state.tiles <= {nest}, f"nest {nest}: a barrier between another nest's tiles and {step}")
                state.tiles.add(nest)
            case _:
                pass


def _verify_grid(version: Version) -> None:
    """What blocks leave for each other, since the last barrier of the grid."""
    sources = sources_of(version.kernel)
    stored: dict[Memory, set[int]] = {}  # by which nests
    read: dict[Memory, set[int]] = {}
    published: set[tuple[int, int]] = set()
    done: set[int] = set()  # nests that ran before, wholly or in part: theirs is the order that the kernel gives
    for part in in_order(version.parts, 2):
        if isinstance(part, GridBarrier):
            stored, read, published = {}, {}, set()
            continue
        number = part.nest
        nest = version.nest_of(part)
        for memory in read_by(nest):
            others = stored.get(memory, set()) - {number}
            check(not others, f"nest {number}: a barrier of the grid behind nests {others}, which store {memory}")
            read.setdefault(memory, set()).add(number)
        for memory in stored_by(nest, sources):
            others = read.get(memory, set()) - {number}
            check(not others, f"nest {number}: a barrier of the grid behind nests {others}, which read {memory}")
            stored.setdefault(memory, set()).add(number)
        for step in flat(part.body):
            match step:
                case Publish(reduction):
                    published.add((number, reduction))
                case PublishDown(reduction):
                    published.add((number + 1, reduction - dict(version.joints)[number].first))
                case Combine(reduction):
                    waits = (number, reduction) in published
                    check(not waits, f"nest {number}: a barrier of the grid between Publish and {step}")
                case _:
                    pass
        _verify_sources(number, version, done)
        done.add(number)


def _verify_sources(number: int, version: Version, done: set[int]) -> None:
    """What a nest reads of other nests is stored by then."""
    mine = read_by(version.kernel.nests[number])
    for earlier in range(number):
        memory = stored_by(version.kernel.nests[earlier], {}) & mine
        check(earlier in done or not memory, f"nest {number} reads {memory}, which nest {earlier} has not stored yet")


# -- limits ----------------------------------------------------------------------------------------------------


def _verify_limits(version: Version, target: GpuTarget) -> None:
    variant = version.variant
    waits = any(isinstance(p, GridBarrier) for p in in_order(version.parts))
    check(variant.resident == waits, "blocks that wait for each other are on the GPU together")
    nests = [version.whole(n) for n in range(len(version.kernel.nests))]
    static = slot_bytes(version.parts, nests, version.schedules, dict(version.kept))
    check(static <= _STATIC_SHARED, f"{static} bytes of shared memory are declared")
    held = target.blocks_together(variant.threads, target.registers_for(variant.threads, variant.blocks), static)
    check(held >= variant.blocks > 0, f"a multiprocessor holds {held} blocks, and not {variant.blocks}")
    if variant.shared == Dim(0):
        return
    for symbols in sampled_symbols([s.symbol for s in version.kernel.symbols], version.kernel.derivations):
        if all(c.holds(symbols) for c in variant.conditions):
            bytes_ = static + evaluate(variant.shared, symbols)
            check(target.blocks_together(variant.threads, 32, bytes_) >= variant.blocks, f"{bytes_} bytes are too many")
