"""Shapes by TensorFlow's own inference, for graphs that carry none (models saved long ago)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf
from tensorflow.python.framework import function_def_to_graph

from tf_stitch.frontend.protos import GraphDef

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tf_stitch.frontend.protos import Proto
    from tf_stitch.frontend.typing_pass import Declared


def shapes_by_tensorflow(definition: Proto, functions: Mapping[str, Proto] | None = None) -> dict[str, list[Declared]]:
    """The shapes of every node's outputs in a GraphDef, or with `functions` in a FunctionDef.

    Empty where TensorFlow cannot import it (an op that is not registered): then only ranks that our own table
    can infer are known, and less is stitched.
    """
    try:
        with tf.Graph().as_default() as graph:
            if functions is not None:
                library = GraphDef()
                library.library.function.extend(functions.values())
                tf.graph_util.import_graph_def(library, name="")
                definition, _ = function_def_to_graph.function_def_to_graph_def(definition)
            tf.graph_util.import_graph_def(definition, name="")
    except Exception:  # noqa: BLE001  TensorFlow raises what it likes for a graph it does not take
        return {}
    return {op.name: [_declared(output.shape) for output in op.outputs] for op in graph.get_operations()}


def _declared(shape: tf.TensorShape) -> Declared:
    return None if shape.rank is None else tuple(shape.as_list())
