"""Waves as CUDA C++: pieces of some rows, all sweeps of them, from what is kept; then those of the next rows.

const i64 wave = ...;                                           units that all blocks together keep
for (i64 first = 0; first < units; first += wave) {
  {
    int kept_at = 0;                                            where this block's next piece is kept
    for (i64 unit = first + blockIdx.x; unit < last; unit += gridDim.x, kept_at += piece_length) {
      const int x_end = kept_end(begin, end, x_places - kept_at);   how much of it is
      f32* const x_tile = x_tiles0 + (kept_at - begin);
      for (n from begin to x_end) {...}                         a loop for each level
      for (n from x_end to end) {...}
    }
  }
  grid_barrier(...);
}

`lower.gpu_waves` says what it is for, and computes the same.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from tf_stitch.lower.gpu_schedule import WIDEST, GpuSchedule, tiles_name
from tf_stitch.lower.gpu_steps import Stage
from tf_stitch.lower.gpu_waves import Kept
from tf_stitch.lower.kernel import Buffer, Nest
from tf_stitch.render.c_family import STORAGE
from tf_stitch.render.cuda_nest import StagePrinter
from tf_stitch.render.cuda_statements import indented


class WavePrinter(StagePrinter):
    """Prints one stage of waves, and what all of them share."""

    def __init__(
        self, stage: Stage, nest: Nest, schedule: GpuSchedule, index: str, constant: frozenset[int], kept: Kept
    ) -> None:
        super().__init__(stage, nest, schedule, index, constant, waved=True)
        self.kept = kept

    def head(self) -> list[str]:
        """What is the same for all stages and waves: how many pieces a wave has, and where its tiles are."""
        units, lines = self._units()
        assert units == "units"
        kept, lanes = self.kept, f" * {self.kept.width}" if self.kept.width > 1 else ""
        lines = [
            f"{self._told()[:-1]}; of the rows that are on chip together: a wave.",
            *lines,
            f"const i64 rows = {self._groups() if self.down else self._rows};",
            f"const i64 waves = waves_of(rows, i64(pieces) * piece_length, gridDim.x * i64({kept.whole}));",
            "const i64 wave = (rows + waves - 1) / waves * pieces;",
            "const i64 share = (wave + gridDim.x - 1) / gridDim.x * piece_length;",
        ]
        room = str(kept.room)
        before: Buffer | None = None
        for tile in kept.tiles:
            places, step = f"{tile.name}_places", tile.dtype.size * kept.width * kept.unit
            fitting = f"({room}) / {step} * {kept.unit}" if before else str(kept.fitting(kept.room, tile.dtype.size))
            base = self._base(tile)
            type_ = STORAGE[tile.dtype]
            where = f"reinterpret_cast<{type_}*>(shared)"
            if before is not None:
                where = f"behind<{type_}, {WIDEST}>({self._base(before)}, {before.name}_places{lanes})"
            lines += [
                f"const {self.index} {places} = {self._cast(f'smaller(share, {fitting})')};",
                f"{type_}* const {base} = {where};",
            ]
            room += f" - {places} * {tile.dtype.size * kept.width}"
            before = tile
        return lines

    def wave(self) -> list[str]:
        """The stage, for the units of a wave."""
        loop = "for (i64 unit = first + blockIdx.x; unit < last; unit += gridDim.x, kept_at += piece_length) {"
        return ["{", *indented([f"{self.index} kept_at = 0;", loop, *self._unit(), "}"]), "}"]

    def _unit(self) -> list[str]:
        """Without tiles that this stage goes past: every stage goes in steps of the same pieces."""
        lines = super()._unit()
        words = Counter(word for line in lines for word in re.findall(r"\w+", line))
        unused = [self._pointer(tile) for tile in self.kept.tiles if words[tile.name] == 1]
        return [line for line in lines if not line.lstrip().startswith(tuple(unused))] if unused else lines

    def _pointer(self, tile: Buffer) -> str:
        return f"{STORAGE[tile.dtype]}* const {tile.name} ="

    def _base(self, tile: Buffer) -> str:
        return tiles_name(self.stage.nest, tile)

    def _tiles(self) -> list[str]:
        """How far each tile goes in the piece, and where an element of it would be that has the number 0."""
        lines: list[str] = []
        width = f" * {self.kept.width} + lane" if self.kept.width > 1 else ""
        for tile in self.kept.tiles:
            lines += [
                f"const {self.index} {self._end(tile)} = kept_end(begin, end, {tile.name}_places - kept_at);",
                f"{self._pointer(tile)} {self._base(tile)} + (kept_at - begin){width};",
            ]
        return lines

    def _end(self, tile: Buffer) -> str:
        return f"{tile.name}_end"

    def _elements_of(self, number: int, in_piece: bool) -> list[str]:
        """A loop for each level, one behind the other; for those that do the same in this sweep one for all."""
        linear = f"n * {self.kept.width}" if self.kept.width > 1 else "n"
        ends = [*map(self._end, reversed(self.kept.tiles)), "end"]
        lines: list[str] = []
        first = "begin"
        for level, (nest, last) in enumerate(zip(self.kept.levels, ends, strict=True)):
            elements = nest.sweeps[number].elements
            if last != "end" and elements == self.kept.levels[level + 1].sweeps[number].elements:
                continue
            lines += self._along(self._element(elements, linear), in_piece, first, last)
            first = last
        return lines


def waves_of(parts: Sequence[WavePrinter | str]) -> list[str]:
    """The loop over waves. parts: its stages, and the lines between them."""
    head = next(part for part in parts if isinstance(part, WavePrinter)).head()
    body = [line for part in parts for line in ([part] if isinstance(part, str) else part.wave())]
    return [
        *head,
        "for (i64 first = 0; first < units; first += wave) {",
        "  const i64 last = first + wave < units ? first + wave : units;",
        *indented(body),
        "}",
    ]
