"""Kernels for more shapes than the one that a function was traced for.

    x: f32[512, 768]      ->      x: f32[d0, 64*d1]        any batch, any row that is a multiple of 64

A tf.function is traced anew for every shape, and a model has the same layer at several widths. Kernels that differ in a
number only become one, compiled once. What is given up is what the compiler could make of the number: nothing to speak
of, as long as rows remain a multiple of the widest vector loop, and short enough not to need a split.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from tf_stitch.errors import Unsupported
from tf_stitch.ir.graph import Graph, Value
from tf_stitch.ir.types import Dim, Shape, TensorType
from tf_stitch.passes.expand import Expansion, expand

_UNIT = 64  # lanes of the widest vector loop
_BATCH, _WIDTH = "any batch", "any width"  # symbols: no importer gives names with a blank
_MOST_WIDTHS = 3  # what has more is not met again with others,
_MOST_STEPS = 500  # and neither is what is as large as an optimizer's update of all variables
_SHORTEST, _LONGEST = 256, 4096  # of the rows that may vary: each is one block of a reduction


def generalised(graph: Graph, names: Sequence[str], found: Expansion) -> Iterator[Expansion]:
    """`found` with static dims left open: the most general first. What the nodes do not allow is left out."""
    if len(found.body.steps) > _MOST_STEPS:
        return
    # The graph's own types, not the body's: the body has other names for the same symbols.
    known = {
        value: graph.type_of(value)
        for value, read in zip(found.inputs, found.body.inputs, strict=True)
        if read is not None
    }
    shapes = [type_.dims for type_ in known.values()]
    batch = _batch(shapes)
    attempts: list[Callable[[Shape], Shape]] = []
    if 1 <= len({d for dims in shapes for d in dims if _is_wide(d)}) <= _MOST_WIDTHS:
        attempts.append(lambda dims: _open_widths(_open_batch(dims, batch)))
    if batch is not None:
        attempts.append(lambda dims: _open_batch(dims, batch))
    for attempt in attempts:
        types = {value: TensorType(type_.dtype, attempt(type_.dims)) for value, type_ in known.items()}
        try:
            general = expand(graph, names, found.outputs, types)
        except Unsupported:
            continue
        # A dim that others would follow from stays closed: those are numbers to the compiler, too.
        if len(general.body.derivations) > len(found.body.derivations) or not _stayed_open(found, general, types):
            continue
        widths = {
            d for t in general.body.inputs if t is not None for d in t.dims if d.coefficient == _UNIT and d.symbols
        }
        bounds = tuple((width, Dim(_LONGEST)) for width in sorted(widths))
        yield replace(general, body=replace(general.body, requires=general.body.requires + bounds))


def _stayed_open(found: Expansion, general: Expansion, opened: Mapping[Value, TensorType]) -> bool:
    """Whether the nodes ask no more of the dims than before: each opened dim is any, each other is what it was."""
    before = dict(zip(found.inputs, found.body.inputs, strict=True))
    for value, after in zip(general.inputs, general.body.inputs, strict=True):
        was = before.get(value)
        if after is None or was is None:
            continue
        for old, new, wanted in zip(was.dims, after.dims, opened[value].dims, strict=True):
            expected = wanted if any(s.startswith((_BATCH, _WIDTH)) for s in wanted.symbols) else old
            if (new.coefficient, len(new.symbols)) != (expected.coefficient, len(expected.symbols)):
                return False
    return len(_symbols(general)) == len(_symbols(found)) + len({s for t in opened.values() for s in _opened(t)})


def _opened(type_: TensorType) -> set[str]:
    return {s for d in type_.dims for s in d.symbols if s.startswith((_BATCH, _WIDTH))}


def _symbols(found: Expansion) -> set[str]:
    return {s for t in found.body.inputs if t is not None for d in t.dims for s in d.symbols}


def _batch(shapes: Sequence[Shape]) -> Dim | None:
    """The static size that most inputs have on their leading axis, if that is a batch: an axis before the last.

    Where no size is that common, an optimizer's variables say, there is no batch.
    """
    leading = [dims[0] for dims in shapes if len(dims) > 1 and not dims[0].is_one]
    sizes = Counter(d for d in leading if d.is_static and d.coefficient > 1)
    if not sizes:
        return None
    batch, count = sizes.most_common(1)[0]
    return batch if 2 * count >= len(leading) else None


def _open_batch(dims: Shape, batch: Dim | None) -> Shape:
    return (Dim.symbol(_BATCH), *dims[1:]) if len(dims) > 1 and dims[0] == batch else dims


def _open_widths(dims: Shape) -> Shape:
    """Equal widths stay equal: they are one symbol."""
    return tuple(Dim(_UNIT, (f"{_WIDTH} {d.coefficient}",)) if _is_wide(d) else d for d in dims)


def _is_wide(dim: Dim) -> bool:
    return dim.is_static and dim.coefficient % _UNIT == 0 and _SHORTEST <= dim.coefficient <= _LONGEST
