"""Values that are cheaper computed again, by each thread that reads them, than waited for.

    batch norm, in inference     nest 0    scale[c] = rsqrt(variance[c] + e) * gamma[c]   -> scratch
                                 nest 1    y = (x - mean[c]) * scale[c] + beta[c]         <- scratch, once for each row

A CPU computes `scale` once, and reads it for a nanosecond; a grid waits for it longer than it takes to compute, and the
parameters that it is made of are in the L1 of each multiprocessor. So a nest of a few statements, without reductions,
that leaves one value in scratch is computed where that is read, by the same operations: the bits are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tf_stitch.ir.types import ONE, Dim, product, terms_of
from tf_stitch.lower.forwarding import forwards
from tf_stitch.lower.kernel import (
    Access,
    Accumulate,
    Buffer,
    Compute,
    Kernel,
    Load,
    Nest,
    Place,
    Statement,
    Store,
    Sweep,
    statements,
)
from tf_stitch.ops import is_heavy

_MOST_STATEMENTS = 12
_MOST_HEAVY = 2
_ZERO = Dim(0)


def inlined(kernel: Kernel) -> Kernel:
    """The kernel without such nests; itself where there are none."""
    for number, nest in enumerate(kernel.nests):
        store = _one_value(nest)
        if store is None or not _few(nest):
            continue
        readers = [n for n, other in enumerate(kernel.nests) if _reads(other, store.access.buffer)]
        if not readers or not all(_many(kernel.nests[n], store.access.buffer) for n in readers):
            continue
        nests = [_with(other, nest, store) if n in readers else other for n, other in enumerate(kernel.nests)]
        scratch = tuple(b for b in kernel.scratch if b != store.access.buffer)
        kept = replace(kernel, nests=tuple(n for i, n in enumerate(nests) if i != number), scratch=scratch)
        return inlined(replace(kept, forwards=forwards(kept)))
    return kernel


def _one_value(nest: Nest) -> Store | None:
    """The store of a nest that has one, to scratch, in the order of its elements."""
    stores = [s for s in statements(nest) if isinstance(s, Store)]
    plain = not nest.reductions and not nest.tiles and len(nest.inner) == 1 and product(nest.outer).is_one
    if not plain or len(stores) != 1 or nest.finish:
        return None
    access = stores[0].access
    whole = access.strides[-1] == ONE and access.buffer.size == nest.inner[0]  # and no piece of a concatenation
    return stores[0] if access.buffer.place is Place.SCRATCH and whole else None


def _few(nest: Nest) -> bool:
    computed = [s for s in statements(nest) if isinstance(s, Compute)]
    heavy = sum(is_heavy(s.function) for s in computed)
    return len(list(statements(nest))) <= _MOST_STATEMENTS and heavy <= _MOST_HEAVY


def _reads(nest: Nest, buffer: Buffer) -> bool:
    return any(isinstance(s, Load) and s.access.buffer == buffer for s in statements(nest))


def _many(nest: Nest, buffer: Buffer) -> bool:
    """Whether a nest reads the same value for many rows: then what it is made of comes from the cache."""
    loads = [s.access for s in statements(nest) if isinstance(s, Load) and s.access.buffer == buffer]
    return all(a.strides[: len(nest.outer)].count(_ZERO) == len(nest.outer) for a in loads)


def _with(reader: Nest, nest: Nest, store: Store) -> Nest:
    """The reader with the nest's statements in the place of each load of its value."""
    taken = {s.name for s in statements(reader) if not isinstance(s, Store | Accumulate)}

    def expanded(part: Sequence[Statement]) -> tuple[Statement, ...]:
        found: list[Statement] = []
        for s in part:
            if isinstance(s, Load) and s.access.buffer == store.access.buffer:
                found += _moved(nest, store, s, taken)
            else:
                found.append(s)
        return tuple(found)

    sweeps = tuple(Sweep(expanded(sweep.row), expanded(sweep.elements)) for sweep in reader.sweeps)
    return replace(reader, sweeps=sweeps, finish=expanded(reader.finish))


def _moved(nest: Nest, store: Store, load: Load, taken: set[str]) -> list[Statement]:
    """The nest's statements at the element that `load` reads; the value has the load's name."""
    names = {store.value: load.name}

    def fresh(name: str) -> str:
        if name not in names:
            stem = f"{name}_again"
            while stem in taken:
                stem += "_"
            taken.add(stem)
            names[name] = stem
        return names[name]

    found: list[Statement] = []
    for s in (*nest.sweeps[0].row, *nest.sweeps[0].elements):
        match s:
            case Store() | Accumulate():
                pass
            case Load(name, dtype, access, at):
                looked_up = tuple(replace(a, value=fresh(a.value)) for a in at)
                found.append(Load(fresh(name), dtype, _at(access, load.access), looked_up))
            case Compute(name, dtype, function, operands):
                found.append(Compute(fresh(name), dtype, function, tuple(map(fresh, operands))))
            case _:
                found.append(replace(s, name=fresh(s.name)))
    return found


def _at(access: Access, where: Access) -> Access:
    """An access of the nest, at the element that `where` reads of what the nest stores."""
    step = access.strides[-1]
    offset = terms_of([*access.offset, *(term * step for term in where.offset)])
    return Access(access.buffer, tuple(stride * step for stride in where.strides), offset)
