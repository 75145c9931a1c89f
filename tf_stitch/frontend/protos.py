"""TensorFlow's messages, in one place: it ships no types for them, so to a type checker they are Any."""

# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from typing import Any

from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2, tensor_shape_pb2
from tensorflow.core.protobuf import config_pb2, rewriter_config_pb2, saved_model_pb2

Proto = Any

ConfigProto: Any = config_pb2.ConfigProto
FunctionDef: Any = function_pb2.FunctionDef
GraphDef: Any = graph_pb2.GraphDef
NodeDef: Any = node_def_pb2.NodeDef
RewriterConfig: Any = rewriter_config_pb2.RewriterConfig
SavedModel: Any = saved_model_pb2.SavedModel
TensorShapeProto: Any = tensor_shape_pb2.TensorShapeProto
