"""Nodes of a Graph -> Body: each node is expanded by its OpDef, in one builder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tf_stitch.errors import Reason, Unsupported
from tf_stitch.ir.body import Body, BodyBuilder, Input
from tf_stitch.ir.graph import Graph, Node, Value
from tf_stitch.ir.types import ALL, Dim, TensorType
from tf_stitch.ops import FUNCTIONS, OPS, REDUCERS, Operands
from tf_stitch.passes.canonical import canonical_order, canonical_symbols
from tf_stitch.passes.unroll import unroll_short_reductions
from tf_stitch.passes.zeros import without_dear_zeros


@dataclass(frozen=True)
class Expansion:
    """Nodes written as a body, with the values that its inputs and outputs stand for; both in canonical order.

    constants: the Const nodes that were read statically or as scalars.
    """

    body: Body
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    constants: tuple[str, ...]


def expand(
    graph: Graph, names: Sequence[str], outputs: Sequence[Value], types: Mapping[Value, TensorType] | None = None
) -> Expansion:
    """Expands `names` (in topological order); `outputs` are the values that others read, in any order.

    types: of inputs, where they are to be others than the graph says.

    Raises:
      Unsupported: where a node cannot be expanded.
    """
    builder = BodyBuilder(FUNCTIONS, REDUCERS)
    steps: dict[Value, int | None] = {}
    inputs: dict[Value, None] = {}
    constants: dict[str, None] = {}
    inside = set(names)
    data = _data_operands(graph, names)

    def operand(value: Value, is_static: bool) -> int | None:
        constant = graph.constants.get(value)
        if constant is not None and graph.type_of(value).dtype in ALL and (is_static or constant.size == 1):
            constants[value.node] = None
            if is_static and value not in data:
                return None
            if constant.size == 1:
                if value not in steps:
                    scalar = builder.constant(constant.item(), graph.type_of(value).dtype)
                    steps[value] = builder.reshape(scalar, tuple(Dim(1) for _ in constant.shape))
                return None if is_static else steps[value]
        if value.node in inside:
            return steps[value]
        if value not in inputs:
            inputs[value] = None
            if value in data:
                known = graph.type_of(value)
                steps[value] = builder.input(known if types is None else types.get(value, known))
            else:
                builder.skip_input()
        return None if is_static else steps[value]

    for name in names:
        node = graph.nodes[name]
        builder.origin = name
        for index, step in enumerate(_expand_node(builder, graph, node, operand)):
            steps[Value(name, index)] = step
    results: list[int] = []
    for value in outputs:
        step = steps.get(value)
        if step is None:
            raise Unsupported(
                Reason.UNSUPPORTED_OP, f"output {value.index} of {graph.nodes[value.node].op} is not computed"
            )
        results.append(step)
    body = without_dear_zeros(unroll_short_reductions(builder.finish(results)))
    ordered = canonical_order(_with_input_origins(body))
    sources = tuple(inputs)
    return Expansion(
        canonical_symbols(ordered.body),
        tuple(sources[i] for i in ordered.inputs),
        tuple(outputs[i] for i in ordered.outputs),
        tuple(constants),
    )


def _data_operands(graph: Graph, names: Sequence[str]) -> set[Value]:
    """Values that some node reads as data (and not only statically)."""
    found: set[Value] = set()
    for name in names:
        node = graph.nodes[name]
        static = OPS[node.op].static_operands(len(node.inputs), knowledge(graph, node))
        found.update(v for i, v in enumerate(node.inputs) if i not in static)
    return found


def knowledge(graph: Graph, node: Node) -> Callable[[int], bool]:
    """Whether the value of each operand of a node is known, if only as dims."""
    return lambda i: node.inputs[i] in graph.constants or node.inputs[i] in graph.extents


def _expand_node(
    builder: BodyBuilder, graph: Graph, node: Node, operand: Callable[[Value, bool], int | None]
) -> Sequence[int | None]:
    definition = OPS[node.op]
    known = knowledge(graph, node)
    static = definition.static_operands(len(node.inputs), known) if node.inputs else frozenset[int]()
    operands = Operands(
        node,
        tuple(operand(v, i in static) for i, v in enumerate(node.inputs)),
        tuple(graph.constants.get(v) for v in node.inputs),
        tuple(graph.extents.get(v) for v in node.inputs),
    )
    result = definition.expand(builder, operands)
    return [result] if isinstance(result, int) else result


def _with_input_origins(body: Body) -> Body:
    """Inputs are named after the first node that reads them: copies of a block are fed by nodes of other names."""
    first = {operand: step.origin for step in reversed(body.steps) for operand in step.operands}
    steps = tuple(
        replace(s, origin=first.get(i, "")) if isinstance(s.op, Input) else s for i, s in enumerate(body.steps)
    )
    return replace(body, steps=steps)
