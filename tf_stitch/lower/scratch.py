"""Scratch: it is filled late, where nothing but filling is to be done, and one buffer takes another one's place.

    launch            0      1      2      3            x  written in 0, read in 1 and 2     place 0
    x                 #------#------#                   y  written in 1, read in 2           place 1
    y                        #------#                   z  written in 3, read in 3           place 0 again: it is in the
    z                                      #                                                 caches, as x was

A border of zeros around an image is a fill: it reads nothing, so it could be written before all else, and its image
would take up memory from there on.

Invariants: buffers of one place are never needed in the same launch, whose nests run side by side; a fill stands before
any nest that reads what it fills.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tf_stitch.ir.types import Dim
from tf_stitch.lower.kernel import Buffer, Kernel, Load, Nest, Place, Statement, Store, Sweep, operands, statements
from tf_stitch.lower.nests import accesses


def filled_late(kernel: Kernel) -> Kernel:
    """The kernel with a nest of its own for each buffer of scratch that is only filled, where that is first needed."""
    late: dict[Buffer, list[Nest]] = {}
    rest: list[Nest] = []
    for nest in kernel.nests:
        if not _fills(nest):
            rest.append(nest)
            continue
        stored = dict.fromkeys(s.access.buffer for s in accesses(nest))
        kept = [b for b in stored if b.place is not Place.SCRATCH]
        if kept:
            rest.append(_only(nest, kept))
        for buffer in stored:
            if buffer not in kept:
                late.setdefault(buffer, []).append(_only(nest, [buffer]))
    found: list[Nest] = []
    for nest in rest:
        read = dict.fromkeys(s.access.buffer for s in accesses(nest) if isinstance(s, Load))
        found += [fill for buffer in read for fill in late.pop(buffer, [])]
        found.append(nest)
        # Behind what stores the rest of it: so it is launched along with that, not with what is launched before.
        found += [fill for s in accesses(nest) for fill in late.pop(s.access.buffer, [])]
    found += [fill for fills in late.values() for fill in fills]
    return replace(kernel, nests=tuple(found))


def _fills(nest: Nest) -> bool:
    """Whether a nest stores what it needs no memory for."""
    return not (nest.reductions or nest.finish or any(isinstance(s, Load) for s in statements(nest)))


def _only(nest: Nest, buffers: Sequence[Buffer]) -> Nest:
    """The nest with the stores to these buffers alone, and what they need."""
    needed: set[str] = set()

    def kept(part: Sequence[Statement]) -> tuple[Statement, ...]:
        found: list[Statement] = []
        for s in reversed(part):
            if s.access.buffer in buffers if isinstance(s, Store) else getattr(s, "name", "") in needed:
                found.append(s)
                needed.update(operands(s))
        return tuple(reversed(found))

    sweeps: list[Sweep] = []
    for sweep in nest.sweeps:
        elements = kept(sweep.elements)  # first: what they need of the row is known then
        sweeps.append(Sweep(kept(sweep.row), elements))
    return replace(nest, sweeps=tuple(sweeps))


@dataclass
class Memory:
    """Places for buffers. bytes: of each place. place: which one each buffer has."""

    bytes: list[Dim]
    place: dict[Buffer, int]


def shared_memory(kernel: Kernel, launched: Sequence[Sequence[int]]) -> Memory:
    """Places for the kernel's scratch. launched: the nests by number, those together that run at a time."""
    first: dict[Buffer, int] = {}
    last: dict[Buffer, int] = {}
    for time, together in enumerate(launched):
        for number in together:
            for s in accesses(kernel.nests[number]):
                if s.access.buffer.place is Place.SCRATCH:
                    first.setdefault(s.access.buffer, time)
                    last[s.access.buffer] = time
    memory = Memory([], {})
    free_from: list[int] = []  # by place: the first launch in which nobody needs it
    for buffer in sorted(kernel.scratch, key=lambda b: first.get(b, 0)):
        size = buffer.size * Dim(buffer.dtype.size)
        here = [
            p
            for p, whole in enumerate(memory.bytes)
            if free_from[p] <= first.get(buffer, 0) and whole.symbols == size.symbols
        ]
        place = min(here, key=lambda p: abs(memory.bytes[p].coefficient - size.coefficient), default=len(free_from))
        if place == len(free_from):
            memory.bytes.append(size)
            free_from.append(0)
        memory.bytes[place] = max(memory.bytes[place], size, key=lambda d: d.coefficient)
        free_from[place] = last.get(buffer, 0) + 1
        memory.place[buffer] = place
    return memory
