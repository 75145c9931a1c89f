"""Nests that are products: a few rows at a time meet each step of columns, their sums in registers.

    y[m, n] = sum over k of x[m, k] * w[k, n]           w, a step of columns

              k ->                                      +-----+-----+
         x  [ . . . . . . ]  R rows                   k |  L  |  L  |  a vector of w is loaded once for R rows, and
            [ . . . . . . ]                           | |     |     |  multiplied by one number of each of them
            [ . . . . . . ]                           v +-----+-----+

Where k is what a filter meets of an image, it is several axes: x[m, k] lies at sums of steps, w[k, n] end to end. In a
depthwise convolution each column has an x of its own, x[m, k, n]: a vector of x in the place of one number.

A sum adds its products in order of k, whatever the rows beside it: the bits do not depend on threads, nor on the batch.

What reads the sums (a bias, an activation) follows row by row while they are in L1. Where a nest multiplies anything
else than what it loads, or its columns are no neighbours in memory, it stays what it is: a reduction.
"""

from __future__ import annotations

from dataclasses import dataclass

from tf_stitch.ir.types import ONE, Dim
from tf_stitch.lower.kernel import Access, Accumulate, Compute, Load, Nest
from tf_stitch.ops.products import PRODUCTS

_ZERO = Dim(0)
_MOST_ROWS = 8  # at a time: more pointers than there are registers for
_LEAST_ROW = 16  # along which a single column is multiplied: a vector
_MOST_AXES = 3  # of k: a filter's height, its width, and channels


@dataclass(frozen=True)
class Product:
    """One reduction of a nest. row: the factor of rows, x; column: that of columns, w. Accesses of the nest.

    by_column: whether each column has an x of its own.
    """

    row: Access
    column: Access
    by_column: bool


def products_of(nest: Nest) -> tuple[Product, ...]:
    """Those that a nest consists of, in the order of its reductions; none where it is anything else."""
    if not nest.outer or len(nest.inner) > _MOST_AXES or len(nest.sweeps) != 1 or nest.tiles or not nest.reductions:
        return ()
    (sweep,) = nest.sweeps
    if sweep.row or any(r.reducer != PRODUCTS for r in nest.reductions):
        return ()
    loads = {s.name: s for s in sweep.elements if isinstance(s, Load)}
    multiplied = {s.name: s.operands for s in sweep.elements if isinstance(s, Compute) and s.function == "mul"}
    sums = [s for s in sweep.elements if isinstance(s, Accumulate)]
    if len(loads) + len(multiplied) + len(sums) != len(sweep.elements):
        return ()
    found: dict[int, Product] = {}
    for s in sums:
        factors = [loads.get(name) for name in multiplied.get(s.value, ())]
        product = _product(nest, factors[0], factors[1]) if len(factors) == 2 else None
        if product is None:
            return ()
        found[s.reduction] = product
    return tuple(found[n] for n in range(len(nest.reductions)))


def multiplies_well(nest: Nest) -> bool:
    """Whether a nest has no products, or consists of them, or each is along rows of both of its factors.

    As any other reduction it is right, but slow.
    """
    if all(r.reducer != PRODUCTS for r in nest.reductions) or products_of(nest):
        return True
    last = nest.inner[-1]
    is_long = not last.is_static or last.coefficient >= _LEAST_ROW
    loads = [s.access for sweep in nest.sweeps for s in sweep.elements if isinstance(s, Load)]
    return is_long and all(a.strides[-1] == ONE for a in loads)


def _product(nest: Nest, one: Load | None, other: Load | None) -> Product | None:
    if one is None or other is None or one.at or other.at:
        return None
    for row, column in ((one, other), (other, one)):
        same_type = row.access.buffer.dtype is row.dtype and column.access.buffer.dtype is column.dtype
        across = row.access.strides[len(nest.outer) - 1]
        if same_type and across in (_ZERO, ONE) and _is_column(nest, column.access):
            return Product(row.access, column.access, by_column=across == ONE)
    return None


def _is_column(nest: Nest, access: Access) -> bool:
    """Whether neighbouring columns are neighbours, the same ones for each row."""
    last = len(nest.outer) - 1
    return access.strides[last] == ONE and all(s == _ZERO for s in access.strides[max(last - 1, 0) : last])


def rows_of(nest: Nest) -> Dim:
    """How many rows there are that meet the same columns."""
    return nest.outer[-2] if len(nest.outer) > 1 else ONE


def rows_at_a_time(nest: Nest, vectors: int, registers: int) -> int:
    """As many as there are registers for sums of `vectors`, beside those for the columns and for one number.

    Of a known number of rows, so many that all of them take the fewest turns: 14 rows are two times 7, not 8, 4 and 2.
    """
    most = max(1, min(_MOST_ROWS, (registers - 1 - vectors) // vectors))
    there = rows_of(nest)
    if not there.is_static:
        return most

    def turns(rows: int) -> int:
        return there.coefficient // rows + (there.coefficient % rows).bit_count()  # what is left, in powers of two

    return min(range(most, 0, -1), key=turns)
