"""What can be explained: the graphs of a SavedModel, or what Grappler would hand us of a function.

Nothing is run. A function is traced, and Grappler is asked to optimize it up to the point where "tf_stitch"
stands; the graph that arrives there is the one that would be stitched.
"""

from __future__ import annotations

import threading
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import config_pb2, device_properties_pb2, meta_graph_pb2
from tensorflow.python.grappler import cluster, tf_optimizer
from tensorflow.python.ops import handle_data_util

from tf_stitch.errors import UsageError
from tf_stitch.frontend import grappler, options
from tf_stitch.frontend.importer import import_graph_def
from tf_stitch.frontend.rewrite import OP
from tf_stitch.frontend.saved_model import read_saved_model, units_of
from tf_stitch.report.explanation import StitchedAlready
from tf_stitch.runtime import stitch_op

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tf_stitch.ir.graph import Graph

_OUTPUT = "explained_output"
_lock = threading.Lock()  # of the callback, which is Grappler's one and only


@dataclass(frozen=True)
class Graphs:
    """What there is to explain; see Explanation for `skipped` and `already`."""

    graphs: tuple[Graph, ...]
    skipped: dict[str, str]
    already: tuple[StitchedAlready, ...] = ()


def of_saved_model(path: Path) -> Graphs:
    """The graphs that `convert_saved_model` would look at.

    Raises:
      UsageError: where `path` is no SavedModel.
    """
    if not path.is_dir():
        raise UsageError(f"{path} does not exist; give the directory of a SavedModel.")
    proto = read_saved_model(path)
    already = tuple(_stitch_ops(proto))
    if already:
        return Graphs((), {}, already)
    units, skipped = units_of(proto)
    return Graphs(tuple(unit.graph for unit in units), skipped)


def _stitch_ops(proto: Any) -> list[StitchedAlready]:
    found: list[StitchedAlready] = []
    for meta_graph in proto.meta_graphs:
        library = meta_graph.graph_def.library.function
        places = [("", meta_graph.graph_def.node), *((f.signature.name, f.node_def) for f in library)]
        for function, nodes in places:
            for node in nodes:
                if node.op == OP:
                    replaced = tuple(node.experimental_debug_info.original_node_names)
                    key = node.attr["key"].s.decode(errors="replace")
                    found.append(StitchedAlready(node.name, function, key, replaced))
    return found


def of_function(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Graphs:
    """The graph of a tf.function, a concrete function or a Python function, for these arguments or specs."""
    concrete = function
    if not hasattr(function, "function_def"):
        traced = function if hasattr(function, "get_concrete_function") else tf.function(function)
        concrete = traced.get_concrete_function(*args, **kwargs)
    name = getattr(function, "__name__", None) or concrete.name
    if concrete.function_def.attr["_XlaMustCompile"].b:
        return Graphs((), {name: "compiled by XLA (jit_compile=True)"})
    item = _optimized(concrete)
    if item is None:
        return Graphs((), {name: "Grappler leaves it alone: it is empty, or optimization is off"})
    graph_def = graph_pb2.GraphDef.FromString(item.graph)
    shapes = grappler.shapes_of(graph_def.node, item)
    return Graphs((import_graph_def(graph_def, shapes=shapes, fetched=item.preserve, name=name),), {})


def _optimized(concrete: Any) -> Any:
    """The item that Grappler gives to "tf_stitch" for this function, or None."""
    params = f"explain {uuid.uuid4()}"
    config = config_pb2.ConfigProto()
    options.add_optimizer(config, params)
    names = config.graph_options.rewrite_options.optimizers
    del names[list(names).index(stitch_op.OPTIMIZER_NAME) + 1 :]
    config.graph_options.rewrite_options.meta_optimizer_iterations = 1  # ONE
    items: list[Any] = []
    own = grappler.install()

    def capture(item: Any) -> bytes | None:
        if item.params != params:
            return own(item)
        items.append(item)
        return None

    with _lock:
        stitch_op.set_optimizer_callback(capture)
        try:
            tf_optimizer.OptimizeGraph(config, _meta_graph(concrete), verbose=False, cluster=_cpu())
        finally:
            stitch_op.set_optimizer_callback(own)
    return items[-1] if items else None


def _cpu() -> Any:
    """One CPU: which machine it is does not matter to what is optimized before us."""
    properties = device_properties_pb2.DeviceProperties(type="CPU", num_cores=1, frequency=1000)
    name = "/job:localhost/replica:0/task:0/device:CPU:0"
    return cluster.Cluster(devices=[device_properties_pb2.NamedDevice(name=name, properties=properties)])


def _meta_graph(concrete: Any) -> Any:
    """The function's graph as it is when it runs: its outputs are `_Retval`s, its variables have shapes."""
    meta_graph = meta_graph_pb2.MetaGraphDef()
    graph_def = meta_graph.graph_def
    graph_def.CopyFrom(concrete.graph.as_graph_def())
    placeholders = {tensor.op.name: tensor for tensor in concrete.graph.inputs if tensor.dtype == tf.resource}
    for node in graph_def.node:
        if node.name not in placeholders:
            continue
        handle = handle_data_util.get_resource_handle_data(placeholders[node.name])
        if handle.is_set and len(handle.shape_and_type) == 1:
            node.op = "VarHandleOp"
            node.ClearField("attr")
            node.attr["dtype"].type = handle.shape_and_type[0].dtype
            node.attr["shape"].shape.CopyFrom(handle.shape_and_type[0].shape)
            node.attr["shared_name"].s = node.name.encode()
    fetched = meta_graph.collection_def["train_op"].node_list.value
    for index, tensor in enumerate(concrete.graph.outputs):
        node = graph_def.node.add(name=f"{_OUTPUT}_{index}", op="_Retval", input=[tensor.name])
        node.attr["T"].type = tensor.dtype.as_datatype_enum
        node.attr["index"].i = index
        fetched.append(node.name)
    fetched.extend(op.name for op in concrete.graph.control_outputs)
    return meta_graph
