"""The launches of a tf.function, stitched or not: the graph that runs tells the sizes, a trace how often ops ran."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2, tensor_shape_pb2
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2
from tensorflow.python.eager import context
from tensorflow.python.framework import function_def_to_graph
from tensorflow.python.grappler import item, tf_optimizer

from bench import kernel_trace
from bench.kernel_rule import Launch, kind_of_op

Sizes = tuple[int | None, ...]
_ARGUMENTS = ("_Arg", "Placeholder")
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_SPECIALISED = re.compile("_specialized_for_.*")
_UNKNOWN = tensor_shape_pb2.TensorShapeProto(unknown_rank=True)


def launches(call: Callable[[], object]) -> tuple[Launch, ...]:
    """What one call of a function runs. It must not have been called before: see `kernel_trace.executed_nodes`."""
    tf_context: Any = context.context()
    tf_context.enable_graph_collection()
    try:
        kernel_trace.executed_nodes(call)
        collected = tf_context.export_run_metadata()
    finally:
        tf_context.disable_graph_collection()
    sizes: dict[str, Sizes] = defaultdict(tuple)
    for function in collected.function_graphs:
        for graph in function.partition_graphs:
            graph.library.CopyFrom(function.pre_optimization_graph.library)
            _collect(graph, sizes)
    return tuple(
        Launch(node, op, kind_of_op(op, sizes.get(node, (None,))), times)
        for (node, op), times in kernel_trace.executed_nodes(call).items()
    )


def _collect(graph: graph_pb2.GraphDef, sizes: dict[str, Sizes]) -> None:
    """Node → elements of each of its operands and results, in this graph and the functions that it calls.

    The nodes of a function are traced under the names that they have in it: of two with the same name, and of two
    calls, it gets the sizes together. Grappler specialises functions, and tells nobody; so the original is looked at.
    """
    functions = {function.signature.name: function for function in graph.library.function}
    called = {n.name: functions.get(_SPECIALISED.sub("", n.attr["f"].func.name)) for n in graph.node if n.op in _CALLS}
    graph = _closed(graph)
    shapes = item.Item(_item(graph)).GetOpProperties()
    results = {name: [output.shape for output in outputs] for name, outputs in shapes.items()}

    def read(text: str) -> tensor_shape_pb2.TensorShapeProto:
        producer, _, index = text.partition(":")
        known = results.get(producer, [])
        return known[int(index or 0)] if int(index or 0) < len(known) else _UNKNOWN

    for node in graph.node:
        operands = [read(text) for text in node.input if not text.startswith("^")]
        sizes[node.name] += tuple(map(_elements, (*operands, *results.get(node.name, [])))) or (None,)
        function = called.get(node.name)
        if function is not None:
            _collect(_inlined(function, operands, graph.library), sizes)


def _inlined(
    function: function_pb2.FunctionDef,
    operands: list[tensor_shape_pb2.TensorShapeProto],
    library: function_pb2.FunctionDefLibrary,
) -> graph_pb2.GraphDef:
    """The function's graph for operands of these shapes, its loops lowered as they are when it runs."""
    known = operands if len(operands) == len(function.signature.input_arg) else None
    graph, names = function_def_to_graph.function_def_to_graph_def(function, known)
    graph.library.CopyFrom(library)
    config = config_pb2.ConfigProto()
    config.graph_options.rewrite_options.optimizers.append("function")
    config.graph_options.rewrite_options.min_graph_nodes = -1
    meta_graph = _item(graph, [names[result].partition(":")[0] for result in function.ret.values()])
    return tf_optimizer.OptimizeGraph(config, meta_graph)


def _item(graph: graph_pb2.GraphDef, fetched: Iterable[str] = ()) -> meta_graph_pb2.MetaGraphDef:
    """The graph as Grappler takes it. Without `fetched`, what it returns is."""
    meta_graph = meta_graph_pb2.MetaGraphDef(graph_def=graph)
    names = list(fetched) or [node.name for node in graph.node if node.op == "_Retval"] or [graph.node[-1].name]
    meta_graph.collection_def["train_op"].node_list.value.extend(names)
    return meta_graph


def _closed(graph: graph_pb2.GraphDef) -> graph_pb2.GraphDef:
    """The graph with sources in place of its arguments, and with calls of nothing known."""
    changed = graph_pb2.GraphDef()
    changed.CopyFrom(graph)
    for node in changed.node:
        if node.op in _ARGUMENTS:
            _become_source(node)
        elif node.op in _CALLS:
            _become_opaque(node)
    return changed


def _become_opaque(node: node_def_pb2.NodeDef) -> None:
    """The call becomes an op with the same inputs and outputs, of which no shapes are known."""
    for name in set(node.attr) - {"Tin", "Tout"}:
        del node.attr[name]
    node.op = "PyFunc"
    node.attr["token"].s = b""


def _become_source(node: node_def_pb2.NodeDef) -> None:
    """An argument becomes a constant of its shape, or a variable: of a Placeholder Grappler trusts no shape."""
    argument = node_def_pb2.NodeDef()
    argument.CopyFrom(node)
    node.ClearField("attr")
    handles = argument.attr["_handle_shapes"].list.shape
    if len(handles) == 1:
        node.op = "VarHandleOp"
        node.attr["dtype"].type = argument.attr["_handle_dtypes"].list.type[0]
        node.attr["shape"].shape.CopyFrom(handles[0])
        return
    given = argument.attr["shape"].shape if "shape" in argument.attr else _UNKNOWN
    shapes = argument.attr["_output_shapes"].list.shape or [given]
    node.op = "ImmutableConst"
    node.attr["dtype"].type = argument.attr["T"].type or argument.attr["dtype"].type
    node.attr["shape"].shape.CopyFrom(shapes[0])
    node.attr["memory_region_name"].s = b""


def _elements(shape: tensor_shape_pb2.TensorShapeProto) -> int | None:
    dims = [dim.size for dim in shape.dim]
    return None if shape.unknown_rank or any(d < 0 for d in dims) else math.prod(dims)
