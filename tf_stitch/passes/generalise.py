"""Kernels for more shapes than the one that a function was traced for.

    x: f32[512, 768]      ->      x: f32[d0, 64*d1]        any batch, any row that is a multiple of 64

A tf.function is traced anew for every shape, and a model has the same layer at several widths. Kernels that differ in a
number only become one, compiled once. What is given up is what the compiler could make of the number: nothing to speak
of, as long as rows remain a multiple of the widest vector loop, and short enough not to need a split.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tf_stitch.errors import Unsupported
from tf_stitch.ir.graph import Graph
from tf_stitch.ir.types import Dim, Shape, TensorType
from tf_stitch.passes.expand import Expansion, expand

_UNIT = 64  # lanes of the widest vector loop
_SHORTEST, _LONGEST = 256, 16384  # of the rows that may vary


def generalised(graph: Graph, names: Sequence[str], found: Expansion) -> Iterator[Expansion]:
    """`found` with static dims left open: the most general first. What the nodes do not allow is left out."""
    shapes = [t.dims for t in found.body.inputs if t is not None]
    batch = _batch(shapes)
    attempts: list[Callable[[Shape], Shape]] = []
    if any(_is_wide(d) for dims in shapes for d in dims):
        attempts.append(lambda dims: _open_widths(_open_batch(dims, batch)))
    if batch is not None:
        attempts.append(lambda dims: _open_batch(dims, batch))
    for attempt in attempts:
        types = {
            value: TensorType(type_.dtype, attempt(type_.dims))
            for value, type_ in zip(found.inputs, found.body.inputs, strict=True)
            if type_ is not None
        }
        try:
            general = expand(graph, names, found.outputs, types)
        except Unsupported:
            continue
        widths = {
            d for t in general.body.inputs if t is not None for d in t.dims if d.coefficient == _UNIT and d.symbols
        }
        bounds = tuple((width, Dim(_LONGEST)) for width in sorted(widths))
        yield replace(general, body=replace(general.body, requires=general.body.requires + bounds))


def _batch(shapes: Sequence[Shape]) -> Dim | None:
    """The static size that most inputs have on their leading axis, if that is a batch: an axis before the last."""
    leading = Counter(dims[0] for dims in shapes if len(dims) > 1 and dims[0].is_static and dims[0].coefficient > 1)
    return leading.most_common(1)[0][0] if leading else None


def _open_batch(dims: Shape, batch: Dim | None) -> Shape:
    return (Dim.symbol("batch"), *dims[1:]) if len(dims) > 1 and dims[0] == batch else dims


def _open_widths(dims: Shape) -> Shape:
    """Equal widths stay equal: they are one symbol."""
    return tuple(Dim(_UNIT, (f"width{d.coefficient}",)) if _is_wide(d) else d for d in dims)


def _is_wide(dim: Dim) -> bool:
    return dim.is_static and dim.coefficient % _UNIT == 0 and _SHORTEST <= dim.coefficient <= _LONGEST
