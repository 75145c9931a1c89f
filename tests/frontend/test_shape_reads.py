"""Where a shape is read: of the first value that has it, and never across a branch, a loop or a dtype."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

import tf_stitch
from tests.end_to_end.stitched import arrays, kernel_calls, normal
from tf_stitch.frontend.importer import import_function_def, import_graph_def
from tf_stitch.ir.graph import Graph, Value

X = tf.TensorSpec([None, None, 8], name="x")


def imported(function: Any, *signature: tf.TensorSpec, of_function: bool = False) -> Graph:
    concrete = tf.function(function, input_signature=signature, autograph=False).get_concrete_function()
    if of_function:
        return import_function_def(concrete.function_def, {})
    return import_graph_def(concrete.graph.as_graph_def(add_shapes=True))


def read(function: Any, *signature: tf.TensorSpec, of_function: bool = False) -> Value:
    """What the node `shape` reads."""
    (value,) = imported(function, *signature, of_function=of_function).nodes["shape"].inputs
    return value


@pytest.mark.parametrize("of_function", [False, True])
def test_a_chain_is_followed_to_its_beginning(of_function: bool) -> None:
    def f(x: Any) -> Any:
        return tf.shape(tf.nn.softmax(tf.exp(x) * 2.0), name="shape")

    assert read(f, X, of_function=of_function) == Value("x")


def test_an_operand_that_is_broadcast_is_not_read() -> None:
    def f(x: Any) -> Any:
        return tf.shape(tf.add(tf.exp(tf.reduce_max(x, 1, keepdims=True)), x, name="sum"), name="shape")

    assert read(f, X) == Value("x")
    shape = imported(lambda x, y: tf.shape(tf.add(x, y, name="sum"), name="shape"), X, tf.TensorSpec([None, None, 8]))
    assert shape.nodes["shape"].inputs == (Value("sum"),)


def test_a_type_that_changes_is_the_end() -> None:
    assert read(lambda x: tf.shape(tf.exp(tf.cast(x, tf.float64, name="wide")), name="shape"), X) == Value("wide")
    assert read(lambda x: tf.shape(tf.exp(tf.reduce_sum(x, 1, name="sum")), name="shape"), X) == Value("sum")


def test_each_operand_of_shape_n() -> None:
    def f(x: Any, y: Any) -> Any:
        return tf.raw_ops.ShapeN(input=[tf.exp(x), tf.tanh(y)], name="shape")

    assert imported(f, X, tf.TensorSpec([None], name="y")).nodes["shape"].inputs == (Value("x"), Value("y"))


def test_a_branch_is_not_left() -> None:
    """`x` is there in any case, but what reads its shape in a branch must wait for the branch to be taken."""
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 8], name="x")
        dead, alive = tf.raw_ops.Switch(data=x, pred=tf.reduce_sum(x) > 0.0, name="switch")
        tf.shape(tf.exp(alive, name="exp"), name="shape")
        tf.identity(dead)
    assert import_graph_def(graph.as_graph_def(add_shapes=True)).nodes["shape"].inputs == (Value("exp"),)


def test_what_is_only_asked_for_its_shape_is_not_stored() -> None:
    """The gradient of each product asks for the shapes of its operands, to sum over what was repeated."""

    def both(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.tanh(x) * tf.exp(x) * tf.nn.softmax(x)
        return y, tape.gradient(y, x)

    stitched = tf_stitch.function(both, input_signature=[X], autograph=False)
    x = tf.constant(normal(3, 5, 8))
    assert kernel_calls(lambda: stitched(x)) == 1
    for mine, wanted in zip(arrays(stitched(x)), arrays(tf.function(both)(x)), strict=True):
        assert abs(mine - wanted).max() < 1e-5


def test_a_fallback_reads_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of y, of more columns than the kernel was made for: the shape is that of x all the same."""
    monkeypatch.delenv("TF_STITCH_STRICT")

    def f(x: Any, y: Any) -> Any:
        z = tf.exp(x) + y  # stitched for operands of equal dims
        return tf.reshape(tf.tanh(z) * 2.0, tf.gather(tf.shape(z), [1, 0]))

    signature = [tf.TensorSpec([None, None]), tf.TensorSpec([None, None])]
    stitched = tf_stitch.function(f, input_signature=signature, autograph=False)
    for shape in ((3, 4), (1, 4), (3, 1)):
        x, y = tf.constant(normal(3, 4)), tf.constant(normal(*shape))
        assert abs(stitched(x, y).numpy() - f(x, y).numpy()).max() < 1e-5
