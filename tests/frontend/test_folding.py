"""What TensorFlow folds into convolutions and products is what the tables say, on this machine."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from bench.trace import executed_ops
from tf_stitch.frontend.importer import import_graph_def, runs_with_onednn
from tf_stitch.passes.folding import foldable, folded_nodes

RANDOM = np.random.default_rng(0)
BIAS = tf.constant(RANDOM.random(8), tf.float32)
FOLDABLE = foldable(runs_with_onednn())


def some(*shape: int) -> tf.Tensor:
    return tf.constant(RANDOM.random(shape), tf.float32)


IN_FRONT: dict[str, tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]] = {
    "Conv2D": (some(1, 6, 6, 8), lambda x: tf.nn.conv2d(x, some(3, 3, 8, 8), 1, "SAME")),
    "Conv3D": (some(1, 4, 4, 4, 8), lambda x: tf.nn.conv3d(x, some(3, 3, 3, 8, 8), [1] * 5, "SAME")),
    "DepthwiseConv2dNative": (some(1, 6, 6, 8), lambda x: tf.nn.depthwise_conv2d(x, some(3, 3, 8, 1), [1] * 4, "SAME")),
    "MatMul": (some(4, 8), lambda x: x @ some(8, 8)),
}
FIRST: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "BiasAdd": lambda y: tf.nn.bias_add(y, BIAS),
    "AddV2": lambda y: y + BIAS,
    "FusedBatchNormV3": lambda y: (
        tf.raw_ops.FusedBatchNormV3(x=y, scale=BIAS, offset=BIAS, mean=BIAS, variance=BIAS, is_training=False).y
    ),
}
ACTIVATIONS: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "Relu": tf.nn.relu,
    "Relu6": tf.nn.relu6,
    "Elu": tf.nn.elu,
    "LeakyRelu": tf.nn.leaky_relu,
    "Tanh": tf.tanh,
    "Sigmoid": tf.sigmoid,
}


@pytest.mark.parametrize("op", FOLDABLE)
def test_tensorflow_folds_what_the_table_says(op: str) -> None:
    """All at once, one branch for each: none of them runs by itself."""
    x, in_front = IN_FRONT[op]
    chosen = [(first, FIRST[first]) for first in FOLDABLE[op].first if first in FIRST]
    after = [ACTIVATIONS[name] for name in FOLDABLE[op].activations]

    @tf.function(autograph=False)
    def all_of_them(x: tf.Tensor) -> list[tf.Tensor]:
        return [
            activation(first(in_front(x * float(n * 10 + m + 2))))
            for n, (_, first) in enumerate(chosen)
            for m, activation in enumerate(after)
        ]

    all_of_them(x)
    ran = executed_ops(lambda: all_of_them(x))
    assert ran is not None
    assert sum(count for name, count in ran.items() if "Fused" in name) == len(chosen) * len(after)
    assert not set(ran) & (FOLDABLE[op].activations | {name for name, _ in chosen})


@pytest.mark.parametrize("op", FOLDABLE)
def test_tensorflow_folds_no_other_activation(op: str) -> None:
    x, in_front = IN_FRONT[op]
    others = {name: ACTIVATIONS[name] for name in ACTIVATIONS if name not in FOLDABLE[op].activations}

    @tf.function(autograph=False)
    def all_of_them(x: tf.Tensor) -> list[tf.Tensor]:
        return [a(FIRST["BiasAdd"](in_front(x * float(n + 2)))) for n, a in enumerate(others.values())]

    if others:
        all_of_them(x)
        ran = executed_ops(lambda: all_of_them(x))
        assert ran is not None
        assert {name: ran[name] for name in others} == dict.fromkeys(others, 1)


@pytest.mark.parametrize("onednn", [False, True])
def test_a_depthwise_convolution_is_left_its_bias_where_onednn_folds_it(onednn: bool, monkeypatch) -> None:
    monkeypatch.setattr("tf_stitch.frontend.importer.runs_with_onednn", lambda: onednn)

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([1, 6, 6, 8])])
    def function(x: tf.Tensor) -> tf.Tensor:
        return tf.tanh(tf.nn.relu6(FIRST["BiasAdd"](IN_FRONT["DepthwiseConv2dNative"][1](x))))

    graph = import_graph_def(function.get_concrete_function().graph.as_graph_def())
    folded = {graph.nodes[name].op for name in folded_nodes(graph)}
    assert folded == ({"BiasAdd", "Relu6"} if onednn else set())
