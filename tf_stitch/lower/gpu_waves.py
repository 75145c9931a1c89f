"""Rows in pieces that stay on chip while what the pieces leave crosses the grid: they come in waves.

A row that is cut in pieces is read once for each sweep, with a barrier of the grid between: its blocks go through all
rows before any of them comes back. Unless they go through as many rows only as all blocks together keep in shared
memory, all sweeps of those, and then the next ones.

    4 blocks, rows of 3 pieces, 2 rows to a wave          block 0    block 1    block 2    block 3

    wave 0    sweep 0: loaded, kept, summed               row 0, 0   row 0, 1   row 0, 2   row 1, 0    at = 0
                                                          row 1, 1   row 1, 2                          at = a piece
              barrier of the grid
              sweep 1: from what is kept                  the same pieces, so that a thread finds what it has kept
    wave 1    sweep 0: the next two rows, in the same place

A block keeps a prefix of its share of a wave, `at` being where in the share a piece begins: of each value of the cut
(`lower.gpu_cut`) as many elements as there is room for, of the first value first. So there are up to as many loops as
levels in each sweep, one behind the other, and a thread goes over the same elements in the same order whatever is kept:
the bits are the same.

    begin ............. ends[0] ............ ends[1] ................ end of the piece
         all is kept          some is kept           all is loaded again

How many rows a wave has follows from the shape and from the grid, when the kernel runs; one where the grid cannot keep
a whole one. Here that is computed for the cost; `render.cuda_waves` prints the same arithmetic.

A thread reads of a tile what it wrote itself, so tiles need no barrier.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tf_stitch.lower.kernel import Buffer, Nest
from tf_stitch.plan.gpu_target import GpuTarget

LEAST_ROOM = 8192  # bytes of a block; with less, waves would be all barriers
_IN_FLIGHT = 16  # bytes that a thread waits for at a time


@dataclass(frozen=True)
class Kept:
    """levels: the nest with all of its cut in tiles, with less of it, at last with none (`gpu_cut.levels`).

    room: bytes of a block's shared memory. width: elements side by side, of which tiles keep whole lines: 1 along rows,
    the lanes where a nest goes down columns. unit: how many elements, or lines, the threads of a block take in a step.
    """

    levels: tuple[Nest, ...]
    room: int
    width: int
    unit: int

    @property
    def tiles(self) -> tuple[Buffer, ...]:
        """Those kept first are the first."""
        return self.levels[0].tiles

    @property
    def whole(self) -> int:
        """Elements, or lines, of all tiles together that there is room for."""
        return self.fitting(self.room, sum(tile.dtype.size for tile in self.tiles))

    def fitting(self, room: int, size: int) -> int:
        """Elements, or lines, of values of `size` bytes in so many bytes: whole steps of the block."""
        return room // (size * self.width * self.unit) * self.unit

    def places(self, share: int) -> tuple[int, ...]:
        """How many elements, or lines, of a block's share there are of each tile. It never grows from tile to tile."""
        room, found = self.room, list[int]()
        for tile in self.tiles:
            found.append(min(share, self.fitting(room, tile.dtype.size)))
            room -= found[-1] * tile.dtype.size * self.width
        return tuple(found)


def blocks_of_waves(target: GpuTarget, threads: int, most: int) -> int:
    """For a multiprocessor: as few as keep memory busy (Little's law), since each has slots of its own; `most` at most.

    threads: of a block.
    """
    waiting = target.bytes_per_ns * target.latency_ns / target.multiprocessors
    return max(1, min(most, -(-int(waiting) // (threads * _IN_FLIGHT))))


@dataclass(frozen=True)
class Share:
    """What a grid makes of a nest's rows.

    rows: or groups of columns. pieces: of each; piece: elements, or lines, of a piece, the last of which may end at
    `length`. wave: pieces that are gone through together. places: of each tile, see Kept.
    """

    rows: int
    pieces: int
    piece: int
    length: int
    wave: int
    places: tuple[int, ...]
    grid: int

    @property
    def waves(self) -> int:
        return -(-self.rows * self.pieces // self.wave) if self.rows else 0

    @cached_property
    def parts(self) -> tuple[float, ...]:
        """The part of all elements that each level has."""
        counts = [0] * (len(self.places) + 1)
        units = self.rows * self.pieces
        for first in {0, (self.waves - 1) * self.wave} if units else ():
            times = self.waves - 1 if first == 0 and self.waves > 1 else 1
            for unit in range(first, min(first + self.wave, units)):
                begin, at = unit % self.pieces * self.piece, (unit - first) // self.grid * self.piece
                height = min(self.piece, self.length - begin)
                before = 0
                for level, places in enumerate(reversed(self.places)):
                    end = max(before, min(height, places - at))
                    counts[level] += (end - before) * times
                    before = end
                counts[-1] += (height - before) * times
        return tuple(count / max(1, sum(counts)) for count in counts)


def share_of(kept: Kept, rows: int, length: int, piece: int, grid: int) -> Share:
    """How a grid of so many blocks goes through rows, or groups of columns, of this length, in pieces of that one."""
    pieces = -(-length // piece)
    together = max(1, grid * kept.whole // max(1, pieces * piece))
    waves = max(1, -(-rows // together))
    wave = max(1, pieces * -(-rows // waves))
    share = -(-wave // grid) * piece
    return Share(rows, pieces, piece, length, wave, kept.places(share), grid)
