"""Graphs put together by hand, without TensorFlow: for benchmarks of the planner alone.

    s = Sketch()
    x = s.placeholder(64, 768)
    y = s.node("Exp", x)
    s.graph([y])

All are f32, and all dims are static.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tf_stitch.ir.graph import Graph, Node, Value
from tf_stitch.ir.types import ALL, Dim, DType, TensorType

Shape = tuple[int, ...]

OPAQUE = "BatchMatMulV2"  # an op that is never stitched, and that nothing is folded into

_DTYPES = {d.numpy: d for d in ALL}


class Sketch:
    """A graph under construction. Nodes are added in topological order, and named after their op and number."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._constants: dict[Value, np.ndarray[Any, Any]] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def shape(self, value: Value) -> Shape:
        return tuple(d.coefficient for d in self._nodes[value.node].types[value.index].dims)

    def placeholder(self, *shape: int) -> Value:
        return self._add("Placeholder", (), DType.F32, shape)

    def constant(self, value: Any, dtype: type = np.float32) -> Value:
        array = np.asarray(value, dtype)
        found = self._add("Const", (), _DTYPES[array.dtype], array.shape)
        self._constants[found] = array
        return found

    def node(self, op: str, *inputs: Value, shape: Shape | None = None, **attributes: Any) -> Value:
        """A node whose result has the common shape of its operands, unless another is given."""
        common = np.broadcast_shapes(*(self.shape(v) for v in inputs)) if shape is None else shape
        return self._add(op, inputs, DType.F32, common, **attributes)

    def opaque(self, *inputs: Value, shape: Shape | None = None) -> Value:
        """A compute-intensive node: it reads its inputs whole, and is left to TensorFlow."""
        return self.node(OPAQUE, *inputs, shape=self.shape(inputs[0]) if shape is None else shape)

    def reduce(self, op: str, x: Value, axes: Sequence[int], keep_dims: bool = True) -> Value:
        """axes: not negative."""
        kept = [1 if a in axes else d for a, d in enumerate(self.shape(x))]
        shape = tuple(kept) if keep_dims else tuple(d for a, d in enumerate(kept) if a not in axes)
        return self.node(op, x, self.constant(axes, np.int32), shape=shape, keep_dims=keep_dims)

    def reshape(self, x: Value, *shape: int) -> Value:
        return self.node("Reshape", x, self.constant(shape, np.int32), shape=shape)

    def transpose(self, x: Value, *permutation: int) -> Value:
        shape = tuple(self.shape(x)[p] for p in permutation)
        return self.node("Transpose", x, self.constant(permutation, np.int32), shape=shape)

    def graph(self, returned: Sequence[Value]) -> Graph:
        return Graph("", dict(self._nodes), returned=frozenset(returned), constants=dict(self._constants))

    def _add(self, op: str, inputs: tuple[Value, ...], dtype: DType, shape: Shape, **attributes: Any) -> Value:
        name = f"{op}_{len(self._nodes)}"
        type_ = TensorType(dtype, tuple(map(Dim, shape)))
        self._nodes[name] = Node(name, op, inputs, (type_,), attributes=attributes)
        return Value(name)
