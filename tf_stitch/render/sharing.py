"""Nests that differ in nothing but where their memory is, and how long it is, are printed once.

    60 variables, updated alike          sweep_0, blocks_0, launch_0           one function for the nests of one form
                                         Call0 call_0 = {w0, g0, ..., 4096}    what it works on: a struct for each nest
                                         Call0 call_1 = {w1, g1, ..., 768}

The *form* of a nest is the nest with names, buffers and symbols numbered in the order in which they are met. Where
nests of one axis differ in its length alone, the length becomes a field: a multiple of the vector loop, if theirs are.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tf_stitch.ir.types import ONE, Dim
from tf_stitch.lower.kernel import (
    Access,
    Accumulate,
    Buffer,
    Compute,
    Coordinate,
    ExtentOf,
    Literal,
    Load,
    LookUp,
    Nest,
    Place,
    Reduced,
    Statement,
    Store,
    Sweep,
)

_LENGTH = "length"  # no symbol of a graph: those end in a digit


@dataclass(frozen=True)
class Form:
    """A nest as it is printed, and what it needs to be given: a pointer for each buffer, a number for each symbol."""

    nest: Nest
    buffers: tuple[Buffer, ...]
    symbols: tuple[str, ...]


@dataclass(frozen=True)
class Use:
    """How one nest uses a form: its own buffers and dims, in the order of the form's.

    offsets: of each buffer, where in it the pointer points: at a piece of it, or at its beginning.
    """

    form: int
    buffers: tuple[Buffer, ...]
    offsets: tuple[tuple[Dim, ...], ...]
    dims: tuple[Dim, ...]


def forms_of(
    nests: Sequence[Nest],
    schedules: Sequence[Hashable],
    units: Sequence[int],
    apart: frozenset[int] = frozenset(),
) -> tuple[list[Form], list[Use]]:
    """The forms of a kernel's nests, numbered after the first nest of each, and for each nest its use of one.

    schedules: what else has to be the same. units: where a nest's length may become a field, what it is a multiple of;
    0 where it may not. apart: nests that share with none.
    """
    pointed = [_pointed(nest) for nest in nests]
    nests = [nest for nest, _ in pointed]
    exact = [_numbered(nest) for nest in nests]
    opened = [_with_open_length(nest, unit) for nest, unit in zip(nests, units, strict=True)]
    open_ = [_numbered(nest) for nest in opened]
    lengths: dict[tuple[Nest, Hashable], set[Nest]] = {}
    for number, (mine, general) in enumerate(zip(exact, open_, strict=True)):
        if number not in apart:
            lengths.setdefault((general.form, schedules[number]), set()).add(mine.form)
    forms: list[Form] = []
    uses: list[Use] = []
    known: dict[tuple[Nest, Hashable], int] = {}
    for number, nest in enumerate(nests):
        found = exact[number]
        key = found.form, schedules[number]
        if len(lengths.get((open_[number].form, schedules[number]), ())) > 1:
            found = open_[number]
            key = found.form, schedules[number]
            nest = opened[number]
        if number in apart or key not in known:
            known[key] = len(forms)
            forms.append(Form(nest, tuple(found.buffers), tuple(found.symbols)))
        accesses = [pointed[number][1].get(b) or Access(b, ()) for b in found.buffers]
        buffers, offsets = tuple(a.buffer for a in accesses), tuple(a.offset for a in accesses)
        uses.append(Use(known[key], buffers, offsets, _dims(found, nests[number])))
    return forms, uses


def _pointed(nest: Nest) -> tuple[Nest, dict[Buffer, Access]]:
    """The nest with each piece that it stores as a buffer of its own, and where that is.

    So the nests that make the pieces of a concatenation, alike but for where these are, are of one form.
    """
    found: dict[Buffer, Access] = {}

    def pointed(s: Statement) -> Statement:
        if not isinstance(s, Store) or not s.access.offset:
            return s
        at = replace(s.access, strides=())
        names = {access: buffer for buffer, access in found.items()}
        piece = names.get(at) or replace(at.buffer, name=f"{at.buffer.name}_piece{len(found)}")
        found[piece] = at
        return replace(s, access=Access(piece, s.access.strides))

    def statements(part: Sequence[Statement]) -> tuple[Statement, ...]:
        return tuple(map(pointed, part))

    sweeps = tuple(Sweep(statements(sweep.row), statements(sweep.elements)) for sweep in nest.sweeps)
    return replace(nest, sweeps=sweeps, finish=statements(nest.finish)), found


def _dims(found: _Numbering, nest: Nest) -> tuple[Dim, ...]:
    """The value of each symbol in this nest."""
    whole, open_ = nest.inner[-1], found.inner[-1]
    return tuple(
        Dim(whole.coefficient // open_.coefficient) if name == _LENGTH else Dim.symbol(name) for name in found.symbols
    )


def _with_open_length(nest: Nest, unit: int) -> Nest:
    """A nest of one known length as one of any; the nest itself where the length is more than a number to it."""
    if not unit or nest.outer or len(nest.inner) != 1 or nest.repeats or nest.tiles:
        return nest
    length = nest.inner[0]
    if not length.is_static or length.is_one:
        return nest
    return replace(nest, inner=(Dim(unit, (_LENGTH,)),))


@dataclass
class _Numbering:
    """A nest with everything that has a name numbered; `buffers` and `symbols` are the names' owners, in order."""

    inner: tuple[Dim, ...]
    form: Nest = field(init=False)
    buffers: list[Buffer] = field(default_factory=list[Buffer])
    symbols: list[str] = field(default_factory=list[str])

    def dim(self, dim: Dim) -> Dim:
        for symbol in dim.symbols:
            if symbol not in self.symbols:
                self.symbols.append(symbol)
        return Dim(dim.coefficient, tuple(sorted(f"s{self.symbols.index(s)}" for s in dim.symbols)))

    def access(self, access: Access, tiles: Mapping[Buffer, Buffer]) -> Access:
        buffer = tiles.get(access.buffer) or self.buffer(access.buffer)
        return Access(buffer, tuple(map(self.dim, access.strides)), tuple(map(self.dim, access.offset)))

    def buffer(self, buffer: Buffer) -> Buffer:
        if buffer not in self.buffers:
            self.buffers.append(buffer)
        place = Place.INPUT if buffer.place is Place.INPUT else Place.OUTPUT
        return Buffer(place, self.buffers.index(buffer), "", buffer.dtype, ONE)


def _numbered(nest: Nest) -> _Numbering:
    found = _Numbering(nest.inner)
    names: dict[str, str] = {}
    outer, inner = tuple(map(found.dim, nest.outer)), tuple(map(found.dim, nest.inner))
    tiles = {
        tile: replace(tile, index=number, name="", size=found.dim(tile.size))
        for number, tile in enumerate([*nest.tiles, *(r.tile for r in nest.repeats)])
    }

    def name(of: str) -> str:
        return names.setdefault(of, f"v{len(names)}")

    def statement(s: Statement) -> Statement:
        match s:
            case Load(of, dtype, access, at):
                looked_up = tuple(LookUp(name(a.value), found.dim(a.stride), found.dim(a.below)) for a in at)
                return Load(name(of), dtype, found.access(access, tiles), looked_up)
            case Store(access, value, dtype):
                return Store(found.access(access, tiles), name(value), dtype)
            case Compute(of, dtype, function, operands):
                return Compute(name(of), dtype, function, tuple(map(name, operands)))
            case ExtentOf(of, dtype, dim):
                return ExtentOf(name(of), dtype, found.dim(dim))
            case Coordinate(of, dtype, strides, offset):
                return Coordinate(name(of), dtype, tuple(map(found.dim, strides)), tuple(map(found.dim, offset)))
            case Accumulate(reduction, value):
                return Accumulate(reduction, name(value))
            case Literal() | Reduced():
                return replace(s, name=name(s.name))

    def statements(part: Sequence[Statement]) -> tuple[Statement, ...]:
        return tuple(map(statement, part))

    sweeps: list[Sweep] = []
    for sweep in nest.sweeps:
        names.clear()
        sweeps.append(Sweep(statements(sweep.row), statements(sweep.elements)))
    names.clear()
    found.form = replace(
        nest,
        outer=outer,
        inner=inner,
        sweeps=tuple(sweeps),
        finish=statements(nest.finish),
        reductions=tuple(replace(r, name="") for r in nest.reductions),
        tiles=tuple(tiles[t] for t in nest.tiles),
        repeats=tuple(replace(r, tile=tiles[r.tile], source=found.access(r.source, tiles)) for r in nest.repeats),
    )
    return found
