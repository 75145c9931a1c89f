"""Which nests follow each other row by row, in one parallel loop: what they hand on stays in a core's cache.

    a GRU's step, rows of a batch          0 .. 23  | 24 .. 47 | 48 .. 71 | ...
      h, x side by side                       |          |          |
      gates = sigmoid(. @ W)                  |          |          |       one wake-up of the threads, no barrier
      candidate = tanh(. @ V), h'             v          v          v       between the nests

Each alone is too short to wake another thread for; together they are not.

Invariants, for any two nests of a chain and any memory that one of them reads and the other stores: each row of either
touches its own part of it, as long as the rows are apart: row r the elements [r * stride, (r + 1) * stride). So rows
may be taken in any order, and by any thread. What is the same for all rows (weights, a table that is looked up) is
stored by none of them.

Rows are the first axis of each nest, or what a flat loop over all elements is cut into.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tf_stitch.ir.types import ONE, Dim, terms_of
from tf_stitch.lower.kernel import Load, Place
from tf_stitch.lower.nests import Memory, accesses, memory_of, places_of, read_by, sources_of, stored_by

if TYPE_CHECKING:
    from tf_stitch.lower.cpu import Schedule
    from tf_stitch.lower.kernel import Access, Kernel, Nest

_MOST_ROWS = 64  # of a unit: the last one is as good as never full
_MOST_BYTES = 8 << 10  # of scratch a row: it stays in the caches, and not all of it is needed at a time without a chain
_BLOCK = 512  # elements, of a flat loop


@dataclass(frozen=True)
class _Member:
    """A nest as rows. unit: how many of them a unit of its parallel loop has, or 1 where a row has units of its own."""

    nest: Nest
    schedule: Schedule
    unit: int
    stored: frozenset[Memory]
    read: frozenset[Memory]
    parts: Mapping[Memory, Dim | None]  # bytes that a row has of it; None where it is no part of its own


def chained(kernel: Kernel, schedules: Sequence[Schedule], plain: Sequence[bool]) -> tuple[Schedule, ...]:
    """The schedules, those that follow row by row marked, and their blocks a few rows long.

    plain: which nests are one parallel loop each.
    """
    found = list(schedules)
    sources = sources_of(kernel)
    start = 0
    while start < len(found):
        end = start
        while end < len(found) and plain[end]:
            end += 1
        chain, tied = _longest(kernel.nests[start:end], found[start:end], sources)
        for number, member in enumerate(chain[:tied], start):
            found[number] = replace(member.schedule, chained=number > start)
        start += max(tied or len(chain) - 1, 1)  # the last one may be apart from what it is not a chain with
    return tuple(found)


def _longest(
    nests: Sequence[Nest], schedules: Sequence[Schedule], sources: Mapping[int, set[int]]
) -> tuple[list[_Member], int]:
    """Nests from the first on that may follow each other, and how many of them do: up to the last that waits."""
    rows = next((nest.outer[0] for nest in nests if nest.outer), None)
    chain: list[_Member] = []
    tied = 0  # those behind wait for none of these, and can be launched by themselves
    if rows is None or (rows.is_static and rows.coefficient < 2):
        return chain, tied
    for nest, schedule in zip(nests, schedules, strict=True):
        member = _member(nest, schedule, rows, sources)
        if member is None or not all(_apart(member, other) for other in chain):
            break
        if math.lcm(member.unit, *(m.unit for m in chain)) > _MOST_ROWS or not _is_small([*chain, member]):
            break
        chain.append(member)
        if any(_waits(member, other) for other in chain[:-1]):
            tied = len(chain)
    return chain, tied if any(member.nest.outer for member in chain[:tied]) else 0  # else nothing says what a row is


def rows_of(chain: Sequence[Nest]) -> Dim:
    """The rows that the nests of a chain have in common."""
    return next(nest.outer[0] for nest in chain if nest.outer)


def rows_of_unit(nest: Nest, schedule: Schedule, rows: Dim) -> int:
    """How many rows a unit of the parallel loop of `nest` has, or 1 where a row has units of its own."""
    from tf_stitch.lower.cpu import Driver

    if not nest.outer:
        length = _flat_row(nest, rows)
        return schedule.block // length.coefficient if length is not None else 0
    in_groups = (schedule.driver is Driver.PRODUCTS and len(nest.outer) == 2) or schedule.driver is Driver.COLUMNS
    return schedule.block if in_groups else 1


def _flat_row(nest: Nest, rows: Dim) -> Dim | None:
    """How long the rows are that a flat loop is cut into; None where that is not known, or no whole number."""
    length = nest.inner[0].divided_by(rows) if len(nest.inner) == 1 and not nest.reductions else None
    return length if length is not None and length.is_static and length.coefficient > 0 else None


def _member(nest: Nest, schedule: Schedule, rows: Dim, sources: Mapping[int, set[int]]) -> _Member | None:
    from tf_stitch.lower.cpu import Driver

    if nest.outer and nest.outer[0] != rows:
        return None
    if not nest.outer:
        length = _flat_row(nest, rows)
        if length is None:
            return None
        unit = math.lcm(length.coefficient, schedule.lanes, *(r.period for r in nest.repeats))
        schedule = replace(schedule, block=unit * max(1, _BLOCK // unit))
    elif schedule.driver is Driver.COLUMNS:
        schedule = replace(schedule, block=min(schedule.block, _MOST_ROWS // 4))
    return _Member(
        nest,
        schedule,
        rows_of_unit(nest, schedule, rows),
        frozenset(stored_by(nest, sources)),
        frozenset(read_by(nest)),
        _parts(nest, rows, sources),
    )


def _is_small(chain: Sequence[_Member]) -> bool:
    """Whether what a row hands on through scratch is little."""
    stored = {memory for member in chain for memory in member.stored if memory[0] is Place.SCRATCH}
    parts = {memory: part for member in chain for memory, part in member.parts.items() if memory in stored}
    known = [part.coefficient for part in parts.values() if part is not None and part.is_static]
    return len(known) == len(parts) and sum(known) <= _MOST_BYTES


def _waits(one: _Member, other: _Member) -> frozenset[Memory]:
    """What one of them reads and the other stores. Both may store pieces of it: no element is stored twice."""
    return (one.stored & other.read) | (one.read & other.stored)


def _apart(one: _Member, other: _Member) -> bool:
    """Whether no row of one reads what another row of the other stores, or stores what that reads."""
    shared = _waits(one, other)
    return all(one.parts.get(m) is not None and one.parts[m] == other.parts.get(m) for m in shared)


def _parts(nest: Nest, rows: Dim, sources: Mapping[int, set[int]]) -> dict[Memory, Dim | None]:
    """Of each memory that a nest touches, how many bytes row r has of its own, from r times as many on."""
    found: dict[Memory, Dim | None] = {memory_of(r.source): None for r in nest.repeats}
    for s in accesses(nest):
        part = None if isinstance(s, Load) and s.at else _part(nest, s.access, rows)
        for memory in places_of(s.access, sources):
            found[memory] = part if found.get(memory, part) == part else None
    return found


def _part(nest: Nest, access: Access, rows: Dim) -> Dim | None:
    """The bytes between neighbouring rows, if all that a row touches lies within as many from its first on."""
    if nest.outer:
        stride, steps = access.strides[0], list(zip((*nest.outer, *nest.inner), access.strides, strict=True))[1:]
    else:
        length = _flat_row(nest, rows)
        assert length is not None, "the rows of a flat nest are whole"
        stride, steps = length * access.strides[0], [(length, access.strides[0])]
    if any(step.coefficient < 0 for _, step in steps) or any(term.coefficient < 0 for term in access.offset):
        return None
    reach = [ONE, *access.offset]
    for extent, step in steps:
        reach += [extent * step, Dim(-step.coefficient, step.symbols)]
    left = terms_of([stride, *(Dim(-term.coefficient, term.symbols) for term in reach)])
    bytes_ = stride * Dim(access.buffer.dtype.size)
    return bytes_ if all(term.coefficient >= 0 for term in left) else None
