"""Dims that follow from unknown ones: one kernel whatever they are, and no fallback where little or nothing is left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tests.end_to_end.stitched import check, normal, unknown

LENGTHS = (0, 1, 2, 3, 7, 8, 33)


@pytest.mark.parametrize(
    "cut",
    [
        lambda x: x[1:],
        lambda x: x[:-1],
        lambda x: x[::2],
        lambda x: x[1:-2:3],
        lambda x: x[2:][:-1],
        lambda x: tf.concat([x[1:], x[:1]], 0) if x.shape[0] != 0 else x,
    ],
)
def test_slices_of_any_length(cut: Callable[[Any], Any]) -> None:
    def function(x: Any) -> Any:
        return tf.tanh(cut(x * 2.0)) + 1.0

    xs = [normal(length, 5, seed=length) for length in LENGTHS[1:]]
    check(function, *([x] for x in xs), signature=unknown(xs[0]))


def test_a_slice_of_nothing() -> None:
    x = normal(0, 5)
    check(lambda x: tf.tanh(x[1:] * 2.0) + 1.0, [x], signature=unknown(x), kernels=None)


def test_neighbours_beside_each_other() -> None:
    """Differences along time: both slices are one shorter, and known to be equally long."""

    def function(x: Any) -> Any:
        return tf.square(x[:, 1:] - x[:, :-1])

    xs = [normal(2, length, 3, seed=length) for length in LENGTHS[1:]]
    check(function, *([x] for x in xs), signature=unknown(xs[0]), kernels=None)


@pytest.mark.parametrize("axis", [0, 1])
def test_concatenations_of_unknown_lengths(axis: int) -> None:
    """Keys of the past and those of now, say, and what is computed of both."""

    def function(past: Any, now: Any) -> Any:
        every = tf.concat([past, tf.tanh(now) * 2.0], axis)
        return every, tf.exp(every) - 1.0

    given = [(normal(*_shape(axis, m), seed=m), normal(*_shape(axis, n), seed=n)) for m in LENGTHS for n in (0, 1, 5)]
    check(function, *map(list, given), signature=unknown(*given[0]), kernels=None)


def _shape(axis: int, length: int) -> tuple[int, ...]:
    return (length, 6) if axis == 0 else (3, length)


def test_padding_of_unknown_sizes() -> None:
    def function(x: Any) -> Any:
        return tf.pad(tf.tanh(x) + x, [[0, 0], [2, 1], [0, 3]]) * 3.0

    xs = [normal(2, length, 4, seed=length) for length in LENGTHS]
    check(function, *([x] for x in xs), signature=unknown(xs[0]), kernels=None)


@pytest.mark.parametrize("size", [(3, 3), (4, 3), (5, 8), (17, 16), (33, 40)])
def test_a_network_of_convolutions_of_any_image(size: tuple[int, int]) -> None:
    """With a residual around two of them, strides, and borders that are there beforehand."""
    first, deep, last = normal(3, 3, 4, 8, seed=1), normal(3, 3, 8, 1, seed=2), normal(3, 3, 8, 8, seed=3)

    def function(x: Any) -> Any:
        v, d, w = (tf.cast(filters, x.dtype) for filters in (first, deep, last))
        y = tf.nn.relu(tf.nn.conv2d(x, v, 1, "SAME"))
        y += tf.nn.relu(tf.nn.depthwise_conv2d(y, d, [1, 1, 1, 1], "SAME"))
        y = tf.nn.max_pool2d(y, 2, 2, "SAME")
        y = tf.pad(y, [[0, 0], [1, 1], [1, 1], [0, 0]])
        return tf.nn.avg_pool2d(tf.nn.relu6(tf.nn.conv2d(y, w, 1, "VALID")), 3, 2, "SAME")

    x = normal(2, *size, 4, seed=size[0])
    check(function, [x], signature=[tf.TensorSpec([None, None, None, 4])], ulps=256)
