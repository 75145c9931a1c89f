"""Graphs written by hand, whose nodes may have any name, and what the pipeline makes of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tf_stitch import pipeline
from tf_stitch.config import Config
from tf_stitch.ir.graph import Graph, Node, Value
from tf_stitch.ir.types import DType, TensorType, shape_of
from tf_stitch.pipeline import Stitched
from tf_stitch.plan.target import Target
from tf_stitch.report.explain import NoToolchain
from tf_stitch.report.explanation import Explanation, explained_graph

X = TensorType(DType.F32, shape_of("batch", 64))
ROW = TensorType(DType.F32, shape_of("batch", 1))


def layer_norm(prefix: str = "", name: str = "serve") -> Graph:
    """MatMul -> layer norm -> Exp of other rank ... as TensorFlow spells it; every name begins with `prefix`."""
    nodes: dict[str, Node] = {}
    constants: dict[Value, Any] = {}

    def value(node: str) -> Value:
        return Value(f"{prefix}{node}")

    def add(node: str, op: str, inputs: tuple[str, ...], type_: TensorType, **attributes: Any) -> None:
        made = Node(f"{prefix}{node}", op, tuple(map(value, inputs)), (type_,), attributes=attributes)
        nodes[made.name] = made

    def constant(node: str, content: Any) -> None:
        array = np.asarray(content)
        dtype = DType.I32 if array.dtype.kind == "i" else DType.F32
        add(node, "Const", (), TensorType(dtype, shape_of(*array.shape)), dtype=dtype, value=array)
        constants[value(node)] = array

    add("x", "_Arg", (), X)
    add("w", "_Arg", (), TensorType(DType.F32, shape_of(64, 64)))
    add("gamma", "_Arg", (), TensorType(DType.F32, shape_of(64)))
    add("product", "MatMul", ("x", "w"), X, T=DType.F32, transpose_a=False, transpose_b=True)
    constant("axis", np.int32(-1))
    constant("epsilon", np.float32(1e-3))
    add("mean", "Mean", ("product", "axis"), ROW, T=DType.F32, Tidx=DType.I32, keep_dims=True)
    add("centred", "Sub", ("product", "mean"), X, T=DType.F32)
    add("squared", "Square", ("centred",), X, T=DType.F32)
    add("variance", "Mean", ("squared", "axis"), ROW, T=DType.F32, Tidx=DType.I32, keep_dims=True)
    add("padded", "AddV2", ("variance", "epsilon"), ROW, T=DType.F32)
    add("scale", "Rsqrt", ("padded",), ROW, T=DType.F32)
    add("normal", "Mul", ("centred", "scale"), X, T=DType.F32)
    add("y", "Mul", ("normal", "gamma"), X, T=DType.F32)
    return Graph(name, nodes, returned=frozenset({value("y")}), constants=constants)


def stitched(*graphs: Graph, observer: pipeline.Observer | None = None, config: Config | None = None) -> list[Stitched]:
    """What becomes of the graphs for x86-64-v3, up to the compiler."""
    target = Target.baseline("x86-64-v3")
    toolchain: Any = NoToolchain(target.requires)
    return pipeline.stitch_all(graphs, config or Config(), target, toolchain, observer=observer)


def explanation(*graphs: Graph, target: str = "model", config: Config | None = None) -> Explanation:
    explained = tuple(explained_graph(made, config or Config()) for made in stitched(*graphs, config=config))
    return Explanation(target, "x86-64-v3", explained)
