"""What is put into TensorLists tells what comes out, across loops."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tests.end_to_end.stitched import check, normal
from tf_stitch.frontend.importer import import_graph_def
from tf_stitch.ir.graph import Graph

TURNS = 4


def lowered(function: Callable[..., Any], *specs: tf.TensorSpec) -> Graph:
    """The graph of a function with its loops as Switches and Merges, as Grappler hands it over."""
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    traced = tf.function(function, autograph=False).get_concrete_function(*specs)
    return import_graph_def(convert_variables_to_constants_v2(traced, lower_control_flow=True).graph.as_graph_def())


def types_of(graph: Graph, op: str, output: int) -> set[str]:
    return {str(node.types[output]) for node in graph.nodes.values() if node.op == op}


def test_a_loops_gradient_knows_what_the_loop_has_kept() -> None:
    def f(x: Any) -> Any:
        def turn(i: Any, y: Any) -> Any:
            kept = tf.ensure_shape(tf.tanh(y), [3, 5])  # without Grappler's inference, no loop knows its values' shapes
            return i + 1, tf.stop_gradient(kept) * x + y

        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.while_loop(lambda i, _: i < TURNS, turn, (0, x))[1]
        return tape.gradient(y, x)

    assert types_of(lowered(f, tf.TensorSpec([3, 5])), "TensorListPopBack", 1) == {"f32[3, 5]"}


@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    [
        ([3, 5], [3, 5], "f32[3, 5]"),
        ([3, 5], [4, 5], "f32[d, 5]"),
        ([3, 5], [3], "f32[...]"),
        ([3, 5], None, "f32[...]"),
    ],
)
def test_all_that_is_put_in_has_a_say(first: Any, second: Any, wanted: str) -> None:
    def f(x: Any, y: Any) -> Any:
        handle = tf.raw_ops.EmptyTensorList(element_shape=-1, max_num_elements=-1, element_dtype=tf.float32)
        for item in (x, y):
            handle = tf.raw_ops.TensorListPushBack(input_handle=handle, tensor=item)
        popped = tf.raw_ops.TensorListPopBack(input_handle=handle, element_shape=-1, element_dtype=tf.float32)
        return popped.tensor

    (found,) = types_of(lowered(f, tf.TensorSpec(first), tf.TensorSpec(second)), "TensorListPopBack", 1)
    assert re.sub(r"d\d+", "d", found) == wanted


def test_a_list_from_elsewhere_says_nothing() -> None:
    def f(handle: Any) -> Any:
        return tf.raw_ops.TensorListPopBack(input_handle=handle, element_shape=-1, element_dtype=tf.float32).tensor

    (found,) = types_of(lowered(f, tf.TensorSpec([], tf.variant)), "TensorListPopBack", 1)
    assert found == "f32[...]"


def test_rows_of_a_tensor_and_a_stack_of_elements() -> None:
    def f(x: Any) -> Any:
        rows = tf.TensorArray(tf.float32, 4, element_shape=None, infer_shape=False).unstack(x)
        made = tf.TensorArray(tf.float32, 4, element_shape=None, infer_shape=False)
        for i in range(4):
            made = made.write(i, rows.read(i) * 2.0)
        return made.stack()

    graph = lowered(f, tf.TensorSpec([4, 3, 5]))
    assert types_of(graph, "TensorListGetItem", 0) == {"f32[3, 5]"}
    (stacked,) = types_of(graph, "TensorListStack", 0)
    assert stacked.endswith(", 3, 5]")


def test_numbers_are_known_of_full_lists_only() -> None:
    """An element that was never set is 0; a shape that a loop keeps for its gradient is what it is."""

    def f(x: Any) -> Any:
        handle = tf.raw_ops.EmptyTensorList(element_shape=-1, max_num_elements=-1, element_dtype=tf.int32)
        full = tf.raw_ops.TensorListPushBack(input_handle=handle, tensor=tf.shape(x))
        reserved = tf.raw_ops.TensorListReserve(element_shape=[2], num_elements=2, element_dtype=tf.int32)
        partly = tf.raw_ops.TensorListSetItem(input_handle=reserved, index=0, item=tf.shape(x))
        popped = tf.raw_ops.TensorListPopBack(input_handle=full, element_shape=[2], element_dtype=tf.int32)
        got = tf.raw_ops.TensorListGetItem(input_handle=partly, index=1, element_shape=[2], element_dtype=tf.int32)
        return popped.tensor, got

    graph = lowered(f, tf.TensorSpec([3, 5]))
    held = {graph.nodes[value.node].op: [int(str(d)) for d in dims] for value, dims in graph.extents.items()}
    assert held["TensorListPopBack"] == [3, 5]
    assert "TensorListGetItem" not in held


@pytest.mark.parametrize("width", [1, 6])
def test_gradients_of_loops_are_stitched(width: int) -> None:
    """Concatenations, broadcasts and a bias; back through the loop all of them are one kernel or two a turn."""
    bias, weight = normal(width, seed=1), normal(2 * width, width, seed=2)

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)

            def turn(i: Any, h: Any) -> Any:
                both = tf.concat([x, tf.tanh(h) * 0.5], 1)
                return i + 1, h + tf.sigmoid(tf.matmul(both, tf.cast(weight, x.dtype)) + tf.cast(bias, x.dtype)) * x[
                    :, :1
                ]

            loss = tf.reduce_sum(tf.square(tf.while_loop(lambda i, _: i < TURNS, turn, (0, x))[1]))
        return loss, tape.gradient(loss, x)

    check(step, [normal(9, width)], kernels=None)
    rejected = unknown_rejections(step, tf.constant(normal(9, width)))
    assert not rejected, rejected


def unknown_rejections(function: Callable[..., Any], x: Any) -> list[str]:
    import tf_stitch

    tf_stitch.reset_stats()
    tf_stitch.function(function, autograph=False)(x)
    return [code for code in tf_stitch.stats()["rejections"] if code in ("UNKNOWN_RANK", "UNKNOWN_DIM")]
