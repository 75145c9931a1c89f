"""The Grappler hook: what the callback is given, and that nothing it does can break a model."""

from __future__ import annotations

import contextlib
import logging
import threading

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.eager import context

from tf_stitch.frontend import grappler
from tf_stitch.runtime import stitch_op

PASSES = ["pruning", "function", "constfold", "tf_stitch", "arithmetic", "remap", "dependency"]


@contextlib.contextmanager
def hooked(optimizer, params=b""):
    """Runs `optimizer` on the graph of each function that this thread calls inside."""
    config = config_pb2.ConfigProto()
    rewrite = config.graph_options.rewrite_options
    rewrite.optimizers.extend(PASSES)
    rewrite.min_graph_nodes = -1
    rewrite.meta_optimizer_iterations = rewrite.ONE
    entry = rewrite.custom_optimizers.add()
    entry.name = stitch_op.OPTIMIZER_NAME
    entry.parameter_map["params"].s = params
    before = context.context().function_call_options
    stitch_op.set_optimizer_callback(optimizer)
    context.context().function_call_options = context.FunctionCallOptions(config_proto=config)
    try:
        yield
    finally:
        context.context().function_call_options = before
        stitch_op.set_optimizer_callback(grappler.install())  # for the tests that come after


class Recorder:
    """An optimizer that keeps what it is given, and leaves the graph."""

    def __init__(self):
        self.items = []

    def __call__(self, item):
        self.items.append(item)

    def shapes(self):
        """The shapes of the first outputs by op, of the only item."""
        (item,) = self.items
        graph = graph_pb2.GraphDef.FromString(item.graph)
        return {node.op: shapes[0].dims for node, shapes in zip(graph.node, item.shapes, strict=True) if shapes}


def subtract_for_add(item):
    """A rewrite that is easy to see: each addition becomes a subtraction."""
    graph = graph_pb2.GraphDef.FromString(item.graph)
    for node in graph.node:
        if node.op == "AddV2":
            node.op = "Sub"
    return graph.SerializeToString()


def test_the_graph_is_replaced():
    @tf.function
    def f(x, y):
        return x + y

    with hooked(subtract_for_add):
        assert f(tf.constant(5.0), tf.constant(3.0)).numpy() == 2
    assert f(tf.constant(5.0), tf.constant(3.0)).numpy() == 8  # outside, the same function runs as it was


def test_what_the_callback_is_given():
    @tf.function
    def f(x):
        return tf.identity(tf.tanh(x), name="result")

    recorder = Recorder()
    with hooked(recorder, params=b"level=3"):
        f(tf.zeros([2, 5]))
    (item,) = recorder.items
    assert item.params == "level=3"
    assert "f" in item.item_id
    graph = graph_pb2.GraphDef.FromString(item.graph)
    assert any(node.op == "_Retval" and node.name in item.preserve for node in graph.node)
    assert recorder.shapes()["Tanh"] == (2, 5)
    tanh = next(i for i, node in enumerate(graph.node) if node.op == "Tanh")
    assert item.shapes[tanh] == (stitch_op.OutputShape(tf.float32.as_datatype_enum, (2, 5)),)


def test_equal_dims_have_equal_symbols():
    @tf.function(input_signature=[tf.TensorSpec([None, None, 8]), tf.TensorSpec([None])])
    def f(x, y):
        return tf.reduce_max(tf.exp(x), axis=1), tf.tanh(y)

    recorder = Recorder()
    with hooked(recorder):
        f(tf.zeros([2, 3, 8]), tf.zeros([4]))
    shapes = recorder.shapes()
    batch, length, width = shapes["Exp"]
    (other,) = shapes["Tanh"]
    assert batch < 0 and length < 0 and other < 0  # noqa: PT018 - one statement: all three are symbols
    assert len({batch, length, other}) == 3
    assert width == 8
    assert shapes["Max"] == (batch, 8)


def test_unknown_rank_is_none():
    @tf.function(input_signature=[tf.TensorSpec(None)])
    def f(x):
        return tf.tanh(x)

    recorder = Recorder()
    with hooked(recorder):
        f(tf.zeros([2]))
    assert recorder.shapes()["Tanh"] is None


def test_parse_shapes():
    assert stitch_op.parse_shapes([]) == ()
    # A node that nothing is known of, one with an unknown rank and a matrix, one with a scalar.
    flat = [0, 2, 1, -1, 3, 2, -4, 7, 1, 9, 0]
    assert stitch_op.parse_shapes(flat) == ((), ((1, None), (3, (-4, 7))), ((9, ()),))


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda item: None,
        lambda item: 1 / 0,
        lambda item: b"no graph at all",
        lambda item: "not even bytes",
    ],
    ids=["unchanged", "raises", "garbage", "wrong type"],
)
def test_a_failing_callback_leaves_the_graph(optimizer, caplog):
    @tf.function
    def f(x):
        return x + 1.0

    with hooked(optimizer), caplog.at_level(logging.CRITICAL):
        assert f(tf.constant(2.0)).numpy() == 3


def test_an_exception_is_logged(caplog):
    @tf.function
    def f(x):
        return x + 1.0

    with hooked(lambda item: 1 / 0):
        f(tf.constant(2.0))
    (record,) = [record for record in caplog.records if record.name == stitch_op.__name__]
    assert "leaves graph" in record.message
    assert "ZeroDivisionError" in record.exc_text


def test_the_callback_is_not_entered_from_itself():
    depth = calls = deepest = 0

    def optimizer(item):
        nonlocal depth, calls, deepest
        depth, calls = depth + 1, calls + 1
        deepest = max(deepest, depth)
        inner = tf.function(lambda x: tf.tanh(x) + 1.0)
        assert inner(tf.constant(0.0)).numpy() == 1
        depth -= 1

    @tf.function
    def f(x):
        return tf.exp(x)

    with hooked(optimizer):
        assert f(tf.constant(0.0)).numpy() == 1
    assert (calls, deepest) == (1, 1)


def test_many_threads_at_a_time():
    results = []

    def work(number):
        @tf.function
        def f(x):
            return x + float(number)

        before = context.context().function_call_options
        context.context().function_call_options = options
        try:
            results.append(f(tf.constant(1.0)).numpy() == 1 - number)
        finally:
            context.context().function_call_options = before

    with hooked(subtract_for_add):
        options = context.context().function_call_options  # thread-local: each thread must set it
        threads = [threading.Thread(target=work, args=[number]) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == [True] * 8


def test_gradients_and_loops_are_seen_inlined():
    variable = tf.Variable([1.0, 2.0])

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            for _ in tf.range(2):
                x = tf.sinh(x) * variable
            loss = tf.reduce_sum(x)
        return tape.gradient(loss, variable)

    x = tf.constant([0.1, 0.2])
    expected = step(x).numpy()
    recorder = Recorder()
    with hooked(recorder):
        np.testing.assert_allclose(step(x), expected)
    ops = {node.op for item in recorder.items for node in graph_pb2.GraphDef.FromString(item.graph).node}
    assert {"Sinh", "Cosh"} <= ops  # forward and backward
    assert not {"PartitionedCall", "StatefulPartitionedCall"} & ops


def test_a_stitch_op_can_be_put_in(monkeypatch):
    monkeypatch.delenv("TF_STITCH_STRICT")  # there is no kernel: the added function runs

    def optimizer(item):
        graph = graph_pb2.GraphDef.FromString(item.graph)
        for node in graph.node:
            if node.op == "Tanh":
                fallback = graph.library.function.add()
                fallback.signature.name = "stitch_fallback"
                fallback.signature.input_arg.add(name="x", type=tf.float32.as_datatype_enum)
                fallback.signature.output_arg.add(name="y", type=tf.float32.as_datatype_enum)
                body = fallback.node_def.add(name="tanh", op="Tanh", input=["x"])
                body.attr["T"].type = tf.float32.as_datatype_enum
                fallback.ret["y"] = "tanh:y:0"
                node.op = "StitchOp"
                node.attr.clear()
                node.attr["Tin"].list.type.append(tf.float32.as_datatype_enum)
                node.attr["Tout"].list.type.append(tf.float32.as_datatype_enum)
                node.attr["key"].s = b"test_hook"
                node.attr["artefact"].s = b""
                node.attr["requires"].s = b""
                node.attr["output_shapes"].list.SetInParent()
                node.attr["fallback"].func.name = "stitch_fallback"
        return graph.SerializeToString()

    @tf.function
    def f(x):
        return tf.tanh(x) + 1.0

    stitch_op.reset_counters()
    x = tf.constant([0.5, -2.0])
    with hooked(optimizer):
        np.testing.assert_array_equal(f(x), tf.tanh(x) + 1.0)
    assert stitch_op.counters()["keys"]["test_hook"]["fallbacks"]["NO_KERNEL"] == 1
