"""Nodes of a Graph -> Body: each node is expanded by its OpDef, in one builder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tf_stitch.errors import Reason, Unsupported
from tf_stitch.ir.body import Body, BodyBuilder, Extent
from tf_stitch.ir.graph import Graph, Node, Value
from tf_stitch.ir.types import ALL, Dim, TensorType
from tf_stitch.ops import FUNCTIONS, OPS, REDUCERS, Operands


@dataclass(frozen=True)
class Expansion:
    """Nodes written as a body, with the values that its inputs and outputs stand for.

    constants: the Const nodes that were read statically or as scalars.
    """

    body: Body
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    constants: tuple[str, ...]


def expand(graph: Graph, names: Sequence[str], outputs: Sequence[Value]) -> Expansion:
    """Expands `names` (in topological order); `outputs` are the values that others read.

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
                    scalar = builder.constant(constant.reshape(()), graph.type_of(value).dtype)
                    steps[value] = builder.reshape(scalar, tuple(Dim(1) for _ in constant.shape))
                return None if is_static else steps[value]
        if value.node in inside:
            return steps[value]
        if value not in inputs:
            inputs[value] = None
            if value in data:
                steps[value] = builder.input(graph.type_of(value))
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
            raise Unsupported(Reason.UNSUPPORTED_OP, f"output {value.index} of {graph.nodes[value.node].op} is not computed")
        results.append(step)
    body = _canonical_symbols(_with_input_origins(builder.finish(results), tuple(inputs)))
    return Expansion(body, tuple(inputs), tuple(outputs), tuple(constants))


def _data_operands(graph: Graph, names: Sequence[str]) -> set[Value]:
    """Values that some node reads as data (and not only statically)."""
    found: set[Value] = set()
    for name in names:
        node = graph.nodes[name]
        static = OPS[node.op].static_operands(len(node.inputs))
        found.update(v for i, v in enumerate(node.inputs) if i not in static)
    return found


def _expand_node(builder: BodyBuilder, graph: Graph, node: Node, operand) -> Sequence[int | None]:  # type: ignore[no-untyped-def]
    definition = OPS[node.op]
    static = definition.static_operands(len(node.inputs)) if node.inputs else frozenset[int]()
    operands = Operands(
        node,
        tuple(operand(v, i in static) for i, v in enumerate(node.inputs)),
        tuple(graph.constants.get(v) for v in node.inputs),
        tuple(graph.extents.get(v) for v in node.inputs),
    )
    result = definition.expand(builder, operands)
    return [result] if isinstance(result, int) else result


def _with_input_origins(body: Body, inputs: tuple[Value, ...]) -> Body:
    """Inputs are named after the nodes that make them."""
    from tf_stitch.ir.body import Input

    steps = tuple(
        replace(s, origin=inputs[s.op.index].node) if isinstance(s.op, Input) else s for s in body.steps
    )
    return replace(body, steps=steps)


def _canonical_symbols(body: Body) -> Body:
    """Symbols renamed in the order in which the inputs show them, so that equal clusters have equal bodies."""
    names: dict[str, str] = {}
    types = [t for t in body.inputs if t is not None] + [s.type for s in body.steps]
    for type_ in types:
        for dim in type_.dims:
            for symbol in dim.symbols:
                names.setdefault(symbol, f"d{len(names)}")

    def dim_of(dim: Dim) -> Dim:
        return Dim(dim.coefficient, tuple(sorted(names[s] for s in dim.symbols)))

    def type_of(type_: TensorType) -> TensorType:
        return TensorType(type_.dtype, tuple(dim_of(d) for d in type_.dims))

    steps = tuple(
        replace(s, type=type_of(s.type), op=Extent(dim_of(s.op.dim)) if isinstance(s.op, Extent) else s.op)
        for s in body.steps
    )
    return Body(steps, tuple(None if t is None else type_of(t) for t in body.inputs), body.outputs)
