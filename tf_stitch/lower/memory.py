"""Where the steps of a plan live in memory, and how an index map reads and writes them there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tf_stitch.errors import Reason, Unsupported
from tf_stitch.ir.body import Input
from tf_stitch.ir.types import Dim, terms_of
from tf_stitch.lower.kernel import Access, Buffer, Place
from tf_stitch.lower.names import Names
from tf_stitch.plan.indexing import Axis, IndexMap
from tf_stitch.plan.pieces import memory_strides, pieces_of
from tf_stitch.plan.plan import StitchPlan

_ZERO = Dim(0)


@dataclass(frozen=True)
class Buffers:
    """Where steps live in memory.

    loaded: what a group reads an input, or an earlier group's step, from.
    stored: where a step is written: scratch, each output that it is, and each concatenation that it is a piece of.
    """

    loaded: dict[int, Home]
    stored: dict[int, list[Home]]
    scratch: tuple[Buffer, ...]


@dataclass(frozen=True)
class Home:
    """Memory of a step: a buffer, or the part of one that begins at `offset`. strides: one for each axis."""

    buffer: Buffer
    strides: tuple[Dim, ...]
    offset: tuple[Dim, ...] = ()


def buffers_of(plan: StitchPlan) -> Buffers:
    """The memory of a plan's inputs, outputs and scratch."""
    body, names = plan.body, Names()
    inputs: dict[int, Home] = {}
    whole: dict[int, Home] = {}
    stored: dict[int, list[Home]] = {}

    def home(place: Place, number: int, index: int, role: str) -> Home:
        step = body.steps[index]
        buffer = Buffer(place, number, names.fresh(step.origin, role), step.type.dtype, step.type.size)
        return Home(buffer, memory_strides(step.type.dims))

    def keep(place: Place, number: int, index: int, role: str) -> Buffer:
        kept = home(place, number, index, role)
        whole.setdefault(index, kept)
        for piece in pieces_of(body, index):
            stored.setdefault(piece.step, []).append(Home(kept.buffer, piece.strides, piece.offset))
        return kept.buffer

    for index, step in enumerate(body.steps):
        if isinstance(step.op, Input):
            inputs[index] = home(Place.INPUT, step.op.index, index, "in")
    for number, index in enumerate(body.outputs):
        keep(Place.OUTPUT, number, index, "out")
    scratch = tuple(keep(Place.SCRATCH, number, index, "scratch") for number, index in enumerate(plan.scratch))
    pieces = {index: places[0] for index, places in stored.items()}
    return Buffers(pieces | whole | inputs, stored, scratch)


def access_of(home: Home, index_map: IndexMap, axes: Sequence[Axis]) -> Access:
    """Where a step that lives at `home` is in a nest of these axes, at this map.

    Raises:
      Unsupported: for a diagonal of dims that are not known.
    """
    strides = {axis.identity: _ZERO for axis in axes}
    offset = list(home.offset)
    for index, memory in zip(index_map, home.strides, strict=True):
        offset.append(Dim(index.offset) * memory)
        for axis, stride in index.terms:
            step = stride * memory
            if strides[axis] != _ZERO:
                if not (strides[axis].is_static and step.is_static):
                    raise Unsupported(Reason.SCHEME, "a diagonal of unknown dims")
                step = Dim(step.coefficient + strides[axis].coefficient)
            strides[axis] = step
    return Access(home.buffer, tuple(strides[axis.identity] for axis in axes), terms_of(offset))
