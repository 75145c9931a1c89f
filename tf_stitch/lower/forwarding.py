"""Buffer forwarding: which outputs may be computed into which inputs' memory."""

from __future__ import annotations

from tf_stitch.lower.kernel import Access, Kernel, Load, Place, Store


def forwards(kernel: Kernel) -> tuple[tuple[int, int], ...]:
    """Pairs (input, output) where each element of the input is read for the last time where the output's is written.

    So: all loads of the input are in the nest and not after the sweep that stores the output, by the very same access.
    An output that is stored in pieces is left alone.
    """
    stored: dict[int, list[tuple[int, int, Access]]] = {}
    loads: dict[int, list[tuple[int, int, Access]]] = {}
    for number, nest in enumerate(kernel.nests):
        parts = [sweep.row + sweep.elements for sweep in nest.sweeps] + [nest.finish]
        for position, statements in enumerate(parts):
            for s in statements:
                if isinstance(s, Store) and s.access.buffer.place is Place.OUTPUT:
                    stored.setdefault(s.access.buffer.index, []).append((number, position, s.access))
                elif isinstance(s, Load) and s.access.buffer.place is Place.INPUT:
                    loads.setdefault(s.access.buffer.index, []).append((number, position, s.access))
    pairs: list[tuple[int, int]] = []
    for output, stores in stored.items():
        if len(stores) > 1:
            continue
        ((nest, sweep, access),) = stores
        for source, reads in loads.items():
            same_size = reads[0][2].buffer.dtype.size == access.buffer.dtype.size
            if (
                same_size
                and reads[0][2].buffer.size == access.buffer.size
                and all(
                    n == nest and p <= sweep and (a.strides, a.offset) == (access.strides, access.offset)
                    for n, p, a in reads
                )
            ):
                pairs.append((source, output))
    return tuple(pairs)
