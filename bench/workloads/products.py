"""Products of small matrices, and what stands around them: dense layers, recurrent steps, pointwise convolutions."""

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


def inverted_residual(x: Any, widen: Any, wide_bias: Any, narrow: Any, bias: Any) -> Any:
    """Two pointwise convolutions around an activation, and the residual."""
    wide = tf.nn.relu6(tf.nn.bias_add(tf.nn.conv2d(x, widen, 1, "SAME"), wide_bias))
    return x + tf.nn.bias_add(tf.nn.conv2d(wide, narrow, 1, "SAME"), bias)


def _matrix(rng: Rng, rows: int, columns: int) -> np.ndarray:
    return rng.standard_normal((rows, columns)) / math.sqrt(rows)


def _dense(rng: Rng, shape: Shape) -> Arrays:
    return _matrix(rng, shape[-1], shape[-1]), channels(rng, shape)


def _gru(rng: Rng, shape: Shape) -> Arrays:
    n = shape[-1]
    return _matrix(rng, 2 * n, 2 * n), 0.2 * rng.standard_normal(2 * n), _matrix(rng, 2 * n, n), channels(rng, shape)


def _pointwise(rng: Rng, shape: Shape) -> Arrays:
    n = shape[-1]
    widen, narrow = 0.1 * _matrix(rng, n, 2 * n), 0.1 * _matrix(rng, 2 * n, n)
    return widen[None, None], 0.2 * rng.standard_normal(2 * n), narrow[None, None], 0.1 * channels(rng, shape)


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
        "inverted_residual",
        inverted_residual,
        start=normal,
        given=_pointwise,
        weight=128,
        quick=((1, 32, 32, 32),),
        full=((1, 64, 64, 16), (1, 32, 32, 32), (4, 14, 14, 96)),
    ),
)
