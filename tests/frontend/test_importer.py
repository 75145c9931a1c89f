"""Stage 1: both spellings, attributes, types with symbols, extents and constants."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tf_stitch.frontend.importer import import_function_def, import_graph_def
from tf_stitch.ir.graph import Graph, Value
from tf_stitch.ir.types import Dim, DType


def imported(function: Any, *signature: tf.TensorSpec, of_function: bool = False) -> Graph:
    """The Graph of a function: of its own graph, or of its FunctionDef."""
    concrete = tf.function(function, input_signature=signature).get_concrete_function()
    if of_function:
        functions = {f.signature.name: f for f in concrete.graph.as_graph_def().library.function}
        return import_function_def(concrete.function_def, functions)
    return import_graph_def(concrete.graph.as_graph_def(add_shapes=True))


def types(graph: Graph) -> dict[str, str]:
    return {name: " ".join(map(str, node.types)) for name, node in graph.nodes.items()}


def _word(dim: Dim, rows: Dim) -> str:
    return "rows" if dim == rows else str(dim) if dim.is_static else "?"


X = tf.TensorSpec([None, 8], name="x")
Y = tf.TensorSpec([None, 8], name="y")


class TestSpelling:
    def test_outputs_are_counted_flat_in_both(self) -> None:
        def f(x: tf.Tensor) -> tuple[tf.Tensor, ...]:
            _, index, count = tf.raw_ops.UniqueWithCounts(x=tf.reshape(x, [-1]), name="unique")
            pieces = tf.raw_ops.Split(axis=1, value=x, num_split=4, name="split")
            return (
                tf.negative(index, name="a"),
                tf.negative(count, name="b"),
                tf.negative(pieces[3], name="c"),
            )

        for of_function in (False, True):
            graph = imported(f, X, of_function=of_function)
            inputs = [graph.nodes[name].inputs for name in "abc"]
            assert inputs == [(Value("unique", 1),), (Value("unique", 2),), (Value("split", 3),)]
            assert len(graph.nodes["split"].types) == 4

    def test_a_functions_arguments_are_nodes_and_its_results_values(self) -> None:
        graph = imported(lambda x: tf.exp(x, name="y"), X, of_function=True)
        assert graph.nodes["x"].op == "_Arg"
        assert str(graph.nodes["x"].types[0]) == "f32[d1, 8]"
        (returned,) = graph.returned
        assert graph.nodes[returned.node].op == "Identity"
        assert graph.fetched == frozenset()

    def test_control_outputs_are_fetched(self) -> None:
        variable = tf.Variable(1.0)

        def f(x: tf.Tensor) -> tf.Tensor:
            variable.assign_add(1.0)
            return x * 2.0

        graph = imported(f, X, of_function=True)
        (fetched,) = (n for n in graph.fetched if graph.nodes[n].op == "AssignAddVariableOp")
        assert graph.nodes[fetched].stateful
        assert not graph.nodes["mul"].stateful

    def test_control_edges_are_kept_apart_from_inputs(self) -> None:
        with tf.Graph().as_default() as v1:
            x = tf.compat.v1.placeholder(tf.float32, [2], name="x")
            with tf.control_dependencies([tf.no_op("before")]):
                tf.exp(x, name="y")
        node = import_graph_def(v1.as_graph_def()).nodes["y"]
        assert (node.inputs, node.controls) == ((Value("x"),), ("before",))

    def test_an_op_that_nobody_knows_is_kept(self) -> None:
        graph_def = tf.compat.v1.GraphDef()
        graph_def.node.add(name="a", op="NoSuchOpAnywhere", input=["^c"])
        graph_def.node.add(name="b", op="Neg", input=["a:1"]).attr["T"].type = tf.float32.as_datatype_enum
        graph_def.node.add(name="c", op="NoOp")
        graph = import_graph_def(graph_def)
        assert [t.dtype for t in graph.nodes["a"].types] == [DType.OTHER, DType.OTHER]
        assert graph.nodes["a"].stateful
        assert list(graph.nodes) == ["c", "a", "b"]

    def test_a_function_called_by_its_name(self) -> None:
        graph_def = tf.compat.v1.GraphDef()
        function = graph_def.library.function.add()
        function.signature.name = "twice"
        function.signature.input_arg.add(name="x", type=tf.float32.as_datatype_enum)
        function.signature.output_arg.add(name="y", type=tf.float32.as_datatype_enum)
        function.signature.output_arg.add(name="z", type=tf.bfloat16.as_datatype_enum)
        graph_def.node.add(name="x", op="Placeholder").attr["dtype"].type = tf.float32.as_datatype_enum
        graph_def.node.add(name="call", op="twice", input=["x"])
        node = import_graph_def(graph_def, shapes={}).nodes["call"]
        assert [t.dtype for t in node.types] == [DType.F32, DType.BF16]
        assert node.stateful


class TestAttributes:
    def test_are_plain_values(self) -> None:
        def f(x: tf.Tensor) -> tf.Tensor:
            image = tf.reshape(x, [1, 2, 2, -1])
            pooled = tf.nn.avg_pool2d(image, 2, 1, "SAME", name="pool")
            return tf.reduce_sum(pooled, [1, 2], name="sum")

        nodes = imported(f, X).nodes
        assert nodes["pool"].attributes["ksize"] == (1, 2, 2, 1)
        assert nodes["pool"].attributes["padding"] == "SAME"
        assert nodes["pool"].attributes["T"] is DType.F32
        assert nodes["sum"].attributes["keep_dims"] is False

    def test_defaults_stand_where_a_node_leaves_them_out(self) -> None:
        graph_def = tf.compat.v1.GraphDef()
        graph_def.node.add(name="x", op="Placeholder").attr["dtype"].type = tf.float32.as_datatype_enum
        graph_def.node.add(name="y", op="LeakyRelu", input=["x"])
        node = import_graph_def(graph_def).nodes["y"]
        assert node.attributes["alpha"] == pytest.approx(0.2)
        assert node.types[0].dtype is DType.F32

    @pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.int32, tf.int64, tf.bool])
    def test_small_constants_have_values(self, dtype: tf.DType) -> None:
        values = np.array([[0, 1], [1, 0]]).astype(dtype.as_numpy_dtype)
        graph = imported(lambda: tf.cast(tf.constant(values, name="c"), tf.float32))
        constant = graph.constants[Value("c")]
        assert constant.dtype == dtype.as_numpy_dtype
        np.testing.assert_array_equal(constant, values)

    def test_a_constant_that_repeats_one_element(self) -> None:
        graph = imported(lambda: tf.fill([3], 2.0) + tf.constant(5.0, shape=[3], name="c"))
        np.testing.assert_array_equal(graph.constants[Value("c")], [5, 5, 5])

    def test_large_constants_are_data(self) -> None:
        big = np.zeros([100, 100], np.float32)
        graph = imported(lambda: tf.constant(big, name="c") + 1.0)
        assert Value("c") not in graph.constants
        assert str(graph.nodes["c"].types[0]) == "f32[100, 100]"

    def test_the_sign_of_zero_survives(self) -> None:
        graph = imported(lambda x: x * tf.constant(np.float32(-0.0), name="c"), X)
        assert np.signbit(graph.constants[Value("c")])

    def test_constants_pass_through_identity_but_not_where_they_may_be_fed(self) -> None:
        with tf.Graph().as_default() as v1:
            tf.identity(tf.constant(3.0, name="c"), name="i")
        assert import_graph_def(v1.as_graph_def()).constants[Value("i")] == 3
        assert not import_graph_def(v1.as_graph_def(), fetched=["c"]).constants


class TestTypes:
    def test_unknown_dims_are_symbols_that_flow(self) -> None:
        def f(x: tf.Tensor) -> tf.Tensor:
            mean = tf.reduce_mean(x, -1, keepdims=True, name="mean")
            y = tf.subtract(x, mean, name="y")
            return tf.matmul(y, tf.ones([8, 3]), name="z")

        found = types(imported(f, X))
        expected = {"x": "f32[d1, 8]", "mean": "f32[d1, 1]", "y": "f32[d1, 8]", "z": "f32[d1, 3]"}
        assert {name: found[name] for name in expected} == expected

    def test_a_broadcast_of_two_unknown_dims_is_a_dim_of_its_own(self) -> None:
        def f(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
            a, b = tf.add(x, y, name="a"), tf.subtract(y, x, name="b")
            return tf.add(tf.add(a, b, name="c"), x, name="d")

        found = types(imported(f, X, Y))
        assert found["a"] == found["b"] == found["c"] == "f32[d3, 8]"
        assert found["d"] == "f32[d4, 8]"  # of d3 against d1: never said to be equal

    def test_a_declared_static_dim_wins_and_spreads(self) -> None:
        def f(x: tf.Tensor) -> tf.Tensor:
            y = tf.exp(x, name="y")
            return tf.negative(tf.ensure_shape(y, [4, 8]), name="z")

        graph = imported(f, X)
        assert str(graph.nodes["z"].types[0]) == "f32[4, 8]"
        concrete = tf.function(lambda x: tf.exp(x, name="y")).get_concrete_function(X)
        shapes = {"x": [(None, 8)], "y": [(32, 8)]}
        graph = import_graph_def(concrete.graph.as_graph_def(), shapes=shapes)
        assert types(graph)["x"] == types(graph)["y"] == "f32[32, 8]"

    def test_symbols_of_the_caller(self) -> None:
        """As Grappler numbers them: equal numbers are equal dims, other numbers may be."""
        concrete = tf.function(lambda x, y: tf.add(x, y, name="z")).get_concrete_function(X, Y)
        shapes = {"x": [(-2, 8)], "y": [(-3, 8)], "z": [(-4, 8)]}
        found = types(import_graph_def(concrete.graph.as_graph_def(), shapes=shapes))
        assert (found["x"], found["y"]) == ("f32[s2, 8]", "f32[s3, 8]")
        assert found["z"] not in (found["x"], found["y"])
        shapes["z"] = [(-2, 8)]
        found = types(import_graph_def(concrete.graph.as_graph_def(), shapes=shapes))
        assert found["z"] == found["x"] == "f32[s2, 8]"

    def test_a_symbol_that_a_node_makes_up_for_several_dims_is_not_believed(self) -> None:
        def f(x: tf.Tensor, crops: tf.Tensor) -> tf.Tensor:
            y = tf.raw_ops.BatchToSpaceND(input=x, block_shape=[2, 2], crops=crops, name="y")
            return tf.exp(y, name="z")

        specs = tf.TensorSpec([4, None, None, 8]), tf.TensorSpec([2, 2], tf.int32)
        definition = tf.function(f).get_concrete_function(*specs).graph.as_graph_def()
        made_up = [(1, -9, -9, 8)]
        found = import_graph_def(definition, shapes={"x": [(4, -2, -3, 8)], "y": made_up, "z": made_up})
        for name in "yz":
            _, height, width, _ = found.nodes[name].types[0].dims
            assert height != width
        assert found.nodes["y"].types == found.nodes["z"].types
        known = [(1, -2, -2, 8)]
        found = import_graph_def(definition, shapes={"x": [(4, -2, -3, 8)], "y": known, "z": known})
        assert types(found)["y"] == types(found)["z"] == "f32[1, s2, s2, 8]"

    @pytest.mark.parametrize(
        ("turn", "expected"),
        [
            (lambda x, y: tf.tanh(y) + x, "rows 8"),
            (lambda x, y: tf.reshape(tf.exp(y), tf.shape(x)), "rows 8"),
            (lambda _, y: tf.concat([y, y], 0), "? 8"),
            (lambda _, y: tf.transpose(y, [1, 0]), "? ?"),
            (lambda _, y: y[None], None),
        ],
        ids=["same", "reshaped", "longer", "turned", "deeper"],
    )
    def test_what_goes_round_a_loop_of_tensorflow_1(self, turn: Any, expected: str | None) -> None:
        """It is taken to stay as it enters, and then for as much of that as is true of every turn."""
        tf.compat.v1.disable_control_flow_v2()
        try:
            with tf.Graph().as_default() as graph:
                x = tf.compat.v1.placeholder(tf.float32, [None, 8], name="x")
                any_shape = [tf.TensorShape([]), tf.TensorShape(None)]
                tf.compat.v1.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, turn(x, y)), [0, x], any_shape)
        finally:
            tf.compat.v1.enable_control_flow_v2()
        (merge,) = (op for op in graph.get_operations() if op.type == "Merge" and op.outputs[0].dtype == tf.float32)
        found = import_graph_def(graph.as_graph_def())
        rows = found.nodes["x"].types[0].dims[0]
        shape = found.nodes[merge.name].types[0].shape
        assert (None if shape is None else " ".join(_word(d, rows) for d in shape)) == expected

    def test_two_names_for_one_dim_are_joined(self) -> None:
        concrete = tf.function(lambda x: tf.exp(x, name="y")).get_concrete_function(X)
        shapes = {"x": [(-2, 8)], "y": [(-5, 8)], "Identity": [(-5, 8)]}
        found = types(import_graph_def(concrete.graph.as_graph_def(), shapes=shapes))
        assert found["x"] == found["y"] == found["Identity"]

    def test_one_number_for_two_new_dims_says_nothing(self) -> None:
        """TensorFlow gives both sides of SpaceToBatchND's images one number, whatever they are."""

        def f(x: tf.Tensor, paddings: tf.Tensor) -> tf.Tensor:
            tiles = tf.raw_ops.SpaceToBatchND(input=x, block_shape=[2, 2], paddings=paddings, name="tiles")
            return tf.exp(tiles, name="y")

        images, paddings = tf.TensorSpec([1, None, None, 8], name="x"), tf.TensorSpec([2, 2], tf.int32)
        concrete = tf.function(f, autograph=False).get_concrete_function(images, paddings)
        shapes = {"x": [(1, -2, -3, 8)], "tiles": [(4, -4, -4, 8)], "y": [(4, -4, -4, 8)]}
        graph = import_graph_def(concrete.graph.as_graph_def(), shapes=shapes)
        for name in ("tiles", "y"):
            _, height, width, _ = graph.nodes[name].types[0].dims
            assert height != width
        assert graph.nodes["y"].types == graph.nodes["tiles"].types

    def test_unknown_rank(self) -> None:
        graph = imported(lambda x: tf.exp(x, name="y"), tf.TensorSpec(None, name="x"))
        assert types(graph)["y"] == "f32[...]"

    def test_what_a_kernel_would_only_assume_is_not_said(self) -> None:
        """x[:5] has 5 elements if x has; a kernel that reads it elsewhere could not check."""
        graph = imported(lambda x: tf.exp(x[:5], name="y"), tf.TensorSpec([None], name="x"))
        assert types(graph)["y"] != "f32[5]"

    def test_without_declared_shapes_tensorflow_is_asked(self) -> None:
        concrete = tf.function(lambda x: tf.nn.conv2d(x, tf.ones([3, 3, 2, 4]), 1, "SAME")).get_concrete_function(
            tf.TensorSpec([1, 9, 9, 2])
        )
        graph = import_graph_def(concrete.graph.as_graph_def())
        assert "f32[1, 9, 9, 4]" in types(graph).values()
        graph = import_function_def(concrete.function_def, {})
        assert "f32[1, 9, 9, 4]" in types(graph).values()

    def test_rows_of_a_variable(self) -> None:
        variable = tf.Variable(tf.ones([100, 16]))
        graph = imported(lambda i: tf.gather(variable, i), tf.TensorSpec([None, None], tf.int32, name="i"))
        assert "f32[d1, d2, 16]" in types(graph).values()

    def test_dtypes_that_are_never_computed_on(self) -> None:
        graph = imported(lambda s: tf.strings.length(s, name="n"), tf.TensorSpec([None], tf.string, name="s"))
        assert types(graph)["s"] == "other[d1]"
        assert types(graph)["n"].startswith("i32[d")


class TestExtents:
    def test_arithmetic_on_shapes(self) -> None:
        def f(x: tf.Tensor) -> tf.Tensor:
            size = tf.shape(x, name="shape")
            target = tf.stack([size[0] * size[1], size[2]], name="target")
            return tf.reshape(x, target, name="y")

        graph = imported(f, tf.TensorSpec([None, None, 8], name="x"))
        b, s = Dim.symbol("d1"), Dim.symbol("d2")
        assert graph.extents[Value("shape")] == (b, s, Dim(8))
        assert graph.extents[Value("target")] == (b * s, Dim(8))
        assert types(graph)["y"] == "f32[d1*d2, 8]"

    def test_minus_one(self) -> None:
        graph = imported(lambda x: tf.reshape(x, [-1, 4], name="y"), X)
        assert types(graph)["y"] == "f32[2*d1, 4]"

    def test_minus_one_that_is_no_product_leaves_the_other_dims(self) -> None:
        def f(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
            return tf.reshape(x, [tf.shape(y)[0], -1, 4], name="z")

        graph = imported(f, X, Y)
        (type_,) = graph.nodes["z"].types
        assert type_.dims[0] == Dim.symbol("d2")
        assert type_.dims[2] == Dim(4)

    def test_one_element_has_dims_of_one_only(self) -> None:
        def f(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
            return tf.reshape(tf.reduce_sum(x), tf.cast(tf.cast(tf.shape(y), tf.float32), tf.int32), name="z")

        assert types(imported(f, X, Y))["z"] == "f32[1, 1]"

    def test_the_shapes_of_a_gradient(self) -> None:
        """Of a maximum: a reshape to the shape of x with a 1 for the axis."""

        def f(x: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = tf.reduce_max(x, 1)
            return tape.gradient(y, x)

        graph = imported(f, tf.TensorSpec([None, None, 8], name="x"))
        found = {n.types[0] for n in graph.nodes.values() if n.op in ("Reshape", "Equal", "RealDiv", "Mul")}
        assert {str(t) for t in found} == {
            "f32[d1, 1, 8]", "bool[d1, d2, 8]", "f32[d1, d2, 8]",
        }  # fmt: skip

    def test_each_shape_of_shape_n(self) -> None:
        def f(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
            _, second = tf.raw_ops.ShapeN(input=[x, y], name="shapes")
            return tf.reshape(tf.transpose(y), second)

        graph = imported(f, X, tf.TensorSpec([5, None], name="y"))
        assert graph.extents[Value("shapes", 0)] == (Dim.symbol("d1"), Dim(8))
        assert graph.extents[Value("shapes", 1)] == (Dim(5), Dim.symbol("d2"))

    def test_arithmetic_on_constants_is_constant(self) -> None:
        """tf.tensordot concatenates the permutation of its transpose."""
        graph = imported(lambda x: tf.transpose(x, tf.concat([[1], [0]], 0, name="p"), name="y"), X)
        np.testing.assert_array_equal(graph.constants[Value("p")], [1, 0])
        assert types(graph)["y"] == "f32[8, d1]"


class TestOrder:
    def test_producers_come_first_whatever_the_order_given(self) -> None:
        concrete = tf.function(lambda x: tf.exp(tf.exp(x) + tf.sin(x))).get_concrete_function(X)
        graph_def = concrete.graph.as_graph_def(add_shapes=True)
        graph_def.node.sort(key=lambda n: n.name, reverse=True)
        seen: set[str] = set()
        graph = import_graph_def(graph_def)
        for node in graph.nodes.values():
            assert {v.node for v in node.inputs} <= seen
            seen.add(node.name)

    def test_deep_graphs_need_no_recursion(self) -> None:
        graph_def = tf.compat.v1.GraphDef()
        graph_def.node.add(name="n0", op="Placeholder").attr["dtype"].type = tf.float32.as_datatype_enum
        for i in range(1, 5001):
            node = graph_def.node.add(name=f"n{i}", op="Exp", input=[f"n{i - 1}"])
            node.attr["T"].type = tf.float32.as_datatype_enum
        assert len(import_graph_def(graph_def, shapes={"n0": [(None, 8)]}).nodes) == 5001

    @pytest.mark.slow
    def test_three_thousand_nodes_are_quick(self) -> None:
        def f(x: tf.Tensor) -> tf.Tensor:
            for _ in range(300):
                x = tf.nn.softmax(tf.reshape(tf.transpose(tf.exp(x) * 2.0 + x), [-1, 8]))
            return x

        concrete = tf.function(f).get_concrete_function(X)
        graph_def = concrete.graph.as_graph_def(add_shapes=True)
        assert len(graph_def.node) > 2600
        started = time.process_time()
        import_graph_def(graph_def)
        assert time.process_time() - started < 2.0  # about 0.3 s on a quiet machine
