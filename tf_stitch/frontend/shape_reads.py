"""Shapes are read where they are known first, not of values that a kernel would then have to store.

    x ─► Exp ─► Mul ─► y ─► Shape          x ─► Exp ─► Mul ─► y
                                           └──► Shape

Gradients ask for the shape of every value on the way. That of `y` is that of `x` where both have the same dims, which
the importer knows even if it knows no numbers; read of `x`, it keeps neither `y` alive nor apart what reads the two.
What is read instead is always an ancestor: nothing waits for more than before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tf_stitch.frontend.contexts import CONTROL_FLOW
from tf_stitch.ir.types import DType

if TYPE_CHECKING:
    from tf_stitch.ir.graph import Graph, Node, Value

READERS = frozenset({"Shape", "ShapeN", "Size"})


def with_early_shape_reads(graph: Graph) -> Graph:
    """The graph with each reader of shapes reading the first ancestor of the same type."""
    first: dict[Value, Value] = {}
    changed: dict[str, Node] = {}
    for name, node in graph.nodes.items():
        if node.op in READERS:
            inputs = tuple(_first(graph, value, first) for value in node.inputs)
            if inputs != node.inputs:
                changed[name] = replace(node, inputs=inputs)
    if not changed:
        return graph
    return replace(graph, nodes={**graph.nodes, **changed}, revised=graph.revised | changed.keys())


def _first(graph: Graph, value: Value, known: dict[Value, Value]) -> Value:
    path: list[Value] = []
    while value not in known:
        path.append(value)
        source = _source(graph, value)
        if source is None:
            break
        value = source
    value = known.get(value, value)
    known.update(dict.fromkeys(path, value))
    return value


def _source(graph: Graph, value: Value) -> Value | None:
    """An operand of the value's node that has the value's type, wherever and whenever the value is computed."""
    node, type_ = graph.nodes[value.node], graph.type_of(value)
    if type_.shape is None or type_.dtype is DType.OTHER or node.op in CONTROL_FLOW:
        return None
    for operand in node.inputs:
        producer = graph.nodes.get(operand.node)
        if (
            producer is not None
            and graph.type_of(operand) == type_
            and producer.op not in CONTROL_FLOW
            and (producer.context, producer.device) == (node.context, node.device)
        ):
            return operand
    return None
