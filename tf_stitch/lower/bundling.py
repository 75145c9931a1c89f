"""Rows of short pieces that lie side by side in memory: read down the columns of all of them.

    group norm, [HW, 32 groups, 4]       a row is a group: HW pieces of 4 elements, 128 apart

         g0   g1   g2        g31         as 128 columns, whole lines of memory go by once for all groups;
       |....|....|....| ... |....|       the totals of the 4 columns of a group, its *bundle*, are combined after
       |....|....|....| ... |....|
       |....|....|....| ... |....|

Only the order changes in which a nest's elements are visited and a row's are added up: the nest stays what it is, and
its schedule says how wide a bundle is. What is one value a row is one value a bundle; everything else has to lie in
columns.
"""

from __future__ import annotations

from collections.abc import Sequence

from tf_stitch.ir.types import ONE, Dim
from tf_stitch.lower.kernel import Access, Compute, Coordinate, Load, Nest, statements
from tf_stitch.lower.nests import accesses
from tf_stitch.lower.recomputing import without_tile
from tf_stitch.ops import is_heavy

_ZERO = Dim(0)
_BLOCK_COLUMNS = 4096  # that a task goes down at a time: kBlockColumns of down.h
_LONGEST_PIECE = 128  # bytes: of two lines of memory, rows share too little to be worth going through all of them


def bundled(nest: Nest) -> tuple[Nest, int]:
    """The nest, without tiles if it goes down bundles of columns, and how wide those are; 1 where it does not."""
    width = _width(nest)
    if width == 1:
        return nest, 1
    bare = nest
    for tile in nest.tiles:
        bare = without_tile(bare, tile)
    return (nest, 1) if _heavy(bare) > _heavy(nest) else (bare, width)


def _width(nest: Nest) -> int:
    if not nest.reductions or not nest.outer or len(nest.inner) < 2:
        return 1
    rows, piece = nest.outer[-1], nest.inner[-1]
    if not piece.is_static or piece.is_one or rows.is_one:
        return 1
    width = piece.coefficient
    columns = columns_of(nest, width)
    # No bundle may lie in two tasks' blocks.
    whole = _BLOCK_COLUMNS % width == 0 or (columns.is_static and columns.coefficient <= _BLOCK_COLUMNS)
    plain = not any(isinstance(s, Coordinate) or (isinstance(s, Load) and s.at) for s in statements(nest))
    shared = [s.access for s in accesses(nest)]
    in_columns = [a for a in shared if _lies_in_columns(a, nest, width)]
    long = any(width * a.buffer.dtype.size >= _LONGEST_PIECE for a in in_columns)
    if not whole or not plain or long or not in_columns:
        return 1
    # Of columns and of bundles, two accesses may look the same once the nest is turned.
    outer = len(nest.outer)
    of_bundles = {a.buffer for a in shared if is_of_bundles(outer, a.strides)}
    in_both = any(a.buffer in of_bundles and not is_of_bundles(outer, a.strides) for a in shared)
    return width if not in_both and all(_fits(a, nest, width) for a in shared) else 1


def _lies_in_columns(access: Access, nest: Nest, width: int) -> bool:
    """Whether an access crosses pieces and rows as neighbouring columns, over and over."""
    repeated = any(s != _ZERO for s in access.strides[len(nest.outer) : -1])
    return repeated and access.strides[-1] == ONE and access.strides[len(nest.outer) - 1] == Dim(width)


def _fits(access: Access, nest: Nest, width: int) -> bool:
    """Whether neighbouring columns are equally far apart everywhere, or share one value in each bundle."""
    across, along = access.strides[len(nest.outer) - 1], access.strides[-1]
    return along == _ZERO or across == along * Dim(width)


def is_of_bundles(outer: int, strides: Sequence[Dim]) -> bool:
    """Whether an access has one value for each bundle. outer: how many outer axes there are."""
    return strides[-1] == _ZERO and strides[outer - 1] != _ZERO


def columns_of(nest: Nest, width: int) -> Dim:
    """How many columns a nest goes down."""
    return nest.outer[-1] * Dim(width)


def _heavy(nest: Nest) -> int:
    """How many HEAVY functions are evaluated for an element."""
    elements = [s for sweep in nest.sweeps for s in sweep.elements]
    return sum(isinstance(s, Compute) and is_heavy(s.function) for s in elements)
