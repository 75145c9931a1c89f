"""Values of long rows that are cheaper computed again than kept in scratch.

    softmax of rows that no shared memory holds

    sweep 0    x -> t -> tile, max                 x -> t -> max
    sweep 1    tile -> e -> tile, sum       ->     x -> t -> e -> sum
    sweep 2    tile -> e / sum -> y                x -> t -> e / sum -> y

A tile in scratch costs a store, and a load in each sweep that reads it, all of them by way of memory; computing it
again costs the loads that it is made of, and its functions. What is cheaper follows from the GPU's bandwidth and from
how many HEAVY functions it evaluates.
"""

from __future__ import annotations

from tf_stitch.ir.types import Dim
from tf_stitch.lower.kernel import Compute, Load, Nest, Place, Store, Sweep
from tf_stitch.lower.recomputing import without_tile
from tf_stitch.ops import is_heavy
from tf_stitch.plan.gpu_target import GpuTarget

_ZERO = Dim(0)


def recomputed(nest: Nest, target: GpuTarget) -> Nest:
    """A nest whose tiles are in scratch, without those that cost more than they save; itself where there are none.

    A result that is stored before the last sweep may be in the memory of an input: then inputs aren't read again.
    """
    early = [s for sweep in nest.sweeps[:-1] for s in sweep.elements if isinstance(s, Store)]
    if any(s.access.buffer.place is Place.OUTPUT for s in early):
        return nest
    best, cost = nest, _picoseconds(nest, target)
    for _ in nest.tiles:
        fewer = [without_tile(best, tile) for tile in best.tiles]
        costs = [_picoseconds(n, target) for n in fewer]
        if not costs or min(costs) >= cost:
            break
        cost = min(costs)
        best = fewer[costs.index(cost)]
    return best


def _picoseconds(nest: Nest, target: GpuTarget) -> float:
    """Of one element, in all sweeps: what memory takes, or what HEAVY functions do. What all rows share is cached."""

    def of_sweep(sweep: Sweep) -> float:
        crossing = {
            (type(s), s.access)
            for s in sweep.elements
            if isinstance(s, Load | Store) and s.access.strides[-1] != _ZERO and _varies(nest, s)
        }
        moved = sum(access.buffer.dtype.size for _, access in crossing)
        heavy = sum(isinstance(s, Compute) and is_heavy(s.function) for s in sweep.elements)
        return max(moved / target.bytes_per_ns, heavy / (target.heavy_per_ns * target.multiprocessors)) * 1000

    return sum(map(of_sweep, nest.sweeps))


def _varies(nest: Nest, s: Load | Store) -> bool:
    """Whether rows have elements of their own."""
    rows = range(len(nest.outer))
    return s.access.buffer.place is Place.TILE or not rows or any(s.access.strides[n] != _ZERO for n in rows)
