"""Which nests run together, a block of rows at a time.

    layer norm, backwards        rows: sums along each row, dx       columns: dgamma = sum over rows of dy * (x - m) * r
                                            |                                   |
                                 x, dy of some rows  ------ still in the cache -----

A nest of rows, and right behind it one that runs down columns over the same rows: the second's first sweep takes each
block of rows as soon as the first is done with it, instead of reading all of them from memory once more.

It may, because of what the first stores the second reads the same rows only. It stores nothing itself in that sweep, so
it cannot overwrite what the first has still to read.
"""

from __future__ import annotations

from collections.abc import Sequence

from tf_stitch.ir.types import Dim, product
from tf_stitch.lower.kernel import Access, Buffer, Load, Nest, Place, Store, statements

_ZERO = Dim(0)


def may_join(rows: Nest, down: Nest) -> bool:
    """Whether the first sweep of `down` may take each row of its columns once `rows` is done with it.

    rows: a nest with reductions along its rows; down: the next nest, whose reductions run down columns.
    """
    if len(rows.outer) != 1 or len(down.outer) != 1 or down.inner != rows.outer:
        return False
    first = (*down.sweeps[0].row, *down.sweeps[0].elements)
    if any(isinstance(s, Store) for s in first):
        return False
    stored: dict[Buffer, list[Access]] = {}
    for s in statements(rows):
        if isinstance(s, Store):
            stored.setdefault(s.access.buffer, []).append(s.access)
    loads = [s.access for s in first if isinstance(s, Load)]
    if not any(a.buffer.place is Place.INPUT and _is_read_by(rows, a) for a in loads):
        return False  # nothing is gained
    return all(_same_rows(rows, store, down, a) for a in loads for store in stored.get(a.buffer, ()))


def _is_read_by(nest: Nest, access: Access) -> bool:
    return any(isinstance(s, Load) and s.access.buffer == access.buffer for s in statements(nest))


def _same_rows(rows: Nest, store: Access, down: Nest, load: Access) -> bool:
    """Whether row r of `load` lies within what `store` has written in row r."""
    stride, (across, along) = store.strides[0], load.strides
    if stride != along or load.offset or store.offset:
        return False
    width = product(rows.inner) if any(s != _ZERO for s in store.strides[1:]) else Dim(1)
    reach = down.outer[0] if across != _ZERO else Dim(1)
    return stride == width == reach


def joined(nests: Sequence[Nest], rows: Sequence[bool], down: Sequence[bool]) -> frozenset[int]:
    """The numbers of nests that join the one before. `rows`, `down`: which nests are of which kind."""
    return frozenset(n for n in range(1, len(nests)) if rows[n - 1] and down[n] and may_join(nests[n - 1], nests[n]))
