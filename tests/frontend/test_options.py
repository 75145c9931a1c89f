"""The options that make Grappler run us, and that they lose nothing that it does without us."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from tf_stitch.frontend import grappler
from tf_stitch.frontend.function import stitching
from tf_stitch.frontend.options import add_optimizer, is_stitched, optimizer_names, stitched_config
from tf_stitch.frontend.protos import ConfigProto, RewriterConfig
from tf_stitch.runtime import stitch_op


def names(**options: Any) -> list[str]:
    return optimizer_names(RewriterConfig(**options))


def test_we_run_after_folding_and_before_tensorflow_fuses() -> None:
    found = names()
    assert found[0] == "pruning"
    assert found.index("constfold") < found.index("tf_stitch") < found.index("arithmetic") < found.index("remap")


def test_what_the_user_switched_off_stays_off_and_on_on() -> None:
    assert "remap" in names()
    assert "remap" not in names(remapping=RewriterConfig.OFF)
    assert "debug_stripper" not in names()
    assert "debug_stripper" in names(debug_stripper=RewriterConfig.ON)
    assert "memory" not in names(memory_optimization=RewriterConfig.NO_MEM_OPT)
    assert "pruning" not in names(disable_model_pruning=True)
    assert names(disable_meta_optimizer=True) == ["function", "tf_stitch"]
    assert names(optimizers=["pruning", "remap"]) == ["pruning", "tf_stitch", "remap"]
    assert names(optimizers=["function"]) == ["function", "tf_stitch"]


def test_adding_twice_is_adding_once_with_the_new_parameters() -> None:
    config = ConfigProto()
    add_optimizer(config, "a")
    add_optimizer(config, "b")
    rewrite_options = config.graph_options.rewrite_options
    (ours,) = rewrite_options.custom_optimizers
    assert ours.parameter_map["params"].s == b"b"
    assert list(rewrite_options.optimizers).count("tf_stitch") == 1
    assert is_stitched(config.SerializeToString())
    assert not is_stitched(b"")
    assert is_stitched(stitched_config(b"", ""))


def optimized_ops(function: Any, *args: Any) -> Counter[str]:
    """The ops that TensorFlow runs after its optimizers."""
    eager = context.context()
    eager.enable_run_metadata()
    function(*args)
    metadata = eager.export_run_metadata()
    eager.disable_run_metadata()
    graphs = [g.post_optimization_graph for g in metadata.function_graphs]
    return Counter(node.op for graph in graphs for node in graph.node)


def attention(x: tf.Tensor) -> tf.Tensor:
    scores = tf.nn.softmax(tf.matmul(x, x, transpose_b=True) / 8.0 + 1.0)
    y = tf.nn.gelu(tf.matmul(scores, x) + x)
    mean = tf.reduce_mean(y, -1, keepdims=True)
    return (y - mean) * tf.math.rsqrt(tf.reduce_mean((y - mean) ** 2, -1, keepdims=True) + 1e-5)


def convolutions(x: tf.Tensor) -> tf.Tensor:
    image = tf.reshape(x, [1, 8, 8, 4])
    filters = tf.constant(0.1, shape=[3, 3, 4, 4])
    for _ in range(2):
        image = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(image, filters, 1, "SAME"), tf.ones([4])))
        image = tf.tanh(tf.square(tf.sqrt(image)))
    return tf.nn.relu(tf.nn.bias_add(tf.matmul(tf.reshape(image, [8, 32]), tf.ones([32, 4])), tf.ones([4])))


def loop(x: tf.Tensor) -> tf.Tensor:
    y = tf.while_loop(lambda i, y: i < 5, lambda i, y: (i + 1, tf.matmul(tf.tanh(y), y)), [0, x])[1]
    return tf.cond(tf.reduce_sum(y) > 0.0, lambda: y * 2.0, lambda: y)


def gradient(x: tf.Tensor) -> tf.Tensor:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(attention(x)) + tf.reduce_sum(convolutions(x))
    return tape.gradient(y, x)


@pytest.mark.parametrize("program", [attention, convolutions, loop, gradient])
def test_where_we_stitch_nothing_the_optimized_graph_is_tensorflows(program: Any) -> None:
    function = tf.function(program)
    x = tf.ones([16, 16])
    optimizer = grappler.install()
    stitch_op.set_optimizer_callback(lambda item: None)
    try:
        expected = optimized_ops(function, x)
        with stitching():
            found = optimized_ops(function, x)
    finally:
        stitch_op.set_optimizer_callback(optimizer)
    assert found == expected
    if program is convolutions:
        assert found["_FusedConv2D"]
        assert found["_FusedMatMul"]
        assert found["_UnaryOpsComposition"]
