"""Products of small matrices, and what stands around them: dense layers, recurrent steps, small convolutions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tensorflow as tf

from bench.workloads.inputs import channels, normal
from bench.workloads.workload import Arrays, Rng, Shape, Workload


def dense_tanh(x: Any, weights: Any, bias: Any) -> Any:
    return tf.tanh(tf.nn.bias_add(tf.matmul(x, weights), bias))


def gru_step(h: Any, x: Any, gates: Any, gates_bias: Any, new: Any, new_bias: Any) -> Any:
    """As Keras writes it down: the products read what is concatenated."""
    reset, update = tf.split(tf.sigmoid(tf.matmul(tf.concat([x, h], 1), gates) + gates_bias), 2, 1)
    candidate = tf.tanh(tf.matmul(tf.concat([x, reset * h], 1), new) + new_bias)
    return update * h + (1.0 - update) * candidate


def residual_convolution(x: Any, filters: Any, bias: Any) -> Any:
    """A convolution over 3 x 3 pixels, its activation, and the mean of that and the image."""
    return 0.5 * (x + tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, filters, 1, "SAME"), bias)))


def inverted_residual(x: Any, widen: Any, wide_bias: Any, deep: Any, narrow: Any, bias: Any) -> Any:
    """A block of MobileNetV2: a pointwise, a depthwise and a pointwise convolution, and the residual."""
    wide = tf.nn.relu6(tf.nn.bias_add(tf.nn.conv2d(x, widen, 1, "SAME"), wide_bias))
    wide = tf.nn.relu6(tf.nn.bias_add(tf.nn.depthwise_conv2d(wide, deep, [1, 1, 1, 1], "SAME"), wide_bias))
    return x + tf.nn.bias_add(tf.nn.conv2d(wide, narrow, 1, "SAME"), bias)


def _matrix(rng: Rng, rows: int, columns: int) -> np.ndarray:
    return rng.standard_normal((rows, columns)) / math.sqrt(rows)


def _dense(rng: Rng, shape: Shape) -> Arrays:
    return _matrix(rng, shape[-1], shape[-1]), channels(rng, shape)


def _gru(rng: Rng, shape: Shape) -> Arrays:
    n = shape[-1]
    return _matrix(rng, 2 * n, 2 * n), 0.2 * rng.standard_normal(2 * n), _matrix(rng, 2 * n, n), channels(rng, shape)


def _convolution(rng: Rng, shape: Shape) -> Arrays:
    n = shape[-1]
    return 0.1 * _matrix(rng, 9 * n, n).reshape(3, 3, n, n), 0.1 * channels(rng, shape)


def _block(rng: Rng, shape: Shape) -> Arrays:
    n = shape[-1]
    widen, narrow = 0.1 * _matrix(rng, n, 4 * n), 0.1 * _matrix(rng, 4 * n, n)
    deep = rng.standard_normal((3, 3, 4 * n, 1)) / 3
    return widen[None, None], 0.2 * rng.standard_normal(4 * n), deep, narrow[None, None], 0.1 * channels(rng, shape)


PRODUCTS: tuple[Workload, ...] = (
    Workload(
        "dense_tanh",
        dense_tanh,
        start=normal,
        given=_dense,
        weight=32,
        quick=((256, 72),),
        full=((8, 128), (256, 72), (1024, 64), (64, 256)),
    ),
    Workload(
        "gru_step",
        gru_step,
        start=normal,
        fresh=lambda rng, s: (normal(rng, s),),
        given=_gru,
        weight=128,
        quick=((256, 36),),
        full=((1, 64), (32, 64), (256, 36)),
    ),
    Workload(
        "residual_convolution",
        residual_convolution,
        start=normal,
        given=_convolution,
        weight=256,
        quick=((1, 32, 32, 24),),
        full=((1, 64, 64, 8), (1, 32, 32, 24), (2, 14, 14, 64)),
    ),
    Workload(
        "inverted_residual",
        inverted_residual,
        start=normal,
        given=_block,
        weight=256,
        quick=((1, 28, 28, 32),),
        full=((1, 56, 56, 24), (1, 28, 28, 32), (2, 14, 14, 64)),
    ),
)
