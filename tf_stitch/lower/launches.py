"""Which nests are launched together, as one parallel loop.

    100 columns, a few us each        ->    one loop over the rows of all of them: one wake-up of the threads, one join

They are consecutive, and none waits for another: whatever one of them stores no other one reads. Neither does one
store into the memory of an input that another one reads (Kernel.forwards). Several may store pieces of one output: no
element is stored twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tf_stitch.lower.cpu import Driver, Schedule
from tf_stitch.lower.kernel import Access, Kernel, Load, Nest, Place, Store

PLAIN = frozenset({Driver.ROWS, Driver.BLOCKS, Driver.COLUMNS})  # one parallel loop is all that they are

_Memory = tuple[Place, int]


def launches(kernel: Kernel, schedules: Sequence[Schedule]) -> list[list[int]]:
    """The nests by number, those together that are launched together. One that is joined stands behind its rows."""
    forwards: dict[int, set[int]] = {}
    for source, output in kernel.forwards:
        forwards.setdefault(output, set()).add(source)
    found: list[list[int]] = []
    stored: set[_Memory] = set()
    read: set[_Memory] = set()
    open_ = False  # whether the last of `found` takes more
    for number, (nest, schedule) in enumerate(zip(kernel.nests, schedules, strict=True)):
        rows_of_next = number + 1 < len(schedules) and schedules[number + 1].joined
        plain = schedule.driver in PLAIN and not rows_of_next
        stores, reads = _stored(nest, forwards), _read(nest)
        waits = bool(stored & reads or read & stores)
        if schedule.joined:
            found[-1].append(number)
        elif open_ and plain and not waits:
            found[-1].append(number)
            stored |= stores
            read |= reads
        else:
            found.append([number])
            stored, read = set(stores), set(reads)
        open_ = plain
    return found


def _stored(nest: Nest, forwards: Mapping[int, set[int]]) -> set[_Memory]:
    """What a nest writes to, with inputs whose memory that may be."""
    stores = {_memory(s.access) for s in _accesses(nest) if isinstance(s, Store)}
    outputs = [index for place, index in stores if place is Place.OUTPUT]
    return stores | {(Place.INPUT, i) for o in outputs for i in forwards.get(o, ())}


def _read(nest: Nest) -> set[_Memory]:
    loads = {_memory(s.access) for s in _accesses(nest) if isinstance(s, Load)}
    return loads | {_memory(r.source) for r in nest.repeats}


def _memory(access: Access) -> _Memory:
    return access.buffer.place, access.buffer.index


def _accesses(nest: Nest) -> list[Load | Store]:
    """Those of memory that tasks share."""
    parts = [part for sweep in nest.sweeps for part in (sweep.row, sweep.elements)]
    accesses = [s for part in (*parts, nest.finish) for s in part if isinstance(s, Load | Store)]
    return [s for s in accesses if s.access.buffer.place is not Place.TILE]
