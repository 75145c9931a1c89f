"""Which way a loop nest goes through memory.

    group norm's gradient, N = 4, C = 32 groups of 4           a row: (n, group), of HW x 4
    dbeta, sums over N and HW                                  a row: one of 128 channels, of N x HW

Both have 128 rows of 4 * HW, by chance. In one nest, in the order of its axes, dbeta would read each of its elements
from another line of memory. A reduction joins a nest only if it finds something that lies along the nest's rows as what
is read there does, or down its columns.
"""

from __future__ import annotations

from collections.abc import Iterator

from tf_stitch.ir.body import Body, Input
from tf_stitch.ir.types import ONE
from tf_stitch.plan.drafts import Draft
from tf_stitch.plan.indexing import IndexMap, axes_of


def goes_another_way(body: Body, alone: Draft, draft: Draft) -> bool:
    """Whether what a group reads lies along its rows where what `draft` reads lies down its columns, or the reverse."""
    mine, others = _ways(body, alone), _ways(body, draft)
    return bool(mine) and bool(others) and mine.isdisjoint(others)


def _ways(body: Body, draft: Draft) -> set[bool]:
    """For what is read and varies both ways: whether neighbours in memory are neighbours along a row."""
    inner = frozenset(axis.identity for axis in draft.inner)
    outer = frozenset(axis.identity for axis in draft.outer)
    found: set[bool] = set()
    for step, index_map in _read(body, draft):
        axes = axes_of(index_map)
        neighbours = _next_to_each_other(body, step, index_map)
        if axes & inner and axes & outer and neighbours is not None:
            found.add(neighbours in inner)
    return found


def _read(body: Body, draft: Draft) -> Iterator[tuple[int, IndexMap]]:
    for step, maps in draft.maps.items():
        if step in draft.loaded or isinstance(body.steps[step].op, Input):
            for index_map in maps:
                yield step, index_map


def _next_to_each_other(body: Body, step: int, index_map: IndexMap) -> int | None:
    """The axis along which a value's neighbours in memory are read one after the other."""
    for index, dim in zip(reversed(index_map), reversed(body.steps[step].type.dims), strict=True):
        if not dim.is_one:
            return next((axis for axis, stride in index.terms if stride == ONE), None)
    return None
