"""A nest of rows and the one that goes down its columns, on a GPU: one pass over the rows for both.

    layer norm, backwards          thread      0..3      4..7     ...         of a block; four columns each
                                   row 0     x, dy ----------------------->   sums along the row; dx
                                               |         |                    then, from the same registers,
                                   row 1     x, dy ----------------------->   dgamma[0..3] += dy * (x - mean) * rstd
                                               v         v
                                   piece     dgamma     dgamma                what a piece of rows leaves, to scratch

`lower.joining` says which nests may be joined. Here the first sweep of the second is *turned*, so that it is one more
sweep of the first: its columns are elements of the row, and it has an accumulator for each of a thread's elements. What
it loads the first has loaded, and is kept in registers like anything that is loaded again; a row's value that the first
leaves in scratch it takes from where that is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tf_stitch.ir.types import Dim, product
from tf_stitch.lower.joining import may_join
from tf_stitch.lower.kernel import (
    Access,
    Accumulate,
    Compute,
    Coordinate,
    ExtentOf,
    Literal,
    Load,
    Nest,
    Place,
    Reduced,
    Statement,
    Store,
    Sweep,
    statements,
)

_ZERO = Dim(0)


@dataclass(frozen=True)
class Joint:
    """nest: the rows' nest with one more sweep, the last; its reductions from number `first` on go down the columns."""

    nest: Nest
    first: int

    @property
    def reductions(self) -> range:
        return range(self.first, len(self.nest.reductions))


def joint(rows: Nest, down: Nest) -> Joint | None:
    """The two as one nest; None where they may not be, or one reads back what the other stores for each element."""
    columns = product(rows.inner)
    if not may_join(rows, down) or len(rows.inner) != 1 or down.outer != (columns,) or len(down.inner) != 1:
        return None
    kept = _kept_of_rows(rows)
    stored = {s.access.buffer for s in statements(rows) if isinstance(s, Store)}
    first = (*down.sweeps[0].row, *down.sweeps[0].elements)
    for s in first:
        if isinstance(s, Load) and s.access.buffer in stored and _turned(s.access) not in kept:
            return None
        if isinstance(s, Reduced):
            return None
    number = len(rows.sweeps)
    offset = len(rows.reductions)
    names: dict[str, str] = {}
    row: list[Statement] = list(_scalars_of_finish(rows))
    elements: list[Statement] = []
    varying: set[str] = set()
    for s in first:
        if isinstance(s, Load) and _turned(s.access) in kept and s.access.buffer.place is not Place.INPUT:
            names[s.name] = kept[_turned(s.access)]
            continue
        moved = _renamed(s, names, offset)
        if _varies(moved, varying):
            elements.append(moved)
            if isinstance(moved, Load | Coordinate | Compute):
                varying.add(moved.name)
        else:
            row.append(moved)
    mine = [replace(r, name=f"{r.name}_down", sweep=number) for r in down.reductions if r.sweep == 0]
    nest = replace(
        rows,
        sweeps=(*rows.sweeps, Sweep(tuple(row), tuple(elements))),
        reductions=(*rows.reductions, *mine),
    )
    return Joint(nest, offset)


def _turned(access: Access) -> Access:
    """An access of a nest that goes down columns, as one of a nest of rows."""
    across, along = access.strides
    return replace(access, strides=(along, across))


def _kept_of_rows(rows: Nest) -> dict[Access, str]:
    """The names of what the rows' nest stores for each row, at its end."""
    return {s.access: s.value for s in rows.finish if isinstance(s, Store)}


def _scalars_of_finish(rows: Nest) -> Sequence[Statement]:
    return [s for s in rows.finish if not isinstance(s, Store)]


def _renamed(s: Statement, names: dict[str, str], offset: int) -> Statement:
    """A statement of the second nest with names that the first has not, and its accesses turned."""

    def mine(name: str) -> str:
        return names.setdefault(name, f"{name}_down")

    match s:
        case Load(name, dtype, access, at):
            looked_up = tuple(replace(a, value=mine(a.value)) for a in at)
            return Load(mine(name), dtype, _turned(access), looked_up)
        case Literal() | ExtentOf():
            return replace(s, name=mine(s.name))
        case Coordinate():
            return replace(s, name=mine(s.name), strides=s.strides[::-1])
        case Compute(name, dtype, function, operands):
            return Compute(mine(name), dtype, function, tuple(map(mine, operands)))
        case Accumulate(reduction, value):
            return Accumulate(reduction + offset, mine(value))
        case Store() | Reduced():
            raise AssertionError(f"{s}: the first sweep of a nest that is joined stores nothing")


def _varies(s: Statement, varying: set[str]) -> bool:
    """Whether it differs from element to element of a row."""
    match s:
        case Load(_, _, access, at):
            return access.strides[-1] != _ZERO or any(a.value in varying for a in at)
        case Coordinate():
            return s.strides[-1] != _ZERO
        case Compute(_, _, _, operands):
            return not varying.isdisjoint(operands)
        case _:
            return isinstance(s, Accumulate)
