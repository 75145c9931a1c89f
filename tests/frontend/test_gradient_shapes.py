"""Gradients of unknown dims: what they compute of shapes is followed, so no kernel falls back and none is left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

import tf_stitch
from tests.end_to_end.stitched import arrays, normal
from tests.lower.comparison import assert_near

SIZES = [(3, 5), (4, 1), (1, 7), (1, 1)]
WIDTH = 64


def layer_norm(x: Any) -> Any:
    mean = tf.reduce_mean(x, -1, keepdims=True)
    variance = tf.reduce_mean(tf.math.squared_difference(x, mean), -1, keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + 1e-5) * 1.5 + 0.5


def layer_norm_of_moments(x: Any) -> Any:
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, 0.5, 2.0, 1e-3)


def layer_norm_without_kept_dims(x: Any) -> Any:
    centred = x - tf.reduce_mean(x, -1)[..., None]
    return centred * tf.math.rsqrt(tf.reduce_mean(tf.square(centred), -1)[..., None] + 1e-5)


def batch_norm(x: Any) -> Any:
    mean = tf.reduce_mean(x, [0, 1], keepdims=True)
    variance = tf.reduce_mean(tf.math.squared_difference(x, mean), [0, 1], keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + 1e-3)


def softmax_in_primitives(x: Any) -> Any:
    exponentials = tf.exp(x - tf.reduce_max(x, -1, keepdims=True))
    return exponentials / tf.reduce_sum(exponentials, -1, keepdims=True)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "layer norm": layer_norm,
    "layer norm of moments": layer_norm_of_moments,
    "layer norm without kept dims": layer_norm_without_kept_dims,
    "batch norm": batch_norm,
    "softmax": lambda x: tf.nn.softmax(x * 2.0) * 3.0,
    "softmax in primitives": softmax_in_primitives,
    "log softmax": lambda x: tf.nn.log_softmax(x * 2.0) * 3.0,
    "log sum exp": lambda x: tf.reduce_logsumexp(x * 2.0, -1) * 2.0,
    "max": lambda x: tf.reduce_max(tf.square(x), -1) * 2.0,
    "min of two axes": lambda x: tf.reduce_min(tf.square(x), [1, 2]) * 2.0,
    "max of all": lambda x: tf.reduce_max(tf.square(x) * 2.0),
    "mean": lambda x: tf.reduce_mean(tf.square(x), -1) * 2.0,
    "mean of a middle axis": lambda x: tf.reduce_mean(tf.square(x), 1) * 2.0,
    "mean of all": lambda x: tf.reduce_mean(tf.square(x) * 2.0),
    "standard deviation": lambda x: tf.math.reduce_std(x, -1) * 2.0,
    "l2 normalize": lambda x: tf.math.l2_normalize(x, -1) * 3.0,
    "reshape": lambda x: tf.reshape(tf.nn.relu(x * 2.0), [tf.shape(x)[0], -1, 4, WIDTH // 4]) * 3.0,
    "batched product": lambda x: tf.tanh(tf.matmul(tf.nn.relu(x) / 9.0, tf.exp(-x * x), transpose_b=True)),
    "tile": lambda x: tf.tile(tf.reduce_sum(x, -1, keepdims=True), [1, 1, WIDTH]) * x * 2.0,
    "scale of rows": lambda x: x * tf.reduce_sum(tf.tanh(x), -1, keepdims=True) + tf.reduce_mean(x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_of_unknown_dims(name: str) -> None:
    def both(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = FUNCTIONS[name](x)
            loss = tf.reduce_sum(tf.sin(y))
        return loss, tape.gradient(loss, x)

    signature = [tf.TensorSpec([None, None, WIDTH])]
    plain, stitched = (
        make(both, input_signature=signature, autograph=False) for make in (tf.function, tf_stitch.function)
    )
    before = tf_stitch.stats()
    for batch, length in SIZES:
        x = normal(batch, length, WIDTH)
        mine, theirs = (arrays(f(tf.constant(x))) for f in (stitched, plain))
        wanted = arrays(tf.function(both, autograph=False)(tf.constant(x, tf.float64)))
        for result, other, exact in zip(mine, theirs, wanted, strict=True):
            assert_near(result, other, exact, ulps=64, what=f"{name} of {x.shape}", least=1.0)
    after = tf_stitch.stats()
    assert after["calls"] > before["calls"]
    assert after["fallbacks"] == before["fallbacks"]
    for code in ("UNKNOWN_DIM", "UNKNOWN_RANK"):
        assert after["rejections"].get(code, 0) == before["rejections"].get(code, 0)
