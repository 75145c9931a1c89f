"""Stage 8 with clusters made by hand: what is redirected, what is dropped, and that TensorFlow runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import function_def_to_graph

from tf_stitch.frontend.fallback import FALLBACK_PREFIX
from tf_stitch.frontend.importer import import_function_def, import_graph_def
from tf_stitch.frontend.rewrite import rewrite_function_def, rewrite_graph_def
from tf_stitch.ir.graph import Value
from tf_stitch.runtime import stitch_op

if TYPE_CHECKING:
    from conftest import ByHand


def graph_and_outputs(build: Any) -> tuple[Any, list[str]]:
    """The GraphDef of what `build` adds to a V1 graph, and the names of the tensors that it returns."""
    with tf.Graph().as_default() as graph:
        outputs = build()
    return graph.as_graph_def(add_shapes=True), [t.name for t in outputs]


def minus_square() -> list[tf.Tensor]:
    x = tf.compat.v1.placeholder(tf.float32, [None], name="x")
    return [tf.multiply(tf.negative(x, name="neg"), x, name="mul") + 1.0]


def stitch_minus_square(by_hand: ByHand, graph_def: Any, fetched: tuple[str, ...] = ("add",), **more: Any) -> Any:
    graph = import_graph_def(graph_def, fetched=fetched)
    return rewrite_graph_def(graph_def, by_hand(graph, ["neg", "mul"], [Value("x")], [Value("mul")], **more))


def node(graph_def: Any, name: str) -> Any:
    return next(n for n in graph_def.node if n.name == name)


def run(graph_def: Any, fetch: str, **feeds: Any) -> Any:
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(graph_def, name="")
    config = tf.compat.v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    with tf.compat.v1.Session(graph=graph, config=config) as session:
        return session.run(fetch, {f"{name}:0": value for name, value in feeds.items()})


def test_one_op_stands_for_the_cluster(by_hand: ByHand) -> None:
    graph_def, _ = graph_and_outputs(minus_square)
    before = graph_def.SerializeToString(deterministic=True)
    result = stitch_minus_square(by_hand, graph_def)
    assert graph_def.SerializeToString(deterministic=True) == before
    assert [n.name for n in result.node] == ["x", "stitch/minus_square", "add/y", "add"]
    op = node(result, "stitch/minus_square")
    assert op.op == "StitchOp"
    assert list(op.input) == ["x"]
    assert list(node(result, "add").input) == ["stitch/minus_square", "add/y"]
    assert set(op.attr) == {"Tin", "Tout", "key", "artefact", "requires", "output_shapes", "fallback"}
    assert list(op.attr["Tin"].list.type) == [tf.float32.as_datatype_enum]
    assert [d.size for d in op.attr["output_shapes"].list.shape[0].dim] == [-1]
    (fallback,) = result.library.function
    assert op.attr["fallback"].func.name == fallback.signature.name
    assert fallback.signature.name.startswith(FALLBACK_PREFIX)


@pytest.mark.parametrize("size", [0, 1, 5, 7, 1000])
def test_kernel_and_fallback_compute_what_tensorflow_does(
    by_hand: ByHand, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_STITCH_STRICT", "0")
    graph_def, (fetch,) = graph_and_outputs(minus_square)
    result = stitch_minus_square(by_hand, graph_def)
    stitch_op.reset_counters()
    x = np.linspace(-3, 3, size, dtype=np.float32)
    np.testing.assert_array_equal(run(result, fetch, x=x), run(graph_def, fetch, x=x))
    counted = stitch_op.counters()["total"]
    assert counted["calls"] == 1
    assert sum(counted["fallbacks"].values()) == (1 if size == 7 else 0)


def test_an_embedded_kernel_needs_no_file(by_hand: ByHand) -> None:
    graph_def, (fetch,) = graph_and_outputs(minus_square)
    graph = import_graph_def(graph_def)
    stitched = by_hand(graph, ["neg", "mul"], [Value("x")], [Value("mul")])
    result = rewrite_graph_def(graph_def, stitched, embed=True)
    op = node(result, "stitch/minus_square")
    assert op.attr["artefact"].s.startswith(b"STITCH01")
    op.attr["key"].s = b"another key, so that nothing is registered under it"
    x = np.ones(3, np.float32)
    np.testing.assert_array_equal(run(result, fetch, x=x), [0, 0, 0])
    assert stitch_op.counters()["keys"]["another key, so that nothing is registered under it"]["calls"] == 1


def test_control_edges_and_colocation_move_to_the_op(by_hand: ByHand) -> None:
    def build() -> list[tf.Tensor]:
        x = tf.compat.v1.placeholder(tf.float32, [None], name="x")
        with tf.control_dependencies([tf.no_op("before")]):
            neg = tf.negative(x, name="neg")
        mul = tf.multiply(neg, x, name="mul")
        with tf.control_dependencies([neg, mul]):
            after = tf.constant(3.0, name="after")
        with tf.compat.v1.colocate_with(mul):
            beside = tf.identity(x, name="beside")
        return [mul, after, beside]

    graph_def, _ = graph_and_outputs(build)
    graph = import_graph_def(graph_def)
    stitched = by_hand(graph, ["neg", "mul"], [Value("x")], [Value("mul")], controls=("before",))
    result = rewrite_graph_def(graph_def, stitched)
    assert list(node(result, "stitch/minus_square").input) == ["x", "^before"]
    assert list(node(result, "after").input) == ["^stitch/minus_square"]
    assert "_class" in node(graph_def, "beside").attr
    assert "_class" not in node(result, "beside").attr
    run(result, "after:0", x=np.ones(1, np.float32))


def test_constants_go_with_the_cluster_unless_others_read_them(by_hand: ByHand) -> None:
    def build() -> list[tf.Tensor]:
        x = tf.compat.v1.placeholder(tf.float32, [None], name="x")
        own, shared = tf.constant(-1.0, name="own"), tf.constant(1.0, name="shared")
        y = tf.multiply(tf.multiply(tf.multiply(x, own, name="a"), x, name="b"), shared, name="c")
        return [tf.add(y, shared, name="add")]

    graph_def, (fetch,) = graph_and_outputs(build)
    graph = import_graph_def(graph_def)
    stitched = by_hand(graph, ["a", "b", "c"], [Value("x")], [Value("c")], constants=("own", "shared"))
    result = rewrite_graph_def(graph_def, stitched)
    assert [n.name for n in result.node] == ["x", "shared", "stitch/minus_square", "add"]
    assert [n.name for n in result.library.function[0].node_def] == ["own", "shared", "a", "b", "c"]
    x = np.arange(6, dtype=np.float32)
    np.testing.assert_array_equal(run(result, fetch, x=x), 1 - x * x)


def test_names_never_clash(by_hand: ByHand) -> None:
    def build() -> list[tf.Tensor]:
        (y,) = minus_square()
        return [tf.identity(y, name="stitch/minus_square")]

    graph_def, _ = graph_and_outputs(build)
    result = stitch_minus_square(by_hand, graph_def)
    assert [n.op for n in result.node if n.name == "stitch/minus_square_1"] == ["StitchOp"]


def test_equal_clusters_have_equal_fallbacks_and_others_do_not(by_hand: ByHand) -> None:
    def names(build: Any) -> set[str]:
        result = stitch_minus_square(by_hand, graph_and_outputs(build)[0])
        return {f.signature.name for f in result.library.function}

    def other() -> list[tf.Tensor]:
        x = tf.compat.v1.placeholder(tf.float32, [None], name="x")
        return [tf.multiply(tf.abs(x, name="neg"), x, name="mul")]

    assert names(minus_square) == names(minus_square)
    assert names(minus_square) != names(other)


class TestFunctions:
    """The other spelling."""

    @staticmethod
    def rewritten(by_hand: ByHand, function: Any, *, index: int = 0) -> tuple[Any, Any, list[Any]]:
        concrete = function.get_concrete_function()
        function_def = concrete.function_def
        functions = {f.signature.name: f for f in concrete.graph.as_graph_def().library.function}
        graph = import_function_def(function_def, functions)
        stitched = by_hand(graph, ["neg", "mul"], [Value("x", index)], [Value("mul")])
        return function_def, *rewrite_function_def(function_def, stitched, functions)

    @staticmethod
    def call(function_def: Any, fallbacks: list[Any], x: np.ndarray) -> Any:
        graph_def = tf.compat.v1.GraphDef()
        graph_def.library.function.extend([function_def, *fallbacks])
        graph_def.node.add(name="x", op="Placeholder").attr["dtype"].type = tf.float32.as_datatype_enum
        node = graph_def.node.add(name="call", op="PartitionedCall", input=["x"])
        node.attr["f"].func.name = function_def.signature.name
        for name in ("Tin", "Tout"):
            node.attr[name].list.type.append(tf.float32.as_datatype_enum)
        return run(graph_def, "call:0", x=x)

    @pytest.mark.parametrize("size", [3, 7])
    def test_returns_are_redirected(self, by_hand: ByHand, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TF_STITCH_STRICT", "0")

        @tf.function(input_signature=[tf.TensorSpec([None], name="x")])
        def f(x: tf.Tensor) -> tf.Tensor:
            return tf.raw_ops.Mul(x=tf.raw_ops.Neg(x=x, name="neg"), y=x, name="mul")

        before, after, fallbacks = self.rewritten(by_hand, f)
        assert [n.op for n in after.node_def] == ["StitchOp", "Identity"]
        assert list(after.node_def[0].input) == ["x"]
        assert list(after.node_def[1].input) == ["stitch/minus_square:outputs:0"]
        x = np.arange(size, dtype=np.float32)
        np.testing.assert_array_equal(self.call(after, fallbacks, x), self.call(before, [], x))

    def test_a_return_of_a_cluster_output_itself(self, by_hand: ByHand) -> None:
        @tf.function(input_signature=[tf.TensorSpec([None], name="x")])
        def f(x: tf.Tensor) -> tf.Tensor:
            return tf.raw_ops.Mul(x=tf.raw_ops.Neg(x=x, name="neg"), y=x, name="mul")

        before, _, _ = self.rewritten(by_hand, f)
        before.ret["identity"] = "mul:z:0"
        graph = import_function_def(before, {})
        stitched = by_hand(graph, ["neg", "mul"], [Value("x")], [Value("mul")])
        after, fallbacks = rewrite_function_def(before, stitched, {})
        assert after.ret["identity"] == "stitch/minus_square:outputs:0"
        np.testing.assert_array_equal(self.call(after, fallbacks, np.arange(3, dtype=np.float32)), [0, -1, -4])

    def test_the_fallback_is_a_function_of_its_own(self, by_hand: ByHand) -> None:
        @tf.function(input_signature=[tf.TensorSpec([None], name="in0")])
        def f(in0: tf.Tensor) -> tf.Tensor:
            x = tf.raw_ops.Split(axis=0, value=in0, num_split=2, name="x")
            return tf.raw_ops.Mul(x=tf.raw_ops.Neg(x=x[1], name="neg"), y=x[1], name="mul")

        _, after, (fallback,) = self.rewritten(by_hand, f, index=1)
        op = next(n for n in after.node_def if n.op == "StitchOp")
        assert list(op.input) == ["x:output:1"]
        assert [list(n.input) for n in fallback.node_def] == [["in0"], ["neg:y:0", "in0"]]
        assert dict(fallback.ret) == {"out0": "mul:z:0"}
        assert [d.size for d in fallback.arg_attr[0].attr["_output_shapes"].list.shape[0].dim] == [-1]
        with tf.Graph().as_default():
            function_def_to_graph.function_def_to_graph(fallback)
        x = np.arange(6, dtype=np.float32)
        np.testing.assert_array_equal(self.call(after, [fallback], x), [-9, -16, -25])
