"""Buffer forwarding: which outputs may be computed into which inputs' memory."""

from __future__ import annotations

from tf_stitch.lower.kernel import Access, Kernel, Load, Place, Store, statements


def forwards(kernel: Kernel) -> tuple[tuple[int, int], ...]:
    """Pairs (input, output) where each element of the input is read for the last time where the output's is written.

    So: all loads of the input are in the nest and not after the sweep that stores the output, by the very same access.
    An output that is stored in pieces is left alone, and so is a table, which is read anywhere.
    """
    stored: dict[int, list[tuple[int, int, Access]]] = {}
    loads: dict[int, list[tuple[int, int, Access]]] = {}
    for number, nest in enumerate(kernel.nests):
        parts = [sweep.row + sweep.elements for sweep in nest.sweeps] + [nest.finish]
        for position, part in enumerate(parts):
            for s in part:
                if isinstance(s, Store) and s.access.buffer.place is Place.OUTPUT:
                    stored.setdefault(s.access.buffer.index, []).append((number, position, s.access))
                elif isinstance(s, Load) and s.access.buffer.place is Place.INPUT:
                    loads.setdefault(s.access.buffer.index, []).append((number, position, s.access))
    tables = {s.access.buffer.index for nest in kernel.nests for s in statements(nest) if isinstance(s, Load) and s.at}
    by_access: dict[tuple[object, ...], list[tuple[int, int]]] = {}  # inputs that have one, with their last sweep
    for source, reads in loads.items():
        found = {_spot(nest, access) for nest, _, access in reads}
        if len(found) == 1 and source not in tables:
            by_access.setdefault(found.pop(), []).append((source, max(sweep for _, sweep, _ in reads)))
    pairs: list[tuple[int, int]] = []
    for output, stores in stored.items():
        if len(stores) == 1:
            ((nest, sweep, access),) = stores
            same = by_access.get(_spot(nest, access), [])
            pairs += [(source, output) for source, last in same if last <= sweep]
    return tuple(pairs)


def _spot(nest: int, access: Access) -> tuple[object, ...]:
    """What input and output must have in common."""
    return nest, access.buffer.dtype.size, access.buffer.size, access.strides, access.offset
