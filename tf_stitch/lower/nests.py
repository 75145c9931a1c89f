"""What schedules of every target ask about a nest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tf_stitch.ir.types import Dim
from tf_stitch.lower.kernel import (
    Access,
    Buffer,
    Compute,
    Coordinate,
    ExtentOf,
    Kernel,
    Literal,
    Load,
    Nest,
    Place,
    Statement,
    Store,
    Sweep,
    statements,
)

Memory = tuple[Place, int]  # that the tasks of a nest share


def row_invariant(nest: Nest) -> frozenset[str]:
    """The names of a nest's one sweep that are the same for each of its rows."""
    return invariant(nest.sweeps[0].row + nest.sweeps[0].elements, slice(len(nest.outer)))


def invariant(part: Sequence[Statement], axes: slice) -> frozenset[str]:
    """The names of some statements of a nest that are the same all along these axes of it."""
    found: set[str] = set()
    for s in part:
        match s:
            case Load(name, _, access, at) if all(stride == Dim(0) for stride in access.strides[axes]):
                if found.issuperset(a.value for a in at):
                    found.add(name)
            case Literal(name) | ExtentOf(name):
                found.add(name)
            case Coordinate(name, _, strides) if all(stride == Dim(0) for stride in strides[axes]):
                found.add(name)
            case Compute(name, _, _, operands) if found.issuperset(operands):
                found.add(name)
            case _:
                pass
    return frozenset(found)


def scattered(sweep: Sweep) -> frozenset[str]:
    """The names of loads whose index differs from element to element: what neighbours find need not be neighbours."""
    along = {s.name for s in sweep.elements if isinstance(s, Load) and s.access.strides[-1] != Dim(0)}
    return frozenset(s.name for s in sweep.elements if isinstance(s, Load) and any(a.value in along for a in s.at))


def crossed(nest: Nest) -> list[Access]:
    """The accesses of a nest; those of tables with the strides of their indices, along axes that have no other.

    table[index[r], c], summed over r: c steps by 1, r by a row of the table, wherever that is.
    """
    found: list[Access] = []
    for part in (*((*s.row, *s.elements) for s in nest.sweeps), nest.finish):
        indices = {s.name: s.access for s in part if isinstance(s, Load)}
        for s in part:
            if isinstance(s, Load | Store):
                strides = list(s.access.strides)
                for a in s.at if isinstance(s, Load) else ():
                    steps = [stride * a.stride for stride in indices[a.value].strides]
                    strides = [own if own != Dim(0) else step for own, step in zip(strides, steps, strict=True)]
                found.append(replace(s.access, strides=tuple(strides)))
    return found


def tiles_in_place(nest: Nest) -> list[list[Buffer]]:
    """Tiles that share memory, together: each takes an element's place once the one before is read for the last time.

    softmax      max of t       t -> tile
                 sum of e       tile -> exp(t - max) -> the same place of the same tile
                 e / sum        tile -> output
    """
    stores: dict[Buffer, tuple[int, int, Access]] = {}  # sweep, statement
    loads: dict[Buffer, tuple[int, int]] = {}
    for number, sweep in enumerate(nest.sweeps):
        for position, s in enumerate(sweep.elements):
            if isinstance(s, Store):
                stores[s.access.buffer] = number, position, s.access
            elif isinstance(s, Load):
                loads[s.access.buffer] = number, position

    def follows(tile: Buffer, before: Buffer) -> bool:
        *stored, access = stores[tile]
        other = stores[before][-1]
        return (
            (tile.dtype, tile.size) == (before.dtype, before.size)
            and (access.strides, access.offset) == (other.strides, other.offset)
            and loads.get(before, stores[before][:2]) < tuple(stored)
        )

    found: list[list[Buffer]] = []
    for tile in sorted(nest.tiles, key=lambda t: stores[t][:2]):
        place = next((place for place in found if follows(tile, place[-1])), None)
        if place is None:
            found.append([tile])
        else:
            place.append(tile)
    return found


def longest(extent: Dim, kernel: Kernel) -> int | None:
    """What an axis can be at most, if that is known."""
    if extent.is_static:
        return extent.coefficient
    bounds = [b.large.coefficient for b in kernel.bounds if b.small == extent and b.large.is_static]
    return min(bounds, default=None)


def sources_of(kernel: Kernel) -> dict[int, set[int]]:
    """The inputs whose memory each output may be computed into."""
    found: dict[int, set[int]] = {}
    for source, output in kernel.forwards:
        found.setdefault(output, set()).add(source)
    return found


def places_of(access: Access, sources: Mapping[int, set[int]]) -> tuple[Memory, ...]:
    """What a store touches: the inputs, too, whose memory that may be."""
    place, index = memory_of(access)
    inputs = sources.get(index, set[int]()) if place is Place.OUTPUT else set[int]()
    return (place, index), *((Place.INPUT, i) for i in inputs)


def stored_by(nest: Nest, sources: Mapping[int, set[int]]) -> set[Memory]:
    """What a nest writes to, with inputs whose memory that may be."""
    return {memory for s in accesses(nest) if isinstance(s, Store) for memory in places_of(s.access, sources)}


def read_by(nest: Nest) -> set[Memory]:
    loads = {memory_of(s.access) for s in accesses(nest) if isinstance(s, Load)}
    return loads | {memory_of(r.source) for r in nest.repeats}


def memory_of(access: Access) -> Memory:
    """What an access touches."""
    return access.buffer.place, access.buffer.index


def accesses(nest: Nest) -> list[Load | Store]:
    """Those of memory that tasks share."""
    found = [s for s in statements(nest) if isinstance(s, Load | Store)]
    return [s for s in found if s.access.buffer.place is not Place.TILE]
