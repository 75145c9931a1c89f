"""Nests whose vectors are columns: the last outer axis becomes the last inner one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tf_stitch.ir.types import Dim
from tf_stitch.lower.bundling import columns_of
from tf_stitch.lower.kernel import Coordinate, Load, Nest, Statement, Store, Sweep

_ZERO = Dim(0)


def turned_strides(strides: Sequence[Dim], outer: int, bundle: int) -> tuple[Dim, ...]:
    """Columns last, behind the axes that are reduced; where they are in bundles, the last of those is part of them."""
    columns = strides[outer - 1]
    inner = strides[outer:]
    if bundle > 1:
        *inner, along = inner
        columns = along if along != _ZERO else columns
    return (*strides[: outer - 1], *inner, columns)


def turned(nest: Nest, bundle: int = 1) -> Nest:
    """The nest with its columns as the vector axis: its last outer axis, or bundles of them (`lower.bundling`)."""
    outer = len(nest.outer)

    def of(s: Statement) -> Statement:
        if isinstance(s, Coordinate):
            return replace(s, strides=turned_strides(s.strides, outer, bundle))
        if isinstance(s, Load | Store):
            return replace(s, access=replace(s.access, strides=turned_strides(s.access.strides, outer, bundle)))
        return s

    sweeps = tuple(Sweep(tuple(map(of, sweep.row)), tuple(map(of, sweep.elements))) for sweep in nest.sweeps)
    reduced = nest.inner if bundle == 1 else nest.inner[:-1]
    inner: tuple[Dim, ...] = (*reduced, columns_of(nest, bundle))
    return replace(nest, outer=nest.outer[:-1], inner=inner, sweeps=sweeps, finish=tuple(map(of, nest.finish)))
