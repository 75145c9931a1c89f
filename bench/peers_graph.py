"""A function of tensors as a GraphDef that others can convert: inlined, constants folded, every shape known."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from bench.peers_case import write_arrays

# No remapper: its ops (_FusedBatchNormEx) are known to TensorFlow alone.
_OPTIMIZERS = ("function", "constfold", "dependency")


Names = tuple[tuple[str, ...], tuple[str, ...]]  # of inputs, of outputs


def export(function: Callable[..., Any], arguments: Sequence[np.ndarray], directory: Path) -> Names:
    """Writes graph.pb, graph.json and constants.npz."""
    concrete = _concrete(function, arguments)
    definition = _optimized(concrete)
    (directory / "graph.pb").write_bytes(definition.SerializeToString())
    names = _names(concrete)
    _write_json(definition, names, directory)
    return names


def export_model(function: Callable[..., Any], arguments: Sequence[np.ndarray], directory: Path) -> Names:
    """Writes graph.pb alone, with variables as constants."""
    from tensorflow.python.framework import convert_to_constants  # pyright: ignore[reportMissingImports]

    frozen = convert_to_constants.convert_variables_to_constants_v2(_concrete(function, arguments))
    (directory / "graph.pb").write_bytes(frozen.graph.as_graph_def().SerializeToString())
    return _names(frozen)


def _concrete(function: Callable[..., Any], arguments: Sequence[np.ndarray]) -> Any:
    specs = [tf.TensorSpec(a.shape, a.dtype) for a in arguments]
    return tf.function(function, autograph=False).get_concrete_function(*specs)


def _names(concrete: Any) -> Names:
    return tuple(tensor.name for tensor in concrete.inputs), tuple(tensor.name for tensor in concrete.outputs)


def _write_json(definition: Any, names: Names, directory: Path) -> None:
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(definition, name="")
    operations = graph.get_operations()  # in the order of their edges
    constants = [op for op in operations if op.type == "Const"]
    write_arrays(directory / "constants.npz", [tf.make_ndarray(op.get_attr("value")) for op in constants])
    nodes = [_node(op) for op in operations if op.type not in ("Const", "Placeholder")]
    said = {"inputs": names[0], "outputs": names[1], "nodes": nodes, "constants": [f"{op.name}:0" for op in constants]}
    (directory / "graph.json").write_text(json.dumps(said))


def _optimized(concrete: Any) -> Any:
    from tensorflow.core.protobuf import config_pb2, meta_graph_pb2
    from tensorflow.python.grappler import tf_optimizer  # pyright: ignore[reportMissingImports]

    definition = concrete.graph.as_graph_def(add_shapes=True)
    meta = tf.compat.v1.train.export_meta_graph(graph_def=definition, graph=concrete.graph)
    kept = meta_graph_pb2.CollectionDef()
    kept.node_list.value.extend(tensor.name for tensor in (*concrete.inputs, *concrete.outputs))
    meta.collection_def["train_op"].CopyFrom(kept)
    config = config_pb2.ConfigProto()
    rewrites = config.graph_options.rewrite_options
    rewrites.optimizers.extend(_OPTIMIZERS)
    rewrites.min_graph_nodes = -1  # it would leave small graphs alone
    return tf_optimizer.OptimizeGraph(config, meta)


def _node(op: Any) -> dict[str, Any]:
    attributes = {name: _plain(op.get_attr(name)) for name in op.node_def.attr if not name.startswith("_")}
    return {
        "name": op.name,
        "op": op.type,
        "inputs": [tensor.name for tensor in op.inputs],
        "results": len(op.outputs),
        "attributes": {name: value for name, value in attributes.items() if value is not None},
    }


def _plain(value: Any) -> Any:
    """What JSON has; None for types and shapes, which the values tell."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list) and all(isinstance(v, int) for v in value):
        return value
    return None
