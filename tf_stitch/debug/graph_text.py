"""A Graph, a Clustering and a rewritten graph as text, for dumps.

mean = Mean(x:0, axis:0) {keep_dims=True} : f32[s0, 1]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tf_stitch.ir.types import DType

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tf_stitch.ir.graph import Graph, Node, Value
    from tf_stitch.passes.clustering import Clustering
    from tf_stitch.pipeline import Stitched

_SHOWN = 8  # elements of a constant


def print_graph(graph: Graph) -> str:
    """One node a line, in topological order."""
    lines = [f"graph {graph.name or '(main)'}", ""]
    lines += [_node(graph, node) for node in graph.nodes.values()]
    if graph.returned:
        lines.append(f"return {', '.join(map(str, sorted(graph.returned)))}")
    if graph.fetched:
        lines.append(f"fetched: {', '.join(sorted(graph.fetched))}")
    return "\n".join(lines) + "\n"


def print_clustering(graph: Graph, clustering: Clustering) -> str:
    """The clusters with their nodes, and each rejection."""
    lines: list[str] = []
    for cluster in clustering.clusters:
        lines.append(f"cluster {cluster.name}")
        lines += [f"  {name}: {graph.nodes[name].op}" for name in cluster.nodes]
        lines += [f"  input {_typed(graph, v)}" for v in cluster.inputs]
        lines += [f"  output {_typed(graph, v)}" for v in cluster.outputs]
        lines += [f"  constant {name}" for name in cluster.constants]
        lines += [f"  waits on {name}" for name in cluster.controls]
        lines.append("")
    for r in clustering.rejections:
        detail = f" ({r.detail})" if r.detail else ""
        lines.append(f"{r.node}: {r.op} is not stitched: {r.reason.name}, {r.reason.value}{detail}")
    return "\n".join(lines) + "\n"


def print_rewritten(stitched: Stitched) -> str:
    """The graph with a StitchOp where the last node of each cluster was."""
    graph = stitched.graph
    inside = {name for made in stitched.clusters for name in made.cluster.nodes}
    last = {made.cluster.nodes[-1]: made for made in stitched.clusters}
    outputs: dict[Value, str] = {}
    for made in stitched.clusters:
        outputs |= {v: f"stitch/{made.cluster.name}:{n}" for n, v in enumerate(made.cluster.outputs)}

    def renamed(value: Value) -> str:
        return outputs.get(value, str(value))

    lines: list[str] = []
    for name, node in graph.nodes.items():
        if name in last:
            made = last[name]
            operands = ", ".join(map(renamed, made.cluster.inputs))
            types = ", ".join(str(graph.type_of(v)) for v in made.cluster.outputs)
            key = made.artifact.key[:12]
            lines.append(f"stitch/{made.cluster.name} = StitchOp({operands}) {{key={key}}} : {types}")
        elif name not in inside:
            lines.append(_node(graph, node, renamed))
    if graph.returned:
        lines.append(f"return {', '.join(map(renamed, sorted(graph.returned)))}")
    return "\n".join(lines) + "\n"


def _node(graph: Graph, node: Node, spell: Any = str) -> str:
    operands = ", ".join([*map(spell, node.inputs), *(f"^{c}" for c in node.controls)])
    attributes = ", ".join(_attributes(node.attributes))
    types = ", ".join(map(str, node.types))
    marks = [m for m, on in (("stateful", node.stateful), (f"on {node.device}", node.device)) if on]
    marks += sorted(node.context)
    line = f"{node.name} = {node.op}({operands})"
    line += f" {{{attributes}}}" if attributes else ""
    line += f" : {types}" if types else ""
    known = [
        f"{v} holds ({', '.join(map(str, graph.extents[v]))})"
        for v in _outputs(node)
        if v in graph.extents and v not in graph.constants
    ]
    return line + "".join(f"  # {mark}" for mark in (*marks, *known))


def _outputs(node: Node) -> Iterator[Value]:
    from tf_stitch.ir.graph import Value

    yield from (Value(node.name, index) for index in range(len(node.types)))


def _typed(graph: Graph, value: Value) -> str:
    return f"{value}: {graph.type_of(value)}"


def _attributes(attributes: Mapping[str, Any]) -> Iterator[str]:
    for name, value in sorted(attributes.items()):
        if not name.startswith("_"):
            yield f"{name}={_value(value)}"


def _value(value: Any) -> str:
    match value:
        case np.ndarray():
            shown = ", ".join(map(str, value.ravel()[:_SHOWN]))
            return f"[{shown}{', …' if value.size > _SHOWN else ''}]" if value.shape else shown
        case DType():
            return value.value
        case tuple():
            return f"({', '.join(map(_value, value))})"
        case _:
            return str(value)
