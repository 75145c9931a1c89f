"""Static shapes, opened: one kernel for all batches, and for all rows that are whole vectors, where possible."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.passes.drawing import Drawing, checked, f32
from tf_stitch.ir.body import Body
from tf_stitch.ir.graph import Value
from tf_stitch.ir.printer import print_body
from tf_stitch.ir.types import Dim, DType, TensorType, shape_of
from tf_stitch.passes.clustering import Cluster
from tf_stitch.runtime.reference import evaluate, symbols_of


def clustered(*shape: int | str) -> Cluster:
    """tanh(x) * scale - max over the row."""
    d = Drawing()
    x, scale = d.input("x", f32(*shape)), d.input("scale", f32(shape[-1]))
    t = d.node("t", "Mul", d.node("tanh", "Tanh", x), scale)
    most = d.node(
        "most", "Max", t, d.constant("axis", np.int32(len(shape) - 1)), type_=f32(*shape[:-1], 1), keep_dims=True
    )
    y = d.node("y", "Sub", t, most)
    (cluster,) = checked(d.graph(returned=[y])).clusters
    return cluster


def layer(*shape: int | str) -> Body:
    return clustered(*shape).body


def test_batches_share_a_kernel() -> None:
    assert print_body(layer(8, 24)) == print_body(layer(100, 24)) == print_body(layer("B", 24))


def test_wide_rows_share_a_kernel() -> None:
    assert print_body(layer(8, 768)) == print_body(layer(100, 1024))
    assert [str(t) for t in layer(8, 768).inputs] == ["f32[d0, 64*d1]", "f32[64*d1]"]


@pytest.mark.parametrize(
    ("one", "other"), [((8, 24), (8, 32)), ((8, 768), (8, 700)), ((8, 768), (8, 32_768)), ((1, 24), (8, 24))]
)
def test_what_makes_another_kernel(one: tuple[int, int], other: tuple[int, int]) -> None:
    """Short rows, rows that are no whole vectors, rows that may be split, a batch of one."""
    assert print_body(layer(*one)) != print_body(layer(*other))


def test_rows_that_vary_are_bounded() -> None:
    assert [(str(small), str(large)) for small, large in layer(8, 768).requires] == [("64*d1", "4096")]


@pytest.mark.parametrize("shape", [(8, 24), (3, 768), (2, 5, 1024), (300, 7)])
def test_opened_bodies_compute_the_same(shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    x, scale = random.standard_normal(shape, np.float32), random.standard_normal(shape[-1], np.float32)
    t = np.tanh(x) * scale
    cluster = clustered(*shape)
    inputs = [{"x": x, "scale": scale}[value.node] for value in cluster.inputs]
    (found,) = evaluate(cluster.body, inputs, symbols_of(cluster.body, inputs))
    np.testing.assert_allclose(found, t - t.max(-1, keepdims=True), rtol=1e-6, atol=1e-6)


def of_constant_shape(d: Drawing, x: Value) -> Value:
    """A target that holds for one batch only."""
    return d.node("flat", "Reshape", x, d.constant("to", np.array([32], np.int32)), type_=f32(32))


def beside_a_constant(d: Drawing, x: Value) -> Value:
    table = d.constant("table", np.ones((4, 8), np.float32))
    return d.node("sum", "AddV2", x, table)


def turned_square(d: Drawing, x: Value) -> Value:
    """Batch and row change places, and are added to one another."""
    perm = d.constant("perm", np.array([1, 0], np.int32))
    other = d.input("other", f32(8, 4))
    return d.node("sum", "AddV2", x, d.node("turned", "Transpose", other, perm, type_=f32(4, 8)))


@pytest.mark.parametrize("tail", [of_constant_shape, beside_a_constant, turned_square])
def test_what_holds_for_one_size_only_stays_right(tail: Callable[[Drawing, Value], Value]) -> None:
    """Whether opened or not: at the size of the graph, the body computes what the graph does."""
    d = Drawing()
    y = d.node("y", "Exp", tail(d, d.node("t", "Tanh", d.input("x", f32(4, 8)))))
    for cluster in checked(d.graph(returned=[y])).clusters:
        random = np.random.default_rng(0)
        given = {
            Value("x"): random.standard_normal((4, 8), np.float32),
            Value("other"): random.standard_normal((8, 4), np.float32),
            Value("table"): np.ones((4, 8), np.float32),
        }
        t = np.tanh(given[Value("x")])
        expected = {
            of_constant_shape: t.reshape(32), beside_a_constant: t + 1, turned_square: t + given[Value("other")].T,
        }[tail]  # fmt: skip
        inputs = [given.get(v) for v in cluster.inputs]
        results = evaluate(cluster.body, inputs, symbols_of(cluster.body, inputs))
        np.testing.assert_allclose(results[-1], np.exp(expected), rtol=1e-5)


def test_opened_dims_do_not_take_the_names_of_others() -> None:
    """A static batch is opened, while axis 1 and axis 2 keep their own names: axis 1 is what the shape speaks of."""
    d = Drawing()
    x = d.input("x", f32(2, "d1", "d2"))
    shape = d.node("shape", "Pack", type_=TensorType(DType.I32, shape_of(2)))
    d.extents(shape, Dim.symbol("d1"), Dim.symbol("d2"))
    ones = d.node("ones", "BroadcastTo", d.input("one", f32()), shape, type_=f32("d1", "d2"))
    y = d.node("y", "AddV2", d.node("t", "Tanh", x), ones)
    (cluster,) = checked(d.graph(returned=[y])).clusters
    arrays = {Value("x"): np.zeros((2, 5, 3), np.float32), Value("one"): np.float32(1).reshape(())}
    inputs = [arrays.get(v) for v in cluster.inputs]
    (found,) = evaluate(cluster.body, inputs, symbols_of(cluster.body, inputs))
    np.testing.assert_array_equal(found, np.ones((2, 5, 3)))
