"""Fallback: a cluster as a function, for the calls that its kernel cannot serve and for gradients.

Its name is a hash of its content, so that two converted models in one process either share it or do not meet.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from tf_stitch.frontend.protos import FunctionDef, NodeDef, TensorShapeProto
from tf_stitch.frontend.signatures import signature_of
from tf_stitch.frontend.spelling import FunctionSpelling

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tf_stitch.frontend.protos import Proto
    from tf_stitch.frontend.spelling import Spelling
    from tf_stitch.ir.graph import Graph, Value
    from tf_stitch.ir.types import TensorType
    from tf_stitch.passes.clustering import Cluster

FALLBACK_PREFIX = "stitch_fallback_"

_PLACEMENT = ("_class", "_output_shapes", "_xla_inferred_shapes")


def fallback_of(
    cluster: Cluster,
    graph: Graph,
    nodes: Mapping[str, Proto],
    spelling: Spelling,
    dtype_of_value: Callable[[Value], int],
    functions: Mapping[str, Proto],
) -> Proto:
    """The cluster's nodes and copies of its constants as a FunctionDef; placement and order edges are left
    out.

    nodes: the NodeDefs of the graph, by name, whose inputs `spelling` reads.
    dtype_of_value: the DataType enum of a value of the graph.
    """
    inside = _with_constants(cluster, nodes, spelling)
    function = FunctionDef()
    names = _argument_names("in", len(cluster.inputs), inside)
    arguments = dict(zip(cluster.inputs, names, strict=True))
    for index, (value, name) in enumerate(arguments.items()):
        function.signature.input_arg.add(name=name, type=dtype_of_value(value))
        shapes = function.arg_attr[index].attr["_output_shapes"].list.shape
        shapes.append(shape_proto(graph.type_of(value)))
    written = FunctionSpelling([nodes[n] for n in inside], names, functions)
    for name in inside:
        function.node_def.append(_bare(nodes[name], spelling, written, arguments))
    results = _argument_names("out", len(cluster.outputs), [*inside, *names])
    for value, name in zip(cluster.outputs, results, strict=True):
        function.signature.output_arg.add(name=name, type=dtype_of_value(value))
        function.ret[name] = written.write(value)
    if any(_is_stateful(nodes[n], functions) for n in inside):
        function.signature.is_stateful = True
    content = function.SerializeToString(deterministic=True)
    function.signature.name = FALLBACK_PREFIX + hashlib.sha256(content).hexdigest()[:24]
    return function


def shape_proto(type_: TensorType) -> Proto:
    """What is certain of the shape: unknown rank, or dims with -1 for the unknown ones."""
    shape = TensorShapeProto()
    if type_.shape is None:
        shape.unknown_rank = True
        return shape
    for dim in type_.shape:
        shape.dim.add(size=dim.coefficient if dim.is_static else -1)
    return shape


def _with_constants(cluster: Cluster, nodes: Mapping[str, Proto], spelling: Spelling) -> list[str]:
    """The constants, what they are Identities of, and the cluster's nodes."""
    members = frozenset(cluster.nodes)
    outside = {value.node for value in cluster.inputs} | members
    found: dict[str, None] = {}

    def visit(name: str) -> None:
        if name in found or name in outside:
            return
        for text in nodes[name].input:
            if not text.startswith("^"):
                visit(spelling.read(text).node)
        found[name] = None

    for name in cluster.constants:
        visit(name)
    found.update(dict.fromkeys(cluster.nodes))
    return list(found)


def _bare(proto: Proto, spelling: Spelling, written: Spelling, arguments: Mapping[Value, str]) -> Proto:
    """A copy of a node whose inputs are spelled as in a function, and which may be placed anywhere."""
    copy = NodeDef()
    copy.CopyFrom(proto)
    copy.device = ""
    copy.ClearField("experimental_debug_info")
    values = [spelling.read(text) for text in proto.input if not text.startswith("^")]
    copy.input[:] = [arguments[v] if v in arguments else written.write(v) for v in values]
    for name in _PLACEMENT:
        if name in copy.attr:
            del copy.attr[name]
    return copy


def _argument_names(prefix: str, count: int, taken: Sequence[str]) -> list[str]:
    """`in0`, `in1`, ...: as many as asked for, none of them `taken`."""
    occupied = frozenset(taken)
    while any(f"{prefix}{i}" in occupied for i in range(count)):
        prefix += "_"
    return [f"{prefix}{i}" for i in range(count)]


def _is_stateful(proto: Proto, functions: Mapping[str, Proto]) -> bool:
    signature = signature_of(proto.op, functions)
    return signature is None or signature.stateful
