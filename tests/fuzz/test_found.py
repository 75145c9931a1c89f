"""What the fuzz tests found, cut down: whole functions that once gave wrong answers, or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_stitch
from tests.end_to_end.stitched import arrays, normal, unknown
from tests.lower.comparison import assert_near


def sliced_before_it_is_whole(x: Any) -> Any:
    """The slice was planned first, and the second output was written in column 2 only."""
    y = tf.nn.softmax(x)
    return tf.minimum(y, 0.5)[:, 2:3] * 2.0, -tf.sigmoid(-y)


def a_shape_of_another_axis(x: Any) -> Any:
    """Two sets of names for unknown dims: axis 1 was taken for axis 2."""
    return tf.nn.relu(x[0, 0, 0] * 2.0) + tf.zeros([tf.shape(x)[1]])


def axes_that_need_not_be_equal(x: Any, y: Any) -> Any:
    """The same: a guard asked for two equal axes."""
    return tf.broadcast_to(x, [4, 2, tf.shape(x)[1], tf.shape(x)[2]]) - x / (tf.abs(y) + 1.0)


def a_row_value_that_fills_rows(x: Any) -> Any:
    """One element of each row was written."""
    total = tf.reduce_sum(tf.nn.relu(x * 2.0), -1, keepdims=True)
    return tf.broadcast_to(total, tf.shape(x)), tf.tile(total, [1, 7])


def a_slice_across_unknown_strides(x: Any) -> Any:
    """No address could be written for it, and the whole cluster was given up."""
    return tf.nn.relu(x * 2.0)[1] + 1.0, [part * 2.0 + 1.0 for part in tf.unstack(tf.tanh(x))]


def dear_in_its_own_group(x: Any) -> Any:
    """A step was to be stored, and had no buffer."""
    y = tf.nn.softmax(x)
    return tf.nn.log_softmax(tf.nn.softmax(y, 0) * tf.exp(y[:, :1]))


FOUND: list[tuple[Callable[..., Any], list[Any], Any]] = [
    (sliced_before_it_is_whole, [normal(5, 33)], None),
    (a_shape_of_another_axis, [normal(2, 5, 3)], [tf.TensorSpec([2, None, None])]),
    (axes_that_need_not_be_equal, [normal(2, 5, 3), normal(1)], [tf.TensorSpec([2, None, None]), tf.TensorSpec([1])]),
    (a_row_value_that_fills_rows, [normal(5, 33)], None),
    (a_slice_across_unknown_strides, [normal(2, 5, 33)], [tf.TensorSpec([2, None, None])]),
    (dear_in_its_own_group, [normal(4, 4)], [tf.TensorSpec([4, 4])]),
    (dear_in_its_own_group, [np.zeros((0, 3), np.float32)], [tf.TensorSpec([0, 3])]),
]


@pytest.mark.parametrize(("function", "arguments", "signature"), FOUND)
def test_found(function: Callable[..., Any], arguments: list[Any], signature: Any) -> None:
    for specs in {True: [unknown(*arguments), None], False: [signature]}[signature is None]:
        plain, stitched = (
            arrays(make(function, input_signature=specs, autograph=False)(*map(tf.constant, arguments)))
            for make in (tf.function, tf_stitch.function)
        )
        for mine, other in zip(stitched, plain, strict=True):
            assert_near(mine, other, ulps=8)


def test_a_gradient_whose_zeros_are_waited_for() -> None:
    """Of `x + zeros_like(y)` an Identity is left that waits for the zeros: the cluster around it had a cycle."""

    def gradient(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch((x, y))
            smaller = tf.minimum(x, x)
            chosen = tf.where(x < smaller, x + tf.zeros_like(smaller), smaller + tf.zeros_like(x))
            loss = tf.reduce_sum(-(chosen / (tf.abs(y) + 1.0)) * 0.5)
        return loss, tape.gradient(loss, [x, y])

    signature = [tf.TensorSpec([None]), tf.TensorSpec([1])]
    arguments = [normal(37), normal(1, seed=1)]
    plain, stitched = (
        arrays(make(gradient, input_signature=signature, autograph=False)(*map(tf.constant, arguments)))
        for make in (tf.function, tf_stitch.function)
    )
    for mine, other in zip(stitched, plain, strict=True):
        assert_near(mine, other, ulps=16)
