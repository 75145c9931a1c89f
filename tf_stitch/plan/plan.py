"""StitchPlan: every decision about a cluster, as data. `groups.py` makes it, `lower/` obeys it, `explain` shows it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from tf_stitch.ir.body import Body
from tf_stitch.plan.indexing import Axis, IndexMap


class Scheme(enum.Enum):
    """Where a value lives between the step that makes it and those that read it (AStitch, table 1)."""

    INDEPENDENT = "independent"  # nothing in the cluster reads it
    LOCAL = "local"  # a register
    REGIONAL = "regional"  # a row's scalar, or the task's tile
    GLOBAL = "global"  # scratch, with a join of the parallel loop (CPU) or a grid barrier (GPU)


@dataclass(frozen=True, slots=True)
class Instance:
    """A step computed at one index map. `operands` are instances of the same group, in order.

    loaded: it is not computed here but read from memory: an input, or what an earlier group stored.
    """

    step: int
    index_map: IndexMap
    operands: tuple[int, ...]
    loaded: bool


@dataclass(frozen=True)
class Group:
    """What one dominant reaches: one loop nest.

    outer, inner: the loop axes; a reduction runs over all of `inner`. An element-wise group has no `inner`.
    dominant: the step whose mapping the group follows; sub_dominants: the other reductions and stored steps.
    instances: in order; stores: (instance, step) pairs to be written to an output or to scratch.
    """

    outer: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    dominant: int
    sub_dominants: tuple[int, ...]
    instances: tuple[Instance, ...]
    stores: tuple[int, ...]


@dataclass(frozen=True)
class StitchPlan:
    """Groups run one after another, with a join between; what crosses from one to the next is in `scratch`.

    A step that is an output or in scratch is stored by its group; a concatenation in pieces, by theirs (pieces.py).

    scratch: steps that are kept in scratch between groups.
    schemes: of each step that is computed.
    """

    body: Body
    groups: tuple[Group, ...]
    scratch: tuple[int, ...]
    schemes: Mapping[int, Scheme]
