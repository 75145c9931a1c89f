"""What more than one sweep of a row loads is kept in a tile: registers or shared memory are nearer than memory.

    x -> sum(x), x -> (x - mean)^2, x -> y         x -> tile, sum(x)     tile -> (x - mean)^2     tile -> y

What is looked up in a table is kept like anything else, under the access of the table and those of its indices: names
may differ from sweep to sweep. Once it is, later sweeps need the indices no more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tf_stitch.ir.types import Dim, product
from tf_stitch.lower.kernel import (
    Access,
    Buffer,
    Load,
    Nest,
    Place,
    Statement,
    Store,
    Sweep,
    operands,
)
from tf_stitch.plan.pieces import memory_strides

_ZERO = Dim(0)
_Spot = tuple[Access, tuple[tuple[Access, Dim, Dim], ...]]  # of a table: with its indices, their strides and limits


def keeping_loads(nest: Nest) -> Nest:
    """The nest with a tile for each of a row's elements that more than one sweep loads from memory."""
    looked_up = _kept(nest, lambda s: bool(s.at))
    if looked_up is not nest:
        looked_up = replace(looked_up, sweeps=tuple(map(_without_unread, looked_up.sweeps)))
    return _kept(looked_up, lambda s: not s.at)


def _kept(nest: Nest, wanted: Callable[[Load], bool]) -> Nest:
    outer = len(nest.outer)
    one_row = not outer or product(nest.outer).is_one
    first: dict[_Spot, int] = {}
    again: dict[_Spot, Buffer] = {}
    for number, sweep in enumerate(nest.sweeps):
        for s, spot in _loads(sweep, wanted):
            # What is the same for all rows is in the cache.
            varies = one_row or any(d != _ZERO for a in _accesses(spot) for d in a.strides[:outer])
            if varies and first.setdefault(spot, number) < number and spot not in again:
                tile = Buffer(Place.TILE, len(nest.tiles) + len(again), f"{s.name}_tile", s.dtype, product(nest.inner))
                again[spot] = tile
    if not again:
        return nest
    strides = (_ZERO,) * outer + memory_strides(tuple(nest.inner))
    places = {spot: Access(tile, strides) for spot, tile in again.items()}

    def kept(number: int, sweep: Sweep) -> Sweep:
        spots = {s.name: spot for s, spot in _loads(sweep, wanted)}
        elements: list[Statement] = []
        stored: set[_Spot] = set()  # the same may be loaded twice, under two names
        for s in sweep.elements:
            spot = spots.get(s.name) if isinstance(s, Load) else None
            if spot is None or spot not in places or not isinstance(s, Load):
                elements.append(s)
            elif first[spot] != number:
                elements.append(Load(s.name, s.dtype, places[spot]))
            else:
                elements.append(s)
                if spot not in stored:
                    stored.add(spot)
                    elements.append(Store(places[spot], s.name, s.dtype))
        return replace(sweep, elements=tuple(elements))

    sweeps = tuple(kept(n, sweep) for n, sweep in enumerate(nest.sweeps))
    return replace(nest, sweeps=sweeps, tiles=(*nest.tiles, *again.values()))


def _loads(sweep: Sweep, wanted: Callable[[Load], bool]) -> list[tuple[Load, _Spot]]:
    """The loads from memory of a sweep's elements, each with what tells whether another one finds the same."""
    indices = {s.name: s.access for s in (*sweep.row, *sweep.elements) if isinstance(s, Load)}
    return [
        (s, (s.access, tuple((indices[a.value], a.stride, a.below) for a in s.at)))
        for s in sweep.elements
        if isinstance(s, Load) and s.access.buffer.place is not Place.TILE and wanted(s)
    ]


def _accesses(spot: _Spot) -> list[Access]:
    access, indices = spot
    return [access, *(index for index, _, _ in indices)]


def _without_unread(sweep: Sweep) -> Sweep:
    """The sweep without loads that nothing reads."""
    read = {name for s in (*sweep.row, *sweep.elements) for name in operands(s)}

    def needed(part: tuple[Statement, ...]) -> tuple[Statement, ...]:
        return tuple(s for s in part if not isinstance(s, Load) or s.name in read)

    return Sweep(needed(sweep.row), needed(sweep.elements))
