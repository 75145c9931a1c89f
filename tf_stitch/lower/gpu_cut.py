r"""The least that must be kept of each element, so that later sweeps need not load what earlier ones have loaded.

    batch norm's gradient     sweep 0    x, a, b, r loaded;   dy = r > 0 ? a + b : 0;   sum(dy), sum(x)
                              sweep 1    x loaded;            sum((x - mean)^2)
                              sweep 2    x, a, b, r loaded;   dy again;   dx stored

                                         x  a  b  r           16 bytes of an element, were each load kept
                                         |   \ | /
                              cut        x    dy             8 bytes

A name means the same value in all sweeps, so a value that an earlier sweep has left may stand for its computation: the
bits are the same. Where there is no room for all of the cut, some values of it are kept, those first that save most for
a byte; the others are computed again from what is loaded again. So a nest comes in *levels*, which do the same:

    level 0    keeps x and dy      level 1    keeps dy, loads x again      level 2    keeps nothing

Invariants: a value is stored in the first sweep that has it and loaded in later ones only; a level's reductions, row
scalars and stores to memory are those of the nest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tf_stitch.ir.types import Dim, product
from tf_stitch.lower.kernel import (
    Access,
    Accumulate,
    Buffer,
    Compute,
    Load,
    Nest,
    Place,
    Statement,
    Store,
    Sweep,
    operands,
)
from tf_stitch.lower.recomputing import without_tile
from tf_stitch.plan.pieces import memory_strides

_ZERO = Dim(0)
_MOST_TILES = 3  # each is one more loop in each sweep
_Names = frozenset[str]


def levels(nest: Nest) -> tuple[Nest, ...]:
    """The nest with all of its cut in tiles, with less and less of it, at last with no tile; nothing where no sweep
    loads anything again, or where it may not: a result that an early sweep stores may be in the memory of an input.
    """
    early = [s for sweep in nest.sweeps[:-1] for s in sweep.elements if isinstance(s, Store)]
    if any(s.access.buffer.place is Place.OUTPUT for s in early):
        return ()
    for tile in nest.tiles:
        nest = without_tile(nest, tile)
    found = _Uses(nest)
    names = found.by_savings(found.cut())[:_MOST_TILES]
    if not names:
        return ()
    return (*(found.keeping(names[:count]) for count in range(len(names), 0, -1)), nest)


@dataclass(frozen=True)
class _Later:
    """What sweeps behind the first do where some names are kept.

    read: kept names that they read. loaded: bytes of an element that they load from memory. statements: that they run.
    """

    read: _Names
    loaded: int
    statements: int


class _Uses:
    """Which sweeps of a nest have a name, and what they need it for."""

    def __init__(self, nest: Nest) -> None:
        self.nest = nest
        self.of_sweep = [
            {s.name: s for s in sweep.elements if not isinstance(s, Store | Accumulate)} for sweep in nest.sweeps
        ]
        self.first: dict[str, int] = {}
        for number, defined in enumerate(self.of_sweep):
            for name in defined:
                self.first.setdefault(name, number)
        self.dtypes = {name: s.dtype for defined in self.of_sweep for name, s in defined.items()}

    def cut(self) -> _Names:
        """Loads that sweeps repeat, or values in front of them while those are fewer bytes, or fewer statements."""
        best = frozenset(n for n in self._repeated() if self._is_dear(n))
        candidates = [n for n in self._repeated() if isinstance(self.of_sweep[self.first[n]][n], Compute)]
        cost = self._cost(best)
        while True:
            others = [self._later(best | {name}).read for name in candidates if name not in best]
            costs = [self._cost(kept) for kept in others]
            if not costs or min(costs) >= cost:
                return best
            cost = min(costs)
            best = others[costs.index(cost)]

    def by_savings(self, names: _Names) -> list[str]:
        """Those first without which most bytes would be loaded again, for each byte of their own."""
        loaded = self._later(names).loaded
        saved = {n: (self._later(names - {n}).loaded - loaded) / self.dtypes[n].size for n in names}
        return sorted((n for n in names if saved[n] > 0), key=lambda n: (-saved[n], self.first[n], n))

    def keeping(self, names: list[str]) -> Nest:
        """The nest with a tile for each of the names."""
        strides = (_ZERO,) * len(self.nest.outer) + memory_strides(tuple(self.nest.inner))
        size = product(self.nest.inner)
        tiles = [Buffer(Place.TILE, n, f"{name}_tile", self.dtypes[name], size) for n, name in enumerate(names)]
        places = {name: Access(tile, strides) for name, tile in zip(names, tiles, strict=True)}
        sweeps = [self._kept_in(number, sweep, places) for number, sweep in enumerate(self.nest.sweeps)]
        return replace(self.nest, sweeps=tuple(sweeps), tiles=tuple(tiles))

    def _kept_in(self, number: int, sweep: Sweep, places: dict[str, Access]) -> Sweep:
        needed, _ = self._needed(number, frozenset(places))
        found: list[Statement] = []
        for s in sweep.elements:
            if isinstance(s, Store | Accumulate):
                found.append(s)
            elif s.name in places and self.first[s.name] < number:
                if s.name in needed:
                    found.append(Load(s.name, s.dtype, places[s.name]))
            elif s.name in needed or (s.name in places and self.first[s.name] == number):
                found.append(s)
                if s.name in places:
                    found.append(Store(places[s.name], s.name, s.dtype))
        return replace(sweep, elements=tuple(found))

    def _repeated(self) -> list[str]:
        """The names that more than one sweep has."""
        return [n for n, first in self.first.items() if any(n in d for d in self.of_sweep[first + 1 :])]

    def _is_dear(self, name: str) -> bool:
        """Whether it is loaded from memory, and differs from row to row: what is the same for all is in the cache."""
        s = self.of_sweep[self.first[name]][name]
        outer = len(self.nest.outer)
        if not isinstance(s, Load):
            return False
        indices = [self.of_sweep[self.first[name]].get(a.value) for a in s.at]
        accesses = [s.access, *(i.access for i in indices if isinstance(i, Load))]
        one_row = not outer or product(self.nest.outer).is_one
        return one_row or any(stride != _ZERO for a in accesses for stride in a.strides[:outer])

    def _needed(self, number: int, kept: _Names) -> tuple[_Names, _Names]:
        """The names that a sweep has to have, and those of them that it finds kept by an earlier one."""
        defined = self.of_sweep[number]
        needed: set[str] = set()
        waiting = [s.value for s in self.nest.sweeps[number].elements if isinstance(s, Store | Accumulate)]
        if number < len(self.nest.sweeps) - 1:  # what it leaves for later ones
            waiting += [n for n in kept if self.first[n] == number]
        while waiting:
            name = waiting.pop()
            if name in needed or name not in defined:
                continue
            needed.add(name)
            if not (name in kept and self.first[name] < number):
                waiting += operands(defined[name])
        return frozenset(needed), frozenset(n for n in needed if n in kept and self.first[n] < number)

    def _later(self, kept: _Names) -> _Later:
        read: set[str] = set()
        loaded = run = 0
        for number in range(1, len(self.nest.sweeps)):
            needed, found = self._needed(number, kept)
            read |= found
            run += len(needed - found)
            again = [n for n in needed - found if self.first[n] < number and self._is_dear(n)]
            loaded += sum(self.dtypes[n].size for n in again)
        return _Later(frozenset(read), loaded, run)

    def _cost(self, kept: _Names) -> tuple[int, int, int]:
        """What is loaded although it was before, what is kept, and what is run: in this order."""
        later = self._later(kept)
        return later.loaded, sum(self.dtypes[n].size for n in kept), later.statements
