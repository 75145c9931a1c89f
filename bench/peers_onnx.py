"""TensorFlow's graphs as ONNX files, by tf2onnx. Runs in the environment of `make venv-peers`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bench.peers_case import Exported
from bench.peers_protocol import Answer, Refused, reason

OPSET = 18  # the newest that tf2onnx writes


def convert(directory: str, to: str) -> Answer:
    """The case in a directory -> an ONNX file, and beside it `…-empty.onnx`: as many inputs, and nothing to do.

    Raises:
      Refused: where tf2onnx has no form of an op.
    """
    path = Path(to)
    if not path.exists():
        case = Exported.read(Path(directory))
        partial = path.with_suffix(".partial")
        _convert_graph(Path(directory), case, partial)
        _refuse_invalid(partial)
        partial.rename(path)
        _write_empty(path)
    return {}


def empty_of(path: Path) -> Path:
    return path.with_name(f"{path.stem}-empty.onnx")


def _convert_graph(directory: Path, case: Exported, path: Path) -> None:
    import tensorflow as tf
    import tf2onnx  # pyright: ignore[reportMissingImports]

    definition = tf.compat.v1.GraphDef.FromString((directory / "graph.pb").read_bytes())
    try:
        tf2onnx.convert.from_graph_def(
            definition,
            input_names=list(case.inputs),
            output_names=list(case.outputs),
            opset=OPSET,
            custom_op_handlers={"Erfc": (_erfc, [])},
            output_path=str(path),
        )
    except Exception as error:
        raise Refused(f"tf2onnx: {reason(error)}") from error


def _erfc(graph: Any, node: Any, name: str, _arguments: object) -> None:
    """1 - erf(x). tf.nn.gelu is spelled with it, and tf2onnx has Erf alone."""
    (x,), (shape,), (dtype,) = node.input, node.output_shapes, node.output_dtypes
    graph.remove_node(node.name)
    erf = graph.make_node("Erf", [x], shapes=[shape], dtypes=[dtype])
    one = graph.make_const(f"{name}_one", np.array(1, np.float32))
    graph.make_node(
        "Sub", [one.output[0], erf.output[0]], name=name, outputs=node.output, shapes=[shape], dtypes=[dtype]
    )


def _refuse_invalid(path: Path) -> None:
    """tf2onnx writes ops that it does not know as they are, and some that it knows with more outputs than they have."""
    import onnx  # pyright: ignore[reportMissingImports]

    model = onnx.load(path, load_external_data=False)
    known = {imported.domain: imported.version for imported in model.opset_import}
    unknown = {n.op_type for n in model.graph.node if n.domain in known and not onnx.defs.has(n.op_type, n.domain)}
    if unknown:
        raise Refused(f"tf2onnx has no form of {', '.join(sorted(unknown))}")
    try:
        onnx.checker.check_model(str(path))
    except onnx.checker.ValidationError as error:
        raise Refused(f"tf2onnx writes an invalid graph: {error}") from error


def _write_empty(path: Path) -> None:
    import onnx  # pyright: ignore[reportMissingImports]

    inputs = onnx.load(path, load_external_data=False).graph.input
    x = inputs[0]
    shape = onnx.helper.make_tensor("shape", onnx.TensorProto.INT64, [1], [-1])
    begin = onnx.helper.make_tensor("begin", onnx.TensorProto.INT64, [1], [0])
    end = onnx.helper.make_tensor("end", onnx.TensorProto.INT64, [1], [1])
    nodes = [
        onnx.helper.make_node("Reshape", [x.name, "shape"], ["flat"]),
        onnx.helper.make_node("Slice", ["flat", "begin", "end"], ["first"]),
    ]
    first = onnx.helper.make_tensor_value_info("first", x.type.tensor_type.elem_type, [1])
    graph = onnx.helper.make_graph(nodes, "empty", inputs, [first], [shape, begin, end])
    imported = [onnx.helper.make_opsetid("", OPSET)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=imported, ir_version=8), empty_of(path))
