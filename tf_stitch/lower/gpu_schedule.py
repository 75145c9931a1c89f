"""What a GPU schedule is: of a nest, of a kernel, and where what it needs lies in memory. `lower.gpu` makes them."""

from __future__ import annotations

import enum
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from tf_stitch.ir.types import Dim, product
from tf_stitch.lower.gpu_joining import Joint
from tf_stitch.lower.gpu_launch import (
    CeilDiv,
    Formula,
    Launch,
    Variant,
    ceil_div,
    times,
    total,
)
from tf_stitch.lower.gpu_steps import (
    Deposit,
    GridBarrier,
    Part,
    Stage,
    flat,
    in_order,
)
from tf_stitch.lower.gpu_waves import Kept
from tf_stitch.lower.kernel import (
    Buffer,
    Kernel,
    Nest,
    Reduction,
)
from tf_stitch.lower.nests import tiles_in_place
from tf_stitch.plan.gpu_target import WARP

_ZERO = Dim(0)
THREADS = 256  # of a block
WIDEST = 16  # bytes of one access of a thread


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
    wide: whether indices may pass 2^31. joints: by the number of the rows' nest. kept: what pieces keep in waves, by
    the number of their nest.
    """

    variant: Variant
    kernel: Kernel
    schedules: tuple[GpuSchedule, ...]
    parts: tuple[Part, ...]
    wide: bool
    joints: tuple[tuple[int, Joint], ...] = ()
    kept: tuple[tuple[int, Kept], ...] = ()

    def nest_of(self, stage: Stage) -> Nest:
        """The nest that the stage is a part of."""
        return self.whole(stage.nest)

    def whole(self, number: int) -> Nest:
        """A nest; where it is joined with the next one, the joint one."""
        joint = dict(self.joints).get(number)
        return joint.nest if joint else self.kernel.nests[number]


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


# -- memory ----------------------------------------------------------------------------------------------------


def slot_bytes(
    parts: Iterable[Part], nests: Sequence[Nest], schedules: Sequence[GpuSchedule], waved: Container[int]
) -> int:
    """Of shared memory that an entry declares: what threads leave for each other.

    nests: of each stage's number. waved: nests that go in waves, which have a place for each reduction; the stages of
    others have their own for its parts and for its totals.
    """
    found: dict[object, int] = {}
    for number, part in enumerate(in_order(parts)):
        if isinstance(part, GridBarrier):
            continue
        count = THREADS if schedules[part.nest].down else THREADS // WARP
        for step in flat(part.body):
            if isinstance(step, Deposit):
                bytes_ = nests[part.nest].reductions[step.reduction].dtype.size * count
                slot = (part.nest, step.reduction) if part.nest in waved else (number, step)
                found[slot] = -(-bytes_ // WIDEST) * WIDEST
    return sum(found.values())


def rounded(size: Formula, unit: int) -> Formula:
    return times(Dim(unit), ceil_div(size, unit))


def tile_bytes(nest: Nest) -> Formula:
    """Of shared memory that a nest's tiles take."""
    return total([rounded(times(place[0].size, Dim(place[0].dtype.size)), WIDEST) for place in tiles_in_place(nest)])


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
    return in_pieces(product(nest.inner), s.piece)


def in_pieces(length: Dim, piece: Formula) -> Formula:
    if isinstance(piece, Dim) and piece.is_static:
        return ceil_div(length, piece.coefficient)
    return CeilDiv(length, piece)


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
            return in_pieces(rows, s.piece)
        case Mapping.BLOCKS:
            return rows
        case Mapping.SPLIT:
            return times(rows, pieces(nest, s))
        case Mapping.COLUMNS:
            return groups(nest, s.lanes)
        case Mapping.COLUMNS_SPLIT:
            return times(groups(nest, s.lanes), pieces(nest, s))


def groups(nest: Nest, lanes: int) -> Formula:
    """Of columns that a warp has side by side."""
    return times(product(nest.outer[:-1]), ceil_div(nest.outer[-1], lanes))
