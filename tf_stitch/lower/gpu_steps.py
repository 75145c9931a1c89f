"""What the blocks of a grid do one after another, and where they wait for each other. Data, and where barriers belong.

    LayerNorm, a block a row                    batch norm, a column in pieces

    Stage 0, for each row                       Stage 0, for each piece of each 32 columns
      RunSweep 0                                  RunSweep 0       a thread goes down some rows
      Deposit mean     a warp's sum to shared     Deposit sum
      BlockBarrier                                BlockBarrier
      Collect mean     all warps' sums            Collect sum      of the piece
      RunSweep 1                                  Publish sum      to scratch
      Deposit ...                               GridBarrier
                                                Stage 1, for each piece of each 32 columns
                                                  Combine sum      of all pieces, in order
                                                  ...

A value crosses threads in three ways: through shared memory (Deposit, Collect), through scratch from block to block
(Publish, Combine), and through buffers that one nest stores and a later one reads. Between the write and the read
there is a barrier: the block's for shared memory, the grid's for the others. So there is one between a read and the
next write to the same place. Shuffles within a warp (Fold) need none.

`with_block_barriers` finds where the block's belong; `lower.gpu_verify` finds where one is missing.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tf_stitch.lower.gpu_launch import Formula
from tf_stitch.lower.kernel import Nest
from tf_stitch.lower.nests import Memory, read_by, stored_by


@dataclass(frozen=True, slots=True)
class RunSweep:
    """The threads of a unit go over its elements."""

    sweep: int


@dataclass(frozen=True, slots=True)
class Fold:
    """The threads of a row combine what they accumulated: lanes of one warp."""

    reduction: int


@dataclass(frozen=True, slots=True)
class Deposit:
    """Each warp (down columns: each thread) leaves what it has accumulated in shared memory.

    totals: what it has of all pieces, instead.
    """

    reduction: int
    totals: bool = False


@dataclass(frozen=True, slots=True)
class Collect:
    """All threads combine what is in shared memory, in the same order. `totals`: of all pieces; else of one, or of all
    there is.
    """

    reduction: int
    totals: bool = False


@dataclass(frozen=True, slots=True)
class Keep:
    """One lane (down columns: one row of threads) adds the piece's result to what it keeps: its turn comes round."""

    reduction: int


@dataclass(frozen=True, slots=True)
class FoldKept:
    """The lanes of each warp combine what they keep of pieces."""

    reduction: int


@dataclass(frozen=True, slots=True)
class Publish:
    """The piece's result goes to scratch."""

    reduction: int


@dataclass(frozen=True, slots=True)
class Combine:
    """Each lane (down columns: each row of threads) adds up its turn of the published pieces, as Keep would have."""

    reduction: int


@dataclass(frozen=True, slots=True)
class RunFinish:
    """A row's scalars and stores after the last sweep, by one thread."""


@dataclass(frozen=True, slots=True)
class BlockBarrier:
    """All threads of the block wait for each other."""


@dataclass(frozen=True, slots=True)
class GridBarrier:
    """All blocks wait for each other."""


@dataclass(frozen=True, slots=True)
class EachPiece:
    """For each piece of the row, in order."""

    body: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class EachRow:
    """For each row of the unit, in order: of a nest that another one is joined with (`lower.gpu_joining`)."""

    body: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class PublishDown:
    """What the rows of the unit leave in each column goes to scratch: a reduction of the joint nest."""

    reduction: int


Step = (
    RunSweep
    | Fold
    | Deposit
    | Collect
    | Keep
    | FoldKept
    | Publish
    | PublishDown
    | Combine
    | RunFinish
    | BlockBarrier
    | EachPiece
    | EachRow
)


@dataclass(frozen=True)
class Stage:
    """A part of nest number `nest`, up to where blocks have to wait: its units go to the blocks of the grid in turn."""

    nest: int
    units: Formula
    body: tuple[Step, ...]


@dataclass(frozen=True)
class Waves:
    """Stages of nest number `nest` with the barriers of the grid between them, gone through for some of its rows, then
    for the next ones: as many at a time as the blocks of the grid keep on chip together (`lower.gpu_waves`).

    What a wave leaves in scratch has a place of its own: no barrier is needed between a wave and the next one.
    """

    nest: int
    parts: tuple[Stage | GridBarrier, ...]


Part = Stage | GridBarrier | Waves


def in_order(parts: Iterable[Part], times: int = 1) -> Iterator[Stage | GridBarrier]:
    """Stages and barriers one after another; those of waves as often as `times` says."""
    for part in parts:
        if isinstance(part, Waves):
            for _ in range(times):
                yield from part.parts
        else:
            yield part


def flat(body: Sequence[Step]) -> Iterator[Step]:
    """All steps, those of pieces included."""
    for step in body:
        yield step
        if isinstance(step, EachPiece | EachRow):
            yield from flat(step.body)


# -- what crosses threads --------------------------------------------------------------------------------------

Slot = tuple[int, int, bool]  # nest, reduction, totals


@dataclass
class SharedState:
    """What of shared memory was written, and read, since the last barrier of the block.

    tiled: nests whose tiles are in shared memory, all of them in the same place. A thread reads of a tile what it has
    written itself, but where it has, another thread's part of the next nest's tile may be.
    waved: nests that go in waves, where a reduction's totals are left in the slots of its parts: there is room for more
    tiles then.
    """

    tiled: frozenset[int]
    waved: Container[int] = ()
    written: set[Slot] = field(default_factory=set[Slot])
    read: set[Slot] = field(default_factory=set[Slot])
    tiles_of: set[int] = field(default_factory=set[int])  # nests that used theirs

    def conflict(self, nest: int, step: Step) -> bool:
        """Whether a barrier has to stand in front of this step."""
        match step:
            case Deposit():
                return self._slot(nest, step) in self.read
            case Collect():
                return self._slot(nest, step) in self.written
            case RunSweep() if nest in self.tiled:
                return bool(self.tiles_of - {nest})
            case _:
                return False

    def after(self, nest: int, step: Step) -> None:
        match step:
            case Deposit():
                self.written.add(self._slot(nest, step))
            case Collect():
                self.read.add(self._slot(nest, step))
            case RunSweep() if nest in self.tiled:
                self.tiles_of.add(nest)
            case BlockBarrier():
                self.wait()
            case _:
                pass

    def _slot(self, nest: int, step: Deposit | Collect) -> Slot:
        return nest, step.reduction, step.totals and nest not in self.waved

    def wait(self) -> None:
        self.written.clear()
        self.read.clear()
        self.tiles_of.clear()


def with_block_barriers(parts: Sequence[Part], tiled: frozenset[int], waved: Container[int] = ()) -> tuple[Part, ...]:
    """The parts with a barrier in front of each step that needs one. `tiled`, `waved`: see SharedState.

    A loop is gone through twice: its second time round begins where the first has ended.
    """
    state = SharedState(tiled, waved)

    def barred(part: Stage | GridBarrier) -> Stage | GridBarrier:
        if isinstance(part, GridBarrier):
            state.wait()
            return part
        return replace(part, body=_barred(part.nest, part.body, state))

    found: list[Part] = []
    for part in parts:
        if isinstance(part, Waves):
            for _ in range(2):
                part = replace(part, parts=tuple(map(barred, part.parts)))
            found.append(part)
        else:
            found.append(barred(part))
    return tuple(found)


def _barred(nest: int, body: tuple[Step, ...], state: SharedState) -> tuple[Step, ...]:
    for _ in range(2):
        found: list[Step] = []
        for step in body:
            if isinstance(step, EachPiece | EachRow):
                step = replace(step, body=_barred(nest, step.body, state))
            elif state.conflict(nest, step):
                found.append(BlockBarrier())
                state.wait()
            state.after(nest, step)
            found.append(step)
        body = tuple(found)
    return body


# -- stages in order -------------------------------------------------------------------------------------------


def in_phases(
    nests: Sequence[Nest],
    stages: Sequence[Sequence[Sequence[Stage | Waves]]],
    sources: Mapping[int, set[int]],
    joined: Container[int] = (),
) -> list[Part]:
    """All stages, each as early as it may run; a barrier of the grid between those that wait and those waited for.

    stages: of each nest; those that do not wait for each other together. A stage waits for the one before of its nest;
    the first for the last of every earlier nest that stores what this one reads, reads what it stores, or stores what
    it does. sources: `nests.sources_of`. joined: nests whose first sweep is part of the nest before.
    """
    phase_of: list[int] = []  # of each nest's last stage
    phases: list[list[Stage | Waves]] = []
    touched: list[tuple[set[Memory], set[Memory]]] = []
    for number, (nest, its_stages) in enumerate(zip(nests, stages, strict=True)):
        stores, reads = stored_by(nest, sources), read_by(nest)
        if number + 1 in joined:
            reads |= read_by(nests[number + 1])
        first = phase_of[-1] + 1 if number in joined else 0
        for (earlier_stores, earlier_reads), phase in zip(touched, phase_of, strict=True):
            if earlier_stores & reads or earlier_reads & stores:
                first = max(first, phase + 1)
        for offset, together in enumerate(its_stages):
            while len(phases) <= first + offset:
                phases.append([])
            phases[first + offset] += together
        phase_of.append(first + len(its_stages) - 1)
        touched.append((stores, reads))
    parts: list[Part] = []
    for position, phase in enumerate(phases):
        if position:
            parts.append(GridBarrier())
        parts += phase
    return parts
