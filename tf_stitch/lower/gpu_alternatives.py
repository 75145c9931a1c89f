"""How a nest may run on a GPU, best first: by its shape, and by what the target has room for. See `lower.gpu`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tf_stitch.ir.types import ONE, Dim, product
from tf_stitch.lower.gpu_cut import levels
from tf_stitch.lower.gpu_joining import Joint, joint
from tf_stitch.lower.gpu_keeping import keeping_loads
from tf_stitch.lower.gpu_launch import (
    Condition,
    Formula,
    Larger,
    ceil_div,
    times,
)
from tf_stitch.lower.gpu_recomputing import recomputed
from tf_stitch.lower.gpu_schedule import (
    THREADS,
    WIDEST,
    GpuSchedule,
    Home,
    Mapping,
    groups,
    rounded,
    tile_bytes,
)
from tf_stitch.lower.kernel import (
    Kernel,
    Load,
    Nest,
    Place,
    Store,
    runs_down,
)
from tf_stitch.lower.nests import crossed, longest, scattered, tiles_in_place
from tf_stitch.plan.gpu_target import WARP, GpuTarget

_ZERO = Dim(0)
_STEPS = 8  # of a loop that is unrolled
_TILE_REGISTERS = 64  # of a thread, for what is kept of a row
_MOST_PIECES = 1024  # of a row: 32 to each lane, when they are combined
_ROWS_OF_THREAD = 32  # down a column, of the shortest piece
_MOST_PIECES_DOWN = 128
_ROWS_OF_JOINT = 4  # of the shortest piece of rows that are joined with their columns
_MOST_JOINT_PIECES = 256
SHARED_RESERVE = 4096  # bytes: for what warps leave for each other


@dataclass(frozen=True)
class Alternative:
    """A nest and how it may run where the conditions hold. levels: of what its pieces keep (`gpu_cut`), if they do."""

    conditions: tuple[Condition, ...]
    nest: Nest
    schedule: GpuSchedule
    joint: Joint | None = None
    levels: tuple[Nest, ...] = ()


# -- alternatives ----------------------------------------------------------------------------------------------


def alternatives(nest: Nest, kernel: Kernel, target: GpuTarget) -> list[Alternative]:
    """How a nest may run, best first; the last may always."""
    if not nest.reductions:
        return _elements(nest)
    if not nest.tiles and runs_down(nest.outer, crossed(nest)):
        return _columns(nest, target)
    return _rows(nest, kernel, target)


def _elements(nest: Nest) -> list[Alternative]:
    length = nest.inner[-1]
    vector = _vector(nest)
    found = [Alternative((), nest, GpuSchedule(Mapping.ELEMENTS, vector))]
    if vector == 1 and not nest.outer and not length.is_static:
        widest = _vector(replace(nest, inner=(Dim(WIDEST) * length,)))
        if widest > 1:
            whole = Condition(rounded(length, widest), length)
            found.insert(0, Alternative((whole,), nest, GpuSchedule(Mapping.ELEMENTS, widest)))
    return found


def _rows(nest: Nest, kernel: Kernel, target: GpuTarget) -> list[Alternative]:
    kept, vector = keeping_loads(nest), _vector(nest)
    length, rows = product(nest.inner), product(nest.outer)
    places = tiles_in_place(kept)
    of_element = sum(2 if place[0].dtype.size == 8 else 1 for place in places)
    steps = max(1, min(_STEPS, _TILE_REGISTERS // (vector * max(of_element, 1))))
    most = longest(length, kernel)
    found: list[Alternative] = []
    for mapping, threads in ((Mapping.WARPS, WARP), (Mapping.BLOCKS, THREADS)):
        reach = threads * vector * steps
        lanes = _lanes(length, vector) if mapping is Mapping.WARPS else threads
        fitting = -(-length.coefficient // (lanes * vector)) if length.is_static else steps
        schedule = GpuSchedule(mapping, vector, lanes, max(1, fitting))
        if most is not None and most <= reach:
            return [*found, Alternative((), kept, schedule)]
        if not length.is_static:
            found.append(Alternative((Condition(length, Dim(reach)),), kept, schedule))
    unit = THREADS * vector
    piece = _piece(length, unit, unit * _STEPS, _MOST_PIECES)
    long = GpuSchedule(Mapping.SPLIT, vector, THREADS, 0, piece, Home.SCRATCH)
    few = Condition(times(rows, Dim(2)), Dim(target.multiprocessors))
    again = recomputed(nest, target)
    of_cut = levels(nest)
    in_pieces = Alternative((), again, long)
    if of_cut:
        in_pieces = Alternative((), of_cut[-1], replace(long, home=Home.SHARED), levels=of_cut)
    found += _where(few, in_pieces)
    limit = target.shared_bytes_of_block - SHARED_RESERVE
    in_block = replace(long, mapping=Mapping.BLOCKS, home=Home.SHARED)
    for tiled in (kept, *of_cut[:1]):
        if tiled.tiles:
            found += _where(Condition(tile_bytes(tiled), Dim(limit)), Alternative((), tiled, in_block))
    found.append(in_pieces if of_cut else Alternative((), again, replace(long, mapping=Mapping.BLOCKS)))
    return _until_sure(found)


def _where(condition: Condition, alternative: Alternative) -> list[Alternative]:
    """An alternative under a condition; under none where it is known to hold, and none where it is known not to."""
    small, large = condition.small, condition.large
    if isinstance(small, Dim) and isinstance(large, Dim) and small.is_static and large.is_static:
        return [alternative] if condition.holds({}) else []
    return [replace(alternative, conditions=(condition,))]


def _until_sure(found: list[Alternative]) -> list[Alternative]:
    sure = next(n for n, a in enumerate(found) if not a.conditions)
    return found[: sure + 1]


def _columns(nest: Nest, target: GpuTarget) -> list[Alternative]:
    columns, height = nest.outer[-1], product(nest.inner)
    lanes = _lanes(columns, 1)
    shortest = THREADS // lanes * _ROWS_OF_THREAD
    if height.is_static and height.coefficient <= shortest:
        return [Alternative((), nest, GpuSchedule(Mapping.COLUMNS, 1, lanes))]
    piece = _piece(height, THREADS // lanes, shortest, _MOST_PIECES_DOWN)
    split = GpuSchedule(Mapping.COLUMNS_SPLIT, 1, lanes, 0, piece)
    of_cut = levels(nest)
    if of_cut:
        return [Alternative((), of_cut[-1], replace(split, home=Home.SHARED), levels=of_cut)]
    many = Condition(Dim(2 * target.multiprocessors), groups(nest, lanes))
    found = _where(many, Alternative((), nest, replace(split, mapping=Mapping.COLUMNS)))
    return _until_sure([*found, Alternative((), nest, split)])


def join(kernel: Kernel, choices: list[list[Alternative]]) -> None:
    """Adds, in front of all others, that a nest and the one behind it are joined.

    It is where a thread has registers for its part of a row, and of the columns' sums.
    """
    for number in range(len(kernel.nests) - 1):
        rows, down = kernel.nests[number], kernel.nests[number + 1]
        by_rows = bool(rows.reductions) and not choices[number][-1].schedule.down
        found = joint(rows, down) if by_rows and choices[number + 1][-1].schedule.down else None
        if found is None:
            continue
        found = replace(found, nest=keeping_loads(found.nest))
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
        choices[number] = _until_sure([Alternative(conditions, rows, in_rows, found), *others])
        choices[number + 1] = _until_sure([Alternative(conditions, down, in_columns), *choices[number + 1]])


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
    found: list[Load | Store] = []
    for sweep in nest.sweeps:
        one_by_one = scattered(sweep)
        found += [s for s in sweep.elements if isinstance(s, Store)]
        found += [s for s in sweep.elements if isinstance(s, Load) and s.name not in one_by_one]
    found = [s for s in found if s.access.buffer.place is not Place.TILE]
    along = [s for s in found if s.access.strides[-1] == ONE]
    if not along or any(s.access.strides[-1] not in (ONE, _ZERO) for s in found):
        return 1
    vector = WIDEST // max(s.access.buffer.dtype.size for s in along)
    vector = min(vector, 8)
    while vector > 1 and not (
        nest.inner[-1].coefficient % vector == 0
        and all(step.coefficient % vector == 0 for s in along for step in steps_between(s))
    ):
        vector //= 2
    return vector


def steps_between(s: Load | Store) -> tuple[Dim, ...]:
    """What a thread's first element of a row is moved by: where all are multiples of a vector, so is where it is."""
    looked_up = [a.stride for a in s.at] if isinstance(s, Load) else []
    return (*s.access.strides[:-1], *s.access.offset, *looked_up)
