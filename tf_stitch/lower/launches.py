"""Which nests are launched together, as one parallel loop.

    100 columns, a few us each        ->    one loop over the rows of all of them: one wake-up of the threads, one join

Or they are a chain, and follow each other in the tasks of one loop (`lower.chaining`).

Else none of them waits for another, nor for a nest between them that is launched by itself: whatever one of them stores
no other one reads. Neither does one store into the memory of an input that another one reads (Kernel.forwards). Several
may store pieces of one output: no element is stored twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from tf_stitch.lower.cpu import PLAIN, Schedule
from tf_stitch.lower.kernel import Kernel
from tf_stitch.lower.nests import Memory, read_by, sources_of, stored_by


def launches(kernel: Kernel, schedules: Sequence[Schedule]) -> list[list[int]]:
    """The nests by number, those together that are launched together. One that is joined stands behind its rows, one
    that is chained behind the one before.
    """
    sources = sources_of(kernel)
    found: list[list[int]] = []
    taking: list[int] | None = None  # the last launch of more than one
    stored: set[Memory] = set()  # since it, by all
    read: set[Memory] = set()
    for number, (nest, schedule) in enumerate(zip(kernel.nests, schedules, strict=True)):
        leads = number + 1 < len(schedules) and (schedules[number + 1].joined or schedules[number + 1].chained)
        plain = schedule.driver in PLAIN and not leads
        stores, reads = stored_by(nest, sources), read_by(nest)
        waits = bool(stored & reads or read & stores)
        if schedule.joined or schedule.chained:
            found[-1].append(number)
        elif plain and taking is not None and not waits:
            taking.append(number)
        else:
            found.append([number])
            if plain:
                taking, stored, read = found[-1], set(), set()
        stored |= stores
        read |= reads
    return found
