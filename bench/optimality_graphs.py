"""Random graphs in which clustering has real choices: see `random_graph`."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from bench.sketch import Shape, Sketch
from tf_stitch.ir.graph import Graph, Value

LIGHT, HEAVY, BINARY = ("Relu", "Neg", "Square"), ("Tanh", "Exp", "Erf"), ("AddV2", "Mul", "Maximum")
REDUCTIONS = ("Sum", "Max", "Mean")
ROWS, WIDTHS = (16, 128, 1024, 4096), (16, 64, 256, 768)
LARGEST = 1 << 23  # elements of a value

Growth = Callable[["_Growing"], Value | None]


def random_graph(seed: int, ops: int) -> Graph:
    """A graph of `ops` nodes besides placeholders and constants; the same for the same seed.

    Light and heavy element-wise ops, operands that broadcast, reductions of rows and of other axes, Softmax, reshapes,
    transposes, and nodes that stay TensorFlow's. What nothing reads is returned, and some of what is read as well.
    """
    growing = _Growing(random.Random(seed))
    while len(growing.made) < ops:
        growth = growing.random.choices(list(_GROWTHS), list(_GROWTHS.values()))[0]
        found = growth(growing)
        if found is not None:
            growing.values.append(found)
            growing.made.append(found)
    graph = growing.sketch.graph([])
    unread = [v for v in growing.made if not graph.consumers[v.node]]
    more = [v for v in growing.made if growing.random.random() < 0.1]
    return growing.sketch.graph(list(dict.fromkeys((*unread, *more))))


class _Growing:
    """A graph on its way. values: that nodes may read. made: by nodes."""

    def __init__(self, source: random.Random) -> None:
        self.random = source
        self.sketch = Sketch()
        rows, width = source.choice(ROWS), source.choice(WIDTHS)
        shape = (rows, width) if source.random() < 0.7 else (source.choice((2, 4, 8)), max(rows // 8, 2), width)
        self.values = [self.sketch.placeholder(*shape)]
        self.made: list[Value] = []

    def pick(self, fits: Callable[[Shape], bool] = lambda _: True) -> Value | None:
        """A value, of the last ones more often; None where none fits."""
        found = [v for v in self.values if fits(self.sketch.shape(v))]
        return self.random.choice(found[-3:] * 2 + found) if found else None

    def some(self) -> Value:
        found = self.pick()
        assert found is not None, "there is a placeholder"
        return found


def _unary(ops: tuple[str, ...]) -> Growth:
    return lambda g: g.sketch.node(g.random.choice(ops), g.some())


def _binary(g: _Growing) -> Value | None:
    mine = g.some()
    shape = g.sketch.shape(mine)
    if g.random.random() < 0.3:
        kept = [d if g.random.random() < 0.6 else 1 for d in shape]
        theirs = g.sketch.placeholder(*kept[g.random.randrange(len(kept) + 1) :])
    else:
        theirs = g.pick(lambda s: _common(s, shape))
        assert theirs is not None, "a value has its own shape"
    return g.sketch.node(g.random.choice(BINARY), mine, theirs)


def _common(a: Shape, b: Shape) -> bool:
    """Whether two shapes broadcast to one that is not too large."""
    try:
        return int(np.prod(np.broadcast_shapes(a, b))) <= LARGEST
    except ValueError:
        return False


def _reduce_rows(g: _Growing) -> Value | None:
    x = g.pick(lambda s: len(s) > 1 and s[-1] > 8)  # fewer are written out as arithmetic
    return None if x is None else _reduced(g, x, (len(g.sketch.shape(x)) - 1,))


def _reduce_others(g: _Growing) -> Value | None:
    x = g.pick(lambda s: len(s) > 1 and s[0] > 8)
    if x is None:
        return None
    rank = len(g.sketch.shape(x))
    return _reduced(g, x, g.random.choice([(0,), tuple(range(rank - 1)), tuple(range(rank))]))


def _reduced(g: _Growing, x: Value, axes: tuple[int, ...]) -> Value:
    return g.sketch.reduce(g.random.choice(REDUCTIONS), x, axes, keep_dims=g.random.random() < 0.8)


def _softmax(g: _Growing) -> Value | None:
    x = g.pick(lambda s: len(s) > 1 and s[-1] > 8)
    return None if x is None else g.sketch.node("Softmax", x)


def _reshape(g: _Growing) -> Value | None:
    x = g.some()
    shape = g.sketch.shape(x)
    if len(shape) > 2:
        return g.sketch.reshape(x, shape[0] * shape[1], *shape[2:])
    even = [a for a, d in enumerate(shape) if d % 4 == 0]
    if not even:
        return None
    at = g.random.choice(even)
    return g.sketch.reshape(x, *shape[:at], 4, shape[at] // 4, *shape[at + 1 :])


def _transpose(g: _Growing) -> Value | None:
    x = g.pick(lambda s: len(s) > 1)
    if x is None:
        return None
    axes = list(range(len(g.sketch.shape(x))))
    while axes == sorted(axes):
        g.random.shuffle(axes)
    return g.sketch.transpose(x, *axes)


def _opaque(g: _Growing) -> Value | None:
    x = g.pick(lambda s: len(s) > 1)
    if x is None:
        return None
    *rows, width = g.sketch.shape(x)
    return g.sketch.opaque(x, shape=(*rows, g.random.choice((width, max(width, 16)))))


_GROWTHS: dict[Growth, int] = {
    _unary(LIGHT): 4,
    _unary(HEAVY): 4,
    _binary: 7,
    _reduce_rows: 3,
    _reduce_others: 1,
    _softmax: 1,
    _reshape: 1,
    _transpose: 1,
    _opaque: 3,
}
