"""TensorFlow.js graph models as GraphDefs.

The .json holds a GraphDef whose constants lie in .bin files, possibly as float16, or as integers in steps of a scale.
TensorFlow.js has fused some convolutions with their bias and activation, into ops that TensorFlow has no public kernel
for; they are taken apart here:

    _FusedConv2D(x, w, bias, alpha)            Conv2D(x, w) → BiasAdd(·, bias) → Prelu(·, alpha)
      fused_ops = [BiasAdd, Prelu]       →     Prelu(x, a) = Relu(x) + (−a) · Relu(−x), as Keras computes it
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
from google.protobuf import json_format
from tensorflow.core.framework import graph_pb2, node_def_pb2, types_pb2
from tensorflow.python.framework import dtypes, tensor_util

NodeDef: TypeAlias = node_def_pb2.NodeDef

UNFUSED = {
    "_FusedConv2D": "Conv2D",
    "FusedDepthwiseConv2dNative": "DepthwiseConv2dNative",
}
CONVOLUTION_ATTRS = ("strides", "padding", "data_format", "dilations")


def graph_def(model: Mapping[str, Any], weights: bytes) -> graph_pb2.GraphDef:
    """The GraphDef of a parsed model.json and the bytes of its weight files, joined."""
    parsed = graph_pb2.GraphDef()
    topology = {key: model["modelTopology"][key] for key in ("node", "versions")}
    json_format.ParseDict(topology, parsed, ignore_unknown_fields=True)
    constants = _constants(model["weightsManifest"], weights)
    graph = graph_pb2.GraphDef()
    graph.versions.producer = 1087
    for node in parsed.node:
        node.device = ""
        if node.op == "Const":
            value = constants[node.name]
            node.attr["dtype"].type = dtypes.as_dtype(value.dtype).as_datatype_enum
            node.attr["value"].tensor.CopyFrom(tensor_util.make_tensor_proto(value))
        graph.node.extend(_unfused(node))
    return graph


def _constants(manifest: Iterable[Mapping[str, Any]], weights: bytes) -> dict[str, np.ndarray]:
    constants: dict[str, np.ndarray] = {}
    offset = 0
    for entry in (entry for group in manifest for entry in group["weights"]):
        coding = entry.get("quantization", entry)
        stored = np.dtype(coding["dtype"])
        count = int(np.prod(entry["shape"]))
        values = np.frombuffer(weights, stored, count, offset).reshape(entry["shape"])
        if "scale" in coding:
            values = values * np.float64(coding["scale"]) + coding["min"]
            values = np.floor(values + 0.5) if entry["dtype"] == "int32" else values  # as Math.round
        constants[entry["name"]] = values.astype(entry["dtype"])
        offset += count * stored.itemsize
    return constants


def _unfused(node: NodeDef) -> Iterator[NodeDef]:
    """The node as nodes that TensorFlow runs; the last one bears its name."""
    if node.op == "Prelu":
        yield from _prelu(node.name, *node.input)
    elif node.op not in UNFUSED:
        yield node
    else:
        x, kernel, *operands = node.input
        fused = [name.decode() for name in node.attr["fused_ops"].list.s]
        names = [f"{node.name}/{op}" for op in (UNFUSED[node.op], *fused[:-1])] + [node.name]
        convolution = _float_node(UNFUSED[node.op], names[0], x, kernel)
        for attr in CONVOLUTION_ATTRS:
            convolution.attr[attr].CopyFrom(node.attr[attr])
        yield convolution
        for op, before, name in zip(fused, names[:-1], names[1:], strict=True):
            match op:
                case "BiasAdd":
                    yield _float_node(op, name, before, operands.pop(0))
                case "Prelu":
                    yield from _prelu(name, before, operands.pop(0))
                case "Relu" | "Relu6" | "Elu":
                    yield _float_node(op, name, before)
                case _:
                    raise ValueError(f"{node.name} has fused {op}, which this converter does not know")


def _prelu(name: str, x: str, alpha: str) -> Iterator[NodeDef]:
    yield _float_node("Relu", f"{name}/positive", x)
    yield _float_node("Neg", f"{name}/minus_x", x)
    yield _float_node("Relu", f"{name}/negative", f"{name}/minus_x")
    yield _float_node("Neg", f"{name}/minus_alpha", alpha)
    yield _float_node("Mul", f"{name}/scaled", f"{name}/minus_alpha", f"{name}/negative")
    yield _float_node("AddV2", name, f"{name}/positive", f"{name}/scaled")


def _float_node(op: str, name: str, *inputs: str) -> NodeDef:
    node = NodeDef(op=op, name=name, input=inputs)
    node.attr["T"].type = types_pb2.DT_FLOAT
    return node
