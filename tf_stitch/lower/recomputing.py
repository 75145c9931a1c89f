"""A tile's value computed again, where it is read: what tiles cost is each target's to weigh.

A name means the same value in all sweeps, so that a value is computed again by the statements that it was computed by,
and has the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tf_stitch.lower.kernel import (
    Accumulate,
    Buffer,
    Compute,
    Coordinate,
    ExtentOf,
    Literal,
    Load,
    Nest,
    Reduced,
    Statement,
    Store,
    Sweep,
    operands,
)


def without_tile(nest: Nest, tile: Buffer) -> Nest:
    """The nest with the tile's value computed in each sweep that reads it."""
    elements = {s.name: s for s in _named(nest, in_rows=False) if not _is_load(s, tile)}
    rows = {s.name: s for s in _named(nest, in_rows=True)}
    sweeps = tuple(_expanded(sweep, tile, elements, rows) for sweep in nest.sweeps)
    return replace(nest, sweeps=sweeps, tiles=tuple(t for t in nest.tiles if t != tile))


_Named = Load | Literal | ExtentOf | Coordinate | Compute | Reduced
_Definitions = Mapping[str, _Named]


def _named(nest: Nest, *, in_rows: bool) -> Iterator[_Named]:
    """The statements that define a name, the last sweep's first: so a dict has the first of each name."""
    for sweep in reversed(nest.sweeps):
        for s in sweep.row if in_rows else sweep.elements:
            if not isinstance(s, Store | Accumulate):
                yield s


def _is_load(s: Statement, tile: Buffer) -> bool:
    return isinstance(s, Load) and s.access.buffer == tile


def _expanded(sweep: Sweep, tile: Buffer, elements: _Definitions, rows: _Definitions) -> Sweep:
    row = {s.name: s for s in sweep.row if not isinstance(s, Store | Accumulate)}
    found: list[Statement] = []
    there: set[str] = set()

    def need(name: str) -> None:
        """What `name` is computed by, before what reads it."""
        if name in there or name in row:
            return
        s = elements.get(name)
        if s is None:
            for operand in operands(rows[name]):
                need(operand)
            row[name] = rows[name]
            return
        there.add(name)
        for operand in operands(s):
            need(operand)
        found.append(s)

    for s in sweep.elements:
        if isinstance(s, Store) and s.access.buffer == tile:
            continue
        if isinstance(s, Store | Accumulate):
            found.append(s)
        elif isinstance(s, Load) and s.access.buffer == tile:
            need(s.name)
        elif s.name not in there:
            there.add(s.name)
            found.append(s)
    return Sweep(tuple(row.values()), tuple(found))
