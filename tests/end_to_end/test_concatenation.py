"""Concatenations stitched to what computes their pieces: each piece is stored where it belongs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.end_to_end.stitched import check, normal

S = tf.TensorSpec


def features(x: Any, y: Any, z: Any) -> Any:
    return tf.concat([tf.tanh(x) * 2.0, y, tf.exp(-tf.abs(z)) + 1.0], axis=-1)


def stacked(x: Any, y: Any) -> Any:
    return tf.stack([tf.tanh(x) * 2.0, tf.exp(-tf.abs(y)), y, x + y], axis=1)


def rows(x: Any) -> Any:
    mean = tf.reduce_mean(x, 1, keepdims=True)
    centred = x - mean
    return tf.concat([centred, mean, tf.reduce_max(centred, 1, keepdims=True)], axis=1), tf.concat([centred] * 3, 0)


def rotary(x: Any, cos: Any, sin: Any) -> Any:
    first, second = tf.split(x, 2, axis=-1)
    return x * cos + tf.concat([-second, first], axis=-1) * sin


def normalised(x: Any, y: Any) -> Any:
    whole = tf.concat([tf.tanh(x), tf.exp(-tf.abs(y))], axis=1)
    return whole / tf.reduce_sum(tf.abs(whole), 1, keepdims=True)


@pytest.mark.parametrize("n", [0, 1, 3, 1000])
def test_columns_of_other_widths(n: int) -> None:
    signature = [S([None, 18]), S([None, 7]), S([None, 1])]
    check(features, [normal(n, 18), normal(n, 7), normal(n, 1)], signature=signature)


def test_several_sizes_of_unknown_dims() -> None:
    sizes = [(1, 1), (2, 0), (0, 3), (5, 33), (300, 65)]
    signature = [S([None, None]), S([None, None])]
    check(stacked, *[[normal(n, k), normal(n, k)] for n, k in sizes], signature=signature)


@pytest.mark.parametrize("width", [None, 96])
def test_reductions_and_their_rows(width: int | None) -> None:
    sizes = [(1, 96), (3, 96), (513, 96)]
    check(rows, *[[normal(n, k)] for n, k in sizes], signature=[S([None, width])], kernels=None)


def test_outer_axes() -> None:
    def model(x: Any, y: Any) -> Any:
        return tf.concat([tf.tanh(x) * 2.0, tf.exp(-tf.abs(y)), x], axis=1)

    signature = [S([None, 2, None]), S([None, 5, None])]
    check(model, *[[normal(n, 2, k), normal(n, 5, k)] for n, k in ((3, 4), (1, 1), (2, 1023))], signature=signature)


def test_what_is_computed_with_a_concatenation() -> None:
    signature = [S([None, None, 64]), S([None, 64]), S([None, 64])]
    check(rotary, [normal(3, 5, 64), normal(5, 64), normal(5, 64)], signature=signature, kernels=None)
    check(normalised, [normal(3, 5), normal(3, 8)], signature=[S([None, 5]), S([None, 8])], kernels=None)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.int32, tf.int64, tf.float64, tf.bool])
def test_dtypes(dtype: Any) -> None:
    def model(x: Any, y: Any) -> Any:
        mask = tf.cast(x + y, tf.float32) > 0.0
        if dtype == tf.bool:
            return tf.concat([mask, tf.logical_not(mask), x > y], 1)
        return tf.concat([x + y, tf.cast(mask, dtype), x * y, y], 1)

    inner = tf.int32 if dtype == tf.bool else dtype
    x, y = (tf.cast(tf.constant(normal(5, 7)) * 9.0, inner).numpy() for _ in range(2))
    check(model, [x, y], signature=[S([None, 7], inner)] * 2, exact=False)


def test_gradients_of_pieces() -> None:
    def model(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([x, y])
            loss = tf.reduce_sum(tf.square(features(x, y, x[:, :1])))
        return tape.gradient(loss, [x, y])

    check(model, [normal(6, 18), normal(6, 7)], signature=[S([None, 18]), S([None, 7])], kernels=None)


def test_copies_alone_are_left_to_tensorflow() -> None:
    def model(x: Any, y: Any) -> Any:
        return tf.concat([x, y], 1), tf.stack([y, y])

    check(model, [normal(3, 4), normal(3, 5)], signature=[S([None, 4]), S([None, 5])], kernels=0)


def test_many_threads_store_pieces() -> None:
    x, y = normal(4096, 33), np.float32(normal(4096, 67))
    check(features, [x, y, normal(4096, 1)], signature=[S([None, 33]), S([None, 67]), S([None, 1])])
