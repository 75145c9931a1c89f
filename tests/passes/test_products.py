"""Which products and convolutions are computed by kernels: small ones, on CPUs. TensorFlow has the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.passes.drawing import Drawing, checked, f32
from tf_stitch.config import Config
from tf_stitch.errors import Reason
from tf_stitch.ir.graph import Graph
from tf_stitch.ir.types import DType, TensorType, shape_of


def dense(rows: int | str, depth: int, columns: int, op: str = "MatMul", **attributes: Any) -> Graph:
    """relu(x @ w + b), as a product or as a convolution over pixels."""
    d = Drawing()
    if op == "MatMul":
        x, w = f32(rows, depth), f32(columns, depth) if attributes.get("transpose_b") else f32(depth, columns)
    else:
        side, depthwise = attributes.pop("size", 1), op == "DepthwiseConv2dNative"
        x, w = f32(1, rows, 4, depth), f32(side, side, depth, 1 if depthwise else columns)
    y = f32(*attributes.pop("result", x.dims[:-1]), columns)
    product = d.node("product", op, d.input("x", x), d.input("w", w), type_=y, **attributes)
    return d.graph(returned=[d.node("y", "Relu", d.node("biased", "BiasAdd", product, d.input("b", f32(columns))))])


ONES = {"strides": (1, 1, 1, 1), "padding": "SAME"}
SMALL = {
    "small": dense("B", 8, 8),
    "as large as it may be": dense(64, 256, 256),
    "weights that are turned round for many rows": dense(64, 24, 8, transpose_b=True),
    "pixels": dense(7, 16, 24, "Conv2D", **ONES),
    "a filter of nine pixels": dense(7, 16, 24, "Conv2D", size=3, **ONES),
    "every other pixel": dense(7, 16, 24, "Conv2D", strides=(1, 2, 2, 1), padding="SAME", result=(1, 4, 2)),
    "few filters, however many pixels": dense(1 << 16, 32, 32, "Conv2D", size=3, **ONES),
    "depthwise": dense(7, 24, 24, "DepthwiseConv2dNative", size=3, **ONES),
    "a depthwise one of a large image": dense(1 << 16, 64, 64, "DepthwiseConv2dNative", size=3, **ONES),
    "a single filter": dense(7, 16, 1, "Conv2D", size=3, **ONES),
}
LARGE = {
    "weights that fit no cache": dense("B", 256, 257),
    "many rows": dense(4096, 256, 256),
    "weights that would be turned round for who knows how many rows": dense("B", 8, 8, transpose_b=True),
    "weights that would be turned round for few rows": dense(16, 24, 8, transpose_b=True),
    "many pixels": dense(1024, 256, 256, "Conv2D", **ONES),
    "many pixels, and filters of nine": dense(1 << 12, 64, 64, "Conv2D", size=3, **ONES),
}
OTHERS = {
    "channels first": dense(7, 16, 24, "Conv2D", data_format="NCHW", **ONES),
}


def found(graph: Graph, config: Config | None = None) -> tuple[list[tuple[str, ...]], dict[str, Reason]]:
    clustering = checked(graph, config or Config())
    return [c.nodes for c in clustering.clusters], {r.node: r.reason for r in clustering.rejections}


@pytest.mark.parametrize("name", SMALL)
def test_a_small_product_and_what_follows_are_one_kernel(name: str) -> None:
    assert found(SMALL[name]) == ([("product", "biased", "y")], {})


@pytest.mark.parametrize("name", LARGE)
def test_a_large_one_is_tensorflows_with_what_it_folds(name: str) -> None:
    clusters, reasons = found(LARGE[name])
    assert not clusters
    assert set(reasons.values()) == {Reason.NOT_PROFITABLE}


def test_a_dilated_depthwise_convolution_is_left_to_raise_tensorflows_error() -> None:
    graph = dense(7, 24, 24, "DepthwiseConv2dNative", size=3, dilations=(1, 2, 2, 1), **ONES)
    clusters, reasons = found(graph)
    assert clusters == [("biased", "y")]
    assert reasons["product"] is Reason.UNSUPPORTED_OP


@pytest.mark.parametrize("name", OTHERS)
def test_no_product_of_neighbouring_columns(name: str) -> None:
    clusters, reasons = found(OTHERS[name])
    assert not clusters
    assert reasons["product"] is Reason.UNSUPPORTED_OP


@pytest.mark.parametrize("config", [Config(product_stitching=False), Config(target="cuda:sm_80")])
def test_none_for_gpus_nor_where_it_is_turned_off(config: Config) -> None:
    clusters, reasons = found(SMALL["small"], config)
    assert not any("product" in nodes for nodes in clusters)
    assert reasons["product"] is Reason.NOT_PROFITABLE


def test_a_product_that_no_kernel_computes_well_is_tensorflows() -> None:
    """One column, of rows that are shorter than a vector."""
    d = Drawing()
    product = d.node("product", "MatMul", d.input("x", f32("B", 8)), d.input("w", f32(8, 1)), type_=f32("B", 1))
    clusters, _ = found(d.graph(returned=[d.node("y", "Tanh", d.node("z", "Exp", product))]))
    assert clusters == [("z", "y")]


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16, DType.I32])
def test_none_of_other_dtypes(dtype: DType) -> None:
    """Rounded to 16 bits, each of its products would be further off than TensorFlow's."""
    d = Drawing()
    x, w = (d.input(n, TensorType(dtype, shape_of(*s))) for n, s in (("x", ("B", 8)), ("w", (8, 8))))
    product = d.node("product", "MatMul", x, w, type_=TensorType(dtype, shape_of("B", 8)))
    clusters, reasons = found(d.graph(returned=[d.node("y", "Neg", d.node("z", "Square", product))]))
    assert clusters == [("z", "y")]
    assert reasons["product"] is Reason.DTYPE


def test_weights_come_from_outside() -> None:
    """exp ─► product: as the columns that it reads, what is computed has to be complete before."""
    d = Drawing()
    w = d.node("w", "Exp", d.node("v", "Tanh", d.input("u", f32(8, 8))))
    product = d.node("product", "MatMul", d.input("x", f32("B", 8)), w, type_=f32("B", 8))
    clusters, _ = found(d.graph(returned=[d.node("y", "Tanh", product)]))
    assert sorted(clusters) == [("product", "y"), ("v", "w")]


def test_a_concatenation_is_copied_for_a_product() -> None:
    """It saves a call; a step of a recurrent network is one kernel."""
    d = Drawing()
    x, h = d.input("x", f32("B", 3)), d.input("h", f32("B", 5))
    both = d.node("both", "ConcatV2", x, h, d.constant("axis", np.int32(1)), type_=f32("B", 8))
    product = d.node("product", "MatMul", both, d.input("w", f32(8, 4)), type_=f32("B", 4))
    clusters, _ = found(d.graph(returned=[d.node("y", "Tanh", product)]))
    assert clusters == [("both", "product", "y")]


def test_a_product_of_unknown_shape_is_left_alone() -> None:
    d = Drawing()
    w = d.input("w", TensorType(DType.F32, None))
    product = d.node("product", "MatMul", d.input("x", f32("B", 8)), w, type_=TensorType(DType.F32, shape_of("B", 4)))
    clusters, reasons = found(d.graph(returned=[d.node("y", "Tanh", d.node("z", "Exp", product))]))
    assert clusters == [("z", "y")]
    assert reasons["product"] is Reason.UNKNOWN_RANK
